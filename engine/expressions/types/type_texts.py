"""Types as fields of definitions."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from engine.expressions.types.types import parse_type


def _readable(text: str) -> str:
    parse_type(text)
    return text


TypeText = Annotated[
    str,
    AfterValidator(_readable),
    Field(
        description="A column's type: boolean, int, bigint, double, decimal(p,s), string, bytes, date, time, timestamp, array<T>, …"
    ),
]

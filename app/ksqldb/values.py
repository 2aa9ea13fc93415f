"""Rows as ksqlDB's protocol has them: arrays of JSON values."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from app.http.answers.record_json import encode_values
from engine.expressions.types.types import ColumnType, Schema


def rows_of(frame: pl.DataFrame, columns: Schema) -> list[list[Any]]:
    """Return the values of each row, in the order of the columns."""
    if not frame.height:
        return []
    kinds = columns.types
    texts = encode_values(frame, columns, has_text_numbers=False)
    return [[_value(value, kind) for value, kind in zip(json.loads(text).values(), kinds, strict=True)] for text in texts]


def _value(value: Any, kind: ColumnType) -> Any:
    """Return a timestamp as ksqlDB shows it: to the millisecond, without a zone; everything else is JSON already."""
    if kind.kind == "timestamp" and isinstance(value, str):
        whole, _, part = value.removesuffix("Z").partition(".")
        return f"{whole}.{part[:3]:0<3}"
    return value

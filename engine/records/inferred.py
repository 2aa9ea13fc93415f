"""Proposed columns of a source: they replace ``"columns": "infer"`` before it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_core import PydanticCustomError

from engine.errors import DefinitionInvalid, Problem
from engine.expressions.model import usable
from engine.expressions.types.types import ColumnType, parse_type

INFER: Final = "infer"
"""Stands in place of columns."""

Fields = Sequence[tuple[str, ColumnType | None]]
"""Names and types of fields, in order; None: no column can hold it, or it has no known value."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """A proposal.

    Attributes:
        columns: name → type, in order.
        key: the key among them; empty: it is unknown.
        left_out: names of fields that are no columns, and why.
        seen: how much was examined, as part of a sentence; None: everything, or as on the connector's page.
    """

    columns: Mapping[str, ColumnType]
    key: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    seen: str | None = None


def proposed(fields: Iterable[tuple[str, ColumnType | None]], key: Sequence[str] = ()) -> Inferred:
    """Return the fields that can be columns.

    Raises:
        DefinitionInvalid: none can.
    """
    columns: dict[str, ColumnType] = {}
    left_out: list[tuple[str, str]] = []
    for name, declared in fields:
        why = _why_not(name, declared)
        if why is not None:
            left_out.append((name, why))
        elif declared is not None:
            columns.setdefault(name, declared)
    if not columns:
        detail = "; ".join(f"{name!r}: {why}" for name, why in left_out[:5]) or "there are none"
        raise nothing_found(f"no field of what is there can be a column ({detail})")
    return Inferred(columns, tuple(key), tuple(left_out))


def nothing_found(detail: str) -> DefinitionInvalid:
    """Return the error for columns that cannot be proposed."""
    return DefinitionInvalid([Problem("/columns", "columns_not_inferred", f"{detail}; declare the columns")])


def _why_not(name: str, declared: ColumnType | None) -> str | None:
    try:
        usable(name)
    except PydanticCustomError:
        return "it has a name that no column can have"
    if declared is None:
        return "no value of it was seen, or it has no type that a column can have"
    try:
        parse_type(str(declared))
    except ValueError as error:
        return f"its type is too large or too deep ({str(error)[:100]})"
    return None

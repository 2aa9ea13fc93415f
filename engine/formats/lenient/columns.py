"""Values of records put into columns: at once if all have the type, else one by one with leniency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from engine.expressions.types.types import ColumnType
from engine.formats.lenient.lenient import Reader, or_null, reader
from engine.formats.lenient.model import Unreadable

_CLEAN: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "bigint": frozenset({int}),
    "double": frozenset({float, int}),
    "string": frozenset({str}),
}
"""Python types whose values Polars accepts unchanged."""


def column_of(name: str, values: Sequence[Any], declared: ColumnType, faults: dict[int, str]) -> pl.Series:
    """Return a column of JSON values.

    Args:
        name: of the column.
        values: one for each record.
        declared: its type.
        faults: place of an unreadable record → why; extended here.
    """
    clean = _CLEAN.get(declared.kind)
    if clean is not None and set(map(type, values)) <= clean | {type(None)}:
        try:
            return pl.Series(name, values, dtype=declared.polars)
        except (PolarsError, OverflowError, TypeError, UnicodeEncodeError):
            pass  # a number is too large, or a text has half of a surrogate pair: the code below finds where
    return column_read(name, values, declared, reader(declared), faults)


def column_read(name: str, values: Sequence[Any], declared: ColumnType, read: Reader, faults: dict[int, str]) -> pl.Series:
    """Return a column of values that are read one by one; see ``column_of``."""
    read = or_null(read)
    found: list[Any] = []
    for place, value in enumerate(values):
        try:
            found.append(read(value))
        except Unreadable as unreadable:
            found.append(None)
            faults.setdefault(place, f"column {name!r}: {unreadable}")
    return pl.Series(name, found, dtype=declared.polars)

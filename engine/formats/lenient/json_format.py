"""Keys and values as JSON: an object of the columns, or a single bare column."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from engine.definition.record_formats import DEFAULT_DELIMITER
from engine.expressions.types.types import ColumnType, Schema
from engine.formats.lenient.lenient import Reader, Unreadable, field_of, json_text, or_null, reader

Payload = bytes | None
"""A key or a value in a topic; None: the record has none."""

_EXACT_KINDS = ("decimal", "string")
"""Kinds for which a number's digits count, not its double."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a topic's keys, or of its values.

    Attributes:
        columns: in the order of the topic.
        is_wrapped: a single column is inside an object; several always are.
        delimiter: between columns, for formats that have one.
    """

    columns: Schema
    is_wrapped: bool = True
    delimiter: str = DEFAULT_DELIMITER

    @property
    def is_bare(self) -> bool:
        """Whether the one column has no object around it."""
        return len(self.columns) == 1 and not self.is_wrapped


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded payloads.

    Attributes:
        columns: by name, each with one value for each payload: null if there is none, or it cannot be read.
        is_absent: which payloads are None, or empty: a key that is null, a tombstone.
        faults: place of an unreadable payload → why.
    """

    columns: dict[str, pl.Series]
    is_absent: list[bool]
    faults: Mapping[int, str]


def decode(payloads: Sequence[Payload], layout: Layout) -> Decoded:
    """Read payloads. Only JSON that no type of a column accepts is a fault."""
    faults: dict[int, str] = {}
    is_exact = any(_is_exact(declared) for declared in layout.columns.types)
    decoder = json.JSONDecoder(parse_float=Decimal if is_exact else None, parse_constant=_refused)
    values = [_loaded(payload, place, faults, decoder) for place, payload in enumerate(payloads)]
    if layout.is_bare:
        is_absent = [payload is None for payload in payloads]
        ((name, declared),) = layout.columns.items()
        return Decoded({name: column_of(name, values, declared, faults)}, is_absent, faults)
    is_absent = [value is None and place not in faults for place, value in enumerate(values)]
    records = [_record(value, place, faults) for place, value in enumerate(values)]
    columns = {
        name: column_of(name, [field_of(record, name) for record in records], declared, faults)
        for name, declared in layout.columns.items()
    }
    return Decoded(columns, is_absent, faults)


def _loaded(payload: Payload, place: int, faults: dict[int, str], decoder: json.JSONDecoder) -> Any:
    """Do the work of ``json.loads``, which makes a new decoder for each text."""
    if payload is None:
        return None
    try:
        return decoder.decode(payload.decode(json.detect_encoding(payload), "surrogatepass"))
    except InvalidOperation:
        faults[place] = "it holds a number whose exponent no decimal has"
        return None
    except (ValueError, RecursionError) as error:
        faults[place] = f"no JSON: {error}"
        return None


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _record(value: Any, place: int, faults: dict[int, str]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if value is not None:
        faults.setdefault(
            place, f"{json_text(value)[:100]} is no object" if not isinstance(value, float) else f"{value} is no object"
        )
    return {}


def _is_exact(declared: ColumnType) -> bool:
    inside = (declared.element, declared.value, *(field for _, field in declared.fields))
    return declared.kind in _EXACT_KINDS or any(_is_exact(each) for each in inside if each is not None)


_CLEAN: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool}),
    "int": frozenset({int}),
    "bigint": frozenset({int}),
    "double": frozenset({float, int}),
    "string": frozenset({str}),
}
"""Python's types whose values Polars takes as they are."""


def column_of(name: str, values: Sequence[Any], declared: ColumnType, faults: dict[int, str]) -> pl.Series:
    """Return a column of values as JSON has them.

    Args:
        name: of the column.
        values: one for each record.
        declared: its type.
        faults: place of a record that cannot be read → why; added to.
    """
    clean = _CLEAN.get(declared.kind)
    if clean is not None and set(map(type, values)) <= clean | {type(None)}:
        try:
            return pl.Series(name, values, dtype=declared.polars)
        except (PolarsError, OverflowError, TypeError, UnicodeEncodeError):
            pass  # a number is too large, or half of a surrogate pair is in a text: below it is found out where
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

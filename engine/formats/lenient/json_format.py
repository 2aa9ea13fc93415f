"""Keys and values as JSON: an object of the columns, or a single bare column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from engine.definition.record_formats import JSON
from engine.expressions.types.types import ColumnType
from engine.formats.lenient.json_text import json_text
from engine.formats.lenient.lenient import Reader, field_of, or_null, reader
from engine.formats.lenient.model import Codec, Decoded, Layout, Payload, Unreadable
from engine.formats.lenient.plain_values import plain_column

_EXACT_KINDS = ("decimal", "string")
"""Kinds for which a number's digits count, not its double."""


def decode(payloads: Sequence[Payload], layout: Layout) -> Decoded:
    """Read payloads; see ``Codec``."""
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


def encode(frame: pl.DataFrame, layout: Layout) -> list[Payload]:
    """Write rows; see ``Codec``. A single bare null is no payload."""
    columns = [plain_column(frame.get_column(name), declared) for name, declared in layout.columns.items()]
    if layout.is_bare:
        return [None if value is None else json_text(value).encode() for value in columns[0]]
    names = [json_text(name) + ":" for name in layout.columns.names]
    rows = zip(*columns, strict=True) if columns else (() for _ in range(frame.height))
    return [
        ("{" + ",".join(name + json_text(value) for name, value in zip(names, row, strict=True)) + "}").encode() for row in rows
    ]


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


JSON_CODEC = Codec(JSON, decode, encode)


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

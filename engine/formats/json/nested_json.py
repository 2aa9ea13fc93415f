"""Nested values as JSON text, whole columns at a time: the same in records, rows and materialised tables. Pure.

Bytes are base64, timestamps RFC 3339 in UTC, decimals, dates and times text, maps objects. Values that JSON or a calendar cannot hold (NaN,
infinity, instants outside of the years 1 to 9999) are null, as in an expression: only an earlier version can have stored them,
and they must not stop a query.
"""

from __future__ import annotations

import json

import polars as pl

from engine.expressions.types.types import STRING, ColumnType
from engine.frames.nesting import KEY, VALUE, elements_of, lists_from
from engine.records.scalars import is_holdable

_US_PER_S = 1_000_000


def json_texts(values: pl.Series, declared: ColumnType) -> pl.Series:
    """Return each value as JSON text, null where it is null."""
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            inside = elements_of(values)
            return _joined("[", lists_from(_present(inside.values, element), inside.sizes, inside.is_null), "]")
        case ColumnType(kind="map", value=ColumnType() as inner):
            inside = elements_of(values)
            entries = _present(inside.values.struct.field(KEY), STRING) + ":" + _present(inside.values.struct.field(VALUE), inner)
            return _joined("{", lists_from(entries, inside.sizes, inside.is_null), "}")
        case ColumnType(kind="struct", fields=fields):
            return _object(values, fields)
        case _:
            return _scalar(values, declared.kind)


def encoded(values: pl.Series) -> pl.Series:
    """Return scalars as JSON text, null where they are null or not finite."""
    objects = pl.struct("v").struct.json_encode()
    return values.to_frame("v").select(objects.str.slice(len('{"v":')).str.head(-1)).to_series()


def _present(values: pl.Series, declared: ColumnType) -> pl.Series:
    return json_texts(values, declared).fill_null("null")


def _joined(opening: str, texts: pl.Series, closing: str) -> pl.Series:
    return opening + texts.list.join(",") + closing


def _object(values: pl.Series, fields: tuple[tuple[str, ColumnType], ...]) -> pl.Series:
    members = [json.dumps(name) + ":" + _present(values.struct.field(name), kind) for name, kind in fields]
    named = [member.alias(str(place)) for place, member in enumerate(members)]
    texts = pl.DataFrame(named).select(pl.concat_str(pl.all(), separator=",")).to_series()
    return ("{" + texts + "}").set(values.is_null(), None)


def _scalar(values: pl.Series, kind: str) -> pl.Series:
    if (holdable := is_holdable(values)) is not None and not holdable.all():
        values = values.set(~holdable, None)
    match kind:
        case "bytes":
            return '"' + values.bin.encode("base64") + '"'
        case "timestamp":
            whole, exact = (values.dt.strftime(f"%Y-%m-%dT%H:%M:%S{part}Z") for part in ("", "%.6f"))
            return '"' + whole.zip_with(values.to_physical() % _US_PER_S == 0, exact) + '"'
        case "time":
            whole, exact = (values.dt.strftime(f"%H:%M:%S{part}") for part in ("", "%.6f"))
            return '"' + whole.zip_with(values.dt.nanosecond() == 0, exact) + '"'
        case "date" | "decimal":
            return '"' + values.cast(pl.String) + '"'
        case "int" | "bigint" | "boolean":
            return values.cast(pl.String)
        case _:
            return encoded(values)

"""Records as JSON text, whole columns at a time. Pure.

Forms: timestamps RFC 3339 in UTC, bytes base64, maps objects; bigints and decimals are numbers of all their digits, or strings on request.
A double that JSON has no number for is a text, as in the rows that Postgres writes: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
"""

from __future__ import annotations

import json

import polars as pl

from engine.connectors.nested_json import encoded, json_texts
from engine.definition.types import ColumnType, Schema

OFFSET, EVENT_TIME, REPLAYED, OP = "$offset", "$event_time_ms", "$replayed", "$op"
_TIMESTAMP = "%Y-%m-%dT%H:%M:%S%.fZ"


def encode_records(frame: pl.DataFrame, columns: Schema, *, has_text_numbers: bool) -> list[str]:
    """Return one JSON object per row.

    Args:
        frame: canonical records: ``_offset``, ``_ts``, ``_op`` and the declared columns, perhaps ``$replayed``: shown where it is true. A
            record without a value has ``"$op": "delete"``.
        columns: the declared columns, in the order they appear in.
        has_text_numbers: write bigint and decimal as strings.
    """
    if frame.is_empty():
        return []
    members = [_member(OFFSET, frame["_offset"].cast(pl.String)), _member(EVENT_TIME, frame["_ts"].cast(pl.String))]
    if (frame["_op"] != 0).any():
        members.append(frame.select(pl.when(pl.col("_op") != 0).then(pl.lit(f'"{OP}":"delete"')).alias(OP)).to_series())
    if REPLAYED in frame.columns:
        members.append(frame.select(pl.when(REPLAYED).then(pl.lit(f'"{REPLAYED}":true')).alias(REPLAYED)).to_series())
    return _objects([*members, *_members(frame, columns, has_text_numbers=has_text_numbers)])


def encode_values(frame: pl.DataFrame, columns: Schema, *, has_text_numbers: bool) -> list[str]:
    """Return one JSON object per row, of these columns alone."""
    if not len(columns):
        return ["{}"] * frame.height
    return _objects(_members(frame, columns, has_text_numbers=has_text_numbers)) if frame.height else []


def _members(frame: pl.DataFrame, columns: Schema, *, has_text_numbers: bool) -> list[pl.Series]:
    return [
        _member(name, _values(frame[name], declared, has_text_numbers=has_text_numbers)) for name, declared in columns.items()
    ]


def _objects(members: list[pl.Series]) -> list[str]:
    joined = pl.DataFrame(members).select(pl.concat_str(pl.all(), separator=",", ignore_nulls=True)).to_series()
    return [f"{{{text}}}" for text in joined.to_list()]


def _member(name: str, values: pl.Series) -> pl.Series:
    """Put the name before each JSON value; null is null."""
    head = json.dumps(name) + ":"
    return values.to_frame("value").select((pl.lit(head) + pl.col("value").fill_null("null")).alias(name)).to_series()


def _values(values: pl.Series, declared: ColumnType, *, has_text_numbers: bool) -> pl.Series:
    """Return each value as JSON text, null where it is null."""
    match declared.kind:
        case "bigint" | "decimal":
            text = values.cast(pl.String)
            return '"' + text + '"' if has_text_numbers else text
        case "timestamp":
            return '"' + values.dt.to_string(_TIMESTAMP) + '"'
        case "bytes":
            return '"' + values.bin.encode("base64") + '"'
        case "array" | "map" | "struct":
            return json_texts(values, declared)
        case "double":
            return _doubles(values)
        case _:
            return encoded(values)


def _doubles(values: pl.Series) -> pl.Series:
    texts = encoded(values)
    if values.is_finite().all():
        return texts
    value = pl.col("value")
    odd = pl.when(value.is_nan()).then(pl.lit("NaN")).when(value > 0).then(pl.lit("Infinity")).otherwise(pl.lit("-Infinity"))
    shown = pl.when(value.is_finite()).then(pl.col("text")).when(value.is_not_null()).then('"' + odd + '"')
    return pl.DataFrame({"value": values, "text": texts}).select(shown.alias(values.name)).to_series()

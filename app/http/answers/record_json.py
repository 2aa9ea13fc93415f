"""Records as JSON text, whole columns at a time. Pure.

Forms: timestamps RFC 3339 in UTC, bytes base64, maps objects; bigints and decimals are numbers with all digits, or strings on request.
A double that JSON cannot express is a text, as in rows written by Postgres: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring

import polars as pl

from engine.expressions.types.types import ColumnType, Schema
from engine.formats.json.nested_json import encoded, json_texts

OFFSET, EVENT_TIME, REPLAYED, OP = "$offset", "$event_time_ms", "$replayed", "$op"
FEW_ROWS = 64
"""Up to this number, a query plan costs more than writing value by value (300 and 2 µs a row)."""

_TIMESTAMP = "%Y-%m-%dT%H:%M:%S%.fZ"


def encode_records(frame: pl.DataFrame, columns: Schema, *, has_text_numbers: bool) -> list[str]:
    """Return one JSON object per row.

    Args:
        frame: canonical records: ``_offset``, ``_ts``, ``_op`` and the declared columns, perhaps ``$replayed``, which is written if true. A
            record without a value has ``"$op": "delete"``.
        columns: the declared columns, in order.
        has_text_numbers: write bigint and decimal as strings.
    """
    if frame.is_empty():
        return []
    texts = {OFFSET: frame["_offset"].cast(pl.String), EVENT_TIME: frame["_ts"].cast(pl.String)}
    marks = {}
    if (frame["_op"] != 0).any():
        marks[OP] = frame.select(pl.when(pl.col("_op") != 0).then(pl.lit(f'"{OP}":"delete"'))).to_series()
    if REPLAYED in frame.columns:
        marks[REPLAYED] = frame.select(pl.when(REPLAYED).then(pl.lit(f'"{REPLAYED}":true'))).to_series()
    names = (*texts, *marks, *columns.names)
    return _objects({**texts, **_texts(frame, columns, has_text_numbers=has_text_numbers)}, [names], marks)[0]


def encode_values(frame: pl.DataFrame, columns: Schema, *, has_text_numbers: bool) -> list[str]:
    """Return one JSON object per row, with these columns alone."""
    return encode_keyed(frame, columns, (), has_text_numbers=has_text_numbers)[1]


def encode_keyed(
    frame: pl.DataFrame, columns: Schema, key: Sequence[str], *, has_text_numbers: bool
) -> tuple[list[str], list[str]]:
    """Return, for each row, one JSON object of the key's columns and one of all columns; each value is encoded once."""
    if frame.is_empty():
        return [], []
    if frame.height <= FEW_ROWS:
        return _few_keyed(frame, columns, key, has_text_numbers=has_text_numbers)
    keys, rows = _objects(_texts(frame, columns, has_text_numbers=has_text_numbers), [key, columns.names])
    return keys or ["{}"] * frame.height, rows or ["{}"] * frame.height


def _few_keyed(
    frame: pl.DataFrame, columns: Schema, key: Sequence[str], *, has_text_numbers: bool
) -> tuple[list[str], list[str]]:
    """Return the same without a query plan."""
    members = {}
    for name, declared in columns.items():
        begin = f"{json.dumps(name)}:"
        texts = _few_values(frame.get_column(name), declared, has_text_numbers=has_text_numbers)
        members[name] = [begin + text for text in texts]
    keys, rows = (
        [f"{{{','.join(row)}}}" for row in zip(*(members[name] for name in names), strict=True)] for names in (key, columns.names)
    )
    return keys or ["{}"] * frame.height, rows or ["{}"] * frame.height


def _few_values(values: pl.Series, declared: ColumnType, *, has_text_numbers: bool) -> list[str]:
    """Return each value as JSON text: numbers and texts one by one, other types as ``_values`` writes them."""
    match declared.kind:
        case "bigint" if has_text_numbers:
            return ["null" if value is None else f'"{value}"' for value in values.to_list()]
        case "int" | "bigint":
            return ["null" if value is None else str(value) for value in values.to_list()]
        case "string":
            return ["null" if value is None else encode_basestring(value) for value in values.to_list()]
        case "boolean":
            return ["null" if value is None else "true" if value else "false" for value in values.to_list()]
        case _:
            return [text or "null" for text in _values(values, declared, has_text_numbers=has_text_numbers).to_list()]


def _texts(frame: pl.DataFrame, columns: Schema, *, has_text_numbers: bool) -> dict[str, pl.Series]:
    return {name: _values(frame[name], declared, has_text_numbers=has_text_numbers) for name, declared in columns.items()}


def _objects(
    texts: Mapping[str, pl.Series], members_of_objects: Sequence[Sequence[str]], marks: Mapping[str, pl.Series] | None = None
) -> list[list[str]]:
    """Build objects, of all columns and all rows in one query plan.

    Args:
        texts: JSON values by name; null is null.
        members_of_objects: the members of each object of a row; an empty list yields no objects.
        marks: whole members by name, left out if null.
    """
    columns = [*texts.values(), *(marks or {}).values()]
    # Use indexes as column names, because a column's name may look like a pattern.
    members = {name: pl.col(str(place)) for place, name in enumerate((*texts, *(marks or {})))}
    members |= {name: pl.lit(json.dumps(name) + ":") + members[name].fill_null("null") for name in texts}
    joined = {
        str(place): pl.concat_str([members[name] for name in names], separator=",", ignore_nulls=True)
        for place, names in enumerate(members_of_objects)
        if names
    }
    built = pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)]).select(**joined)
    return [
        [f"{{{text}}}" for text in built.get_column(str(place)).to_list()] if names else []
        for place, names in enumerate(members_of_objects)
    ]


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

"""Rows as an Arrow IPC stream with the types of the table's columns. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from engine.expressions.types.types import ColumnType

METADATA_KEY = b"slackwater"
"""Key of the schema's metadata that has, as JSON, the other members of the JSON form."""

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
LEAVES: dict[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "bytes": base64.b64decode,
}
"""Types that a materialised nested value stores as text (``engine.formats.json.nested_json``)."""


def arrow_type(declared: ColumnType) -> pa.DataType:
    match declared:
        case ColumnType(kind="decimal", precision=int(precision), scale=scale):
            return pa.decimal128(precision, scale or 0)
        case ColumnType(kind="array", element=ColumnType() as element):
            return pa.list_(arrow_type(element))
        case ColumnType(kind="map", key=ColumnType() as key, value=ColumnType() as value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case ColumnType(kind="struct", fields=fields):
            return pa.struct([(name, arrow_type(field)) for name, field in fields])
        case _:
            return _TYPES[declared.kind]


def arrow_stream(
    columns: Sequence[tuple[str, ColumnType]], values: Sequence[Sequence[Any] | None], metadata: Mapping[str, Any]
) -> bytes:
    """Return an IPC stream of one batch.

    Args:
        columns: names and types.
        values: of each column; timestamps as microseconds since 1970, nested values as JSON texts; None for no rows.
        metadata: JSON-able; in the schema under ``slackwater``.
    """
    batch = arrow_batch(columns, values)
    schema = batch.schema.with_metadata({METADATA_KEY: json.dumps(dict(metadata), separators=(",", ":")).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.cast(schema))
    return bytes(sink.getvalue())


def arrow_batch(columns: Sequence[tuple[str, ColumnType]], values: Sequence[Sequence[Any] | None]) -> pa.RecordBatch:
    """Return columns as one Arrow batch; see ``arrow_stream``."""
    schema = pa.schema([pa.field(name, arrow_type(declared)) for name, declared in columns])
    arrays = [_array(column_values or [], declared) for column_values, (_, declared) in zip(values, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], declared: ColumnType) -> pa.Array:
    if declared.is_nested:
        parsed = [None if text is None else _value(json.loads(text), declared) for text in values]
        return pa.array(parsed, arrow_type(declared))
    if declared.kind == "timestamp":
        return pa.array(values, pa.int64()).cast(arrow_type(declared))
    return pa.array(values, arrow_type(declared))


def _value(value: Any, declared: ColumnType) -> Any:
    """Return a parsed JSON value in the form for Arrow."""
    if value is None:
        return None
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            return [_value(one, element) for one in value]
        case ColumnType(kind="map", value=ColumnType() as inner):
            return [(name, _value(one, inner)) for name, one in value.items()]
        case ColumnType(kind="struct", fields=fields):
            return {name: _value(value.get(name), field) for name, field in fields}
        case _:
            convert = LEAVES.get(declared.kind)
            return value if convert is None else convert(str(value))

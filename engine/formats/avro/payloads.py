"""Avro payloads read into Arrow: by ``pyruhvro`` as a batch, or by ``fastavro`` one by one if ``pyruhvro`` cannot read the schema.

Both libraries skip some checks, which are done here. Texts are UTF-8, numbers fit their type, an enumeration's value has a
symbol, and a payload ends where its value ends (a text is appended to each payload and must be read back).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from engine.formats.avro.schema import AvroSchema
from engine.formats.bisecting import UndecodablePayload
from engine.formats.shapes import MAX_AMPLIFIED_BYTES, Shape, arrow_type

_END: Final = b"\x0c~avro~"
"""A text of six characters in Avro's encoding."""

_END_TEXT: Final = "~avro~"
_INT: Final = (-(2**31), 2**31 - 1)


def read_payloads(schema: AvroSchema, payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Read payloads; a schema that is no record gives a column ``f0``.

    Raises:
        UndecodablePayload: one of them does not fit the schema; the libraries may raise other errors in this case.
    """
    check_growth(schema.shape, payloads)
    shape = schema.shape if schema.is_record else Shape("struct", fields=(("f0", schema.shape),))
    if not schema.is_quick:
        return _one_by_one(schema, shape, payloads)
    batch = pyruhvro.deserialize_array([payload + _END for payload in payloads], _wire_with_end(schema.wire))
    end = batch.column(batch.num_columns - 1)
    if pc.sum(pc.equal(end.view(pa.binary()), _END_TEXT.encode())).as_py() != len(payloads):
        raise UndecodablePayload("there are bytes behind the value: it was written with another schema")
    columns = [_of_wire(batch.column(place), inner) for place, (_, inner) in enumerate(shape.fields)]
    return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in shape.fields])


def empty_batch(schema: AvroSchema) -> pa.RecordBatch:
    """Return the result of reading no payloads."""
    fields = schema.shape.fields if schema.is_record else (("f0", schema.shape),)
    return pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field(name, arrow_type(inner)) for name, inner in fields]))


@lru_cache(maxsize=256)
def _wire_with_end(wire: str) -> str:
    """Append the text to the record's fields."""
    has_fields = not wire.endswith('"fields": []}')
    return wire[: -len("]}")] + (", " if has_fields else "") + '{"name": "end_", "type": "string"}]}'


def check_growth(shape: Shape, payloads: Sequence[bytes]) -> None:
    """Raise UndecodablePayload if a payload could expand beyond the bound in memory."""
    growth = shape.growth
    if growth and max(map(len, payloads), default=0) * growth > MAX_AMPLIFIED_BYTES:
        raise UndecodablePayload(
            f"the value could become more than {MAX_AMPLIFIED_BYTES:,} bytes in memory: its arrays or maps are too long"
        )


def _of_wire(array: pa.Array, shape: Shape) -> pa.Array:
    """Convert an array to ``arrow_type(shape)``."""
    kind = array.type
    if pa.types.is_union(kind):
        return _of_union(array, shape)
    match shape.kind:
        case "struct":
            inner = [_of_wire(array.field(place), each) for place, (_, each) in enumerate(shape.fields)]
            fields = [pa.field(name, each.type) for (name, _), each in zip(shape.fields, inner, strict=True)]
            return pa.StructArray.from_arrays(inner, fields=fields, mask=pc.is_null(array))
        case "array" if shape.element is not None:
            values = _of_wire(array.values, shape.element)
            return pa.ListArray.from_arrays(array.offsets, values, mask=_mask(array))
        case "map" if shape.element is not None:
            return _of_map(array, shape.element)
        case "fixed":
            return _of_fixed(array, shape)
        case "string":
            _check_text(array)
        case "bytes":
            return array.view(pa.binary())
        case "int":
            _check_range(array, *_INT, "a number does not fit into int")
        case "enum":
            _check_range(array, 0, len(shape.symbols) - 1, "an enumeration has no symbol of this number")
        case "double" if pa.types.is_float32(kind):
            return array.cast(pa.float64())
    return array


def _mask(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def _of_map(array: pa.Array, element: Shape) -> pa.Array:
    _check_text(array.keys)
    values = _of_wire(array.items, element)
    entries = pa.StructArray.from_arrays(
        [array.keys, values], fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", values.type)]
    )
    return pa.ListArray.from_arrays(array.offsets, entries, mask=_mask(array))


def _of_union(array: pa.Array, shape: Shape) -> pa.Array:
    """Make a struct of a union of several members: one of its fields has the value. A union of one member is its value."""
    codes = array.type_codes
    if shape.kind != "union":
        return _of_wire(array.field(0), shape)
    members = [number for number in range(array.type.num_fields) if not pa.types.is_null(array.field(number).type)]
    fields = []
    for number, (_, inner) in zip(members, shape.fields, strict=True):
        is_it = pc.equal(codes, pa.scalar(array.type.type_codes[number], pa.int8()))
        chosen = array.field(number).filter(is_it)
        taken = _of_wire(chosen, inner)
        places = pc.if_else(is_it, pc.subtract(pc.cumulative_sum(is_it.cast(pa.int64())), 1), pa.scalar(None, pa.int64()))
        fields.append(taken.take(places))
    is_null = pc.and_(pc.invert(pa.array(np.zeros(len(array), bool))), pa.array(np.ones(len(array), bool)))
    for each in fields:
        is_null = pc.and_(is_null, pc.is_null(each))
    if len(members) == array.type.num_fields:  # no null among the members
        is_null = pa.array(np.zeros(len(array), bool))
    return pa.StructArray.from_arrays(fields, names=[name for name, _ in shape.fields], mask=is_null)


def _of_fixed(array: pa.Array, shape: Shape) -> pa.Array:
    """Join fixed bytes that were read as floats and doubles, bit for bit."""
    rows = len(array)
    parts = []
    for place in range(array.type.num_fields):
        part = array.field(place)
        width = part.type.bit_width // 8
        held = np.frombuffer(part.buffers()[1], np.uint8)[part.offset * width : (part.offset + rows) * width]
        parts.append(held.reshape(rows, width))
    data = np.ascontiguousarray(np.concatenate(parts, axis=1)) if parts else np.empty((rows, 0), np.uint8)
    whole = pa.Array.from_buffers(pa.binary(shape.size), rows, [None, pa.py_buffer(data)])
    return pc.if_else(pc.is_valid(array), whole.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _check_text(array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UndecodablePayload(f"a text is not UTF-8: {str(error)[:100]}") from error


def _check_range(array: pa.Array, least: int, most: int, fault: str) -> None:
    bounds = pc.min_max(array)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < least or high > most):
        raise UndecodablePayload(fault)


def _one_by_one(schema: AvroSchema, shape: Shape, payloads: Sequence[bytes]) -> pa.RecordBatch:
    rows = []
    for payload in payloads:
        stream = io.BytesIO(payload)
        value = fastavro.schemaless_reader(stream, schema.plain, None)
        if stream.tell() != len(payload):
            raise UndecodablePayload("there are bytes behind the value: it was written with another schema")
        rows.append(value)
    renamed = _renaming(shape)
    batch = pa.RecordBatch.from_pylist(
        [renamed(row) for row in rows], schema=pa.schema([pa.field(n, arrow_type(s)) for n, s in shape.fields])
    )
    for column, (_, inner) in zip(batch.columns, shape.fields, strict=True):
        _check_values(column, inner)
    return batch


def _check_values(array: pa.Array, shape: Shape) -> None:
    """Check numbers that were read one by one as ``_of_wire`` does."""
    match shape.kind:
        case "int":
            _check_range(array, *_INT, "a number does not fit into int")
        case "enum":
            _check_range(array, 0, len(shape.symbols) - 1, "an enumeration has no symbol of this number")
        case "struct":
            for place, (_, inner) in enumerate(shape.fields):
                _check_values(array.field(place), inner)
        case "array" if shape.element is not None:
            _check_values(array.values, shape.element)
        case "map" if shape.element is not None:
            _check_values(array.values.field("value"), shape.element)


def _renaming(shape: Shape) -> Callable[[Any], Any]:
    """Return a function that restores the names of records' fields: the plain schema has numbered ones."""
    match shape.kind:
        case "struct":
            fields = [(f"f{place}", name, _renaming(inner)) for place, (name, inner) in enumerate(shape.fields)]
            return lambda value: None if value is None else {name: rename(value[old]) for old, name, rename in fields}
        case "array" if shape.element is not None:
            inside = _renaming(shape.element)
            return lambda value: None if value is None else [inside(each) for each in value]
        case "map" if shape.element is not None:
            inside = _renaming(shape.element)
            return lambda value: None if value is None else [{"key": key, "value": inside(each)} for key, each in value.items()]
    return lambda value: value

"""Messages read into Arrow by ``ptars``, a batch at a time.

This module adds what ``ptars`` lacks: of a choice (``oneof``) the last written member counts, required fields of proto2 must exist, and
absent ones have their default. ``ptars`` follows nested groups of unknown fields until the stack ends. So a message long enough for
that first goes through Google's own library, which stops at a depth of a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from ptars import HandlerPool, PtarsConfig

from engine.formats.bisecting import UndecodablePayload
from engine.formats.protobuf.schema import Member, MessageSchema
from engine.formats.shapes import MAX_AMPLIFIED_BYTES, arrow_type

_LONG_BYTES: Final = 16 << 10
"""Groups nested a hundred thousand deep end the process; this many bytes hold at most sixteen thousand."""


class MessageReader:
    """Reads messages of one schema."""

    def __init__(self, schema: MessageSchema) -> None:
        self._schema = schema
        self._names = [name for name, _ in schema.shape.fields]

    @cached_property
    def _handler(self) -> Any:
        config = PtarsConfig(list_value_nullable=True, map_value_nullable=True)
        return HandlerPool([self._schema.descriptor.file], config).get_for_message(self._schema.descriptor)

    def read(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        """Read payloads.

        Raises:
            UndecodablePayload: one of them is no such message; the library may raise other errors in this case.
        """
        growth = self._schema.shape.growth
        longest = max(map(len, payloads), default=0)
        if longest * growth > MAX_AMPLIFIED_BYTES:
            raise UndecodablePayload(
                f"the message could become more than {MAX_AMPLIFIED_BYTES:,} bytes in memory: its lists are too long"
            )
        if longest > _LONG_BYTES:
            payloads = [self._rewritten(payload) if len(payload) > _LONG_BYTES else payload for payload in payloads]
        if not self._names:
            return self._checked_only(payloads)
        batch = self._parsed(payloads)
        if _has_several_of_a_choice(batch.columns, self._schema.members):
            batch = self._parsed([self._rewritten(payload) for payload in payloads])
        columns = [_of_wire(column, member) for column, member in zip(batch.columns, self._schema.members, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=self._names)

    def empty(self) -> pa.RecordBatch:
        """Return the result of reading no payloads."""
        return pa.RecordBatch.from_pylist(
            [], schema=pa.schema([pa.field(n, arrow_type(s)) for n, s in self._schema.shape.fields])
        )

    def _parsed(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        return self._handler.array_to_record_batch(pa.array(payloads, pa.binary()))

    def _rewritten(self, payload: bytes) -> bytes:
        """Read and write a message by Google's own library, which keeps the last member of a choice."""
        try:
            return bytes(self._schema.message.FromString(payload).SerializeToString())
        except DecodeError as error:
            raise UndecodablePayload(str(error)[:200]) from error

    def _checked_only(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        for payload in payloads:
            self._rewritten(payload)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(payloads), pa.struct([])))


def _has_several_of_a_choice(columns: Sequence[pa.Array], members: Sequence[Member]) -> bool:
    """Whether two members of one choice exist, at any depth."""
    chosen: dict[int, pa.Array] = {}
    for column, member in zip(columns, members, strict=True):
        if member.choice is not None:
            there = pc.is_valid(column)
            before = chosen.get(member.choice)
            if before is not None and pc.any(pc.and_(before, there)).as_py():
                return True
            chosen[member.choice] = there if before is None else pc.or_(before, there)
        if member.inner and _is_ambiguous_inside(column, member):
            return True
    return False


def _is_ambiguous_inside(column: pa.Array, member: Member) -> bool:
    if pa.types.is_struct(column.type):
        return _has_several_of_a_choice([column.field(place) for place in range(column.type.num_fields)], member.inner)
    values = column.items if pa.types.is_map(column.type) else column.values
    return bool(member.inner[0].inner) and _is_ambiguous_inside(values, member.inner[0])


def _of_wire(array: pa.Array, member: Member, parent: pa.Array | None = None) -> pa.Array:
    """Convert an array to its shape. ``parent``: where the enclosing message exists; None: everywhere."""
    if member.is_required and _is_missing(array, parent):
        raise UndecodablePayload("a required field is missing")
    if member.is_wrapped:
        value = array.field(0)
        return pc.if_else(pc.is_valid(array), value, pa.scalar(None, value.type))
    shape = member.shape
    if shape.kind == "struct":
        valid = pc.is_valid(array)
        inner = [_of_wire(array.field(place), each, valid) for place, each in enumerate(member.inner)]
        fields = [pa.field(name, each.type) for (name, _), each in zip(shape.fields, inner, strict=True)]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=pc.invert(valid))
    if shape.kind == "array":
        return pa.ListArray.from_arrays(array.offsets, _of_wire(array.values, member.inner[0]), mask=_mask(array))
    if shape.kind == "map":
        keys, values = array.keys.cast(pa.string()), _of_wire(array.items, member.inner[0])
        entry = [pa.field("key", pa.string(), nullable=False), pa.field("value", values.type)]
        entries = pa.StructArray.from_arrays([keys, values], fields=entry)
        return pa.ListArray.from_arrays(array.offsets, entries, mask=_mask(array))
    if member.default is not None:
        array = pc.fill_null(array, pa.scalar(member.default, array.type))
    return array


def _is_missing(array: pa.Array, parent: pa.Array | None) -> bool:
    missing = pc.is_null(array)
    return bool(pc.any(missing if parent is None else pc.and_(missing, parent)).as_py())


def _mask(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None

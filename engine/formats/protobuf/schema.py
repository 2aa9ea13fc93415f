"""Messages of Protocol Buffers converted to a ``Shape``, and written again for the library that reads payloads.

``ptars`` reads a message into Arrow, quickly. It gets a *wire* message with the same numbers and wire types, and only the needed fields.
In it an enumeration is a number, and a timestamp or a wrapper a plain message (the library would convert these without a range check).
Optional fields are marked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from engine.formats.shapes import MAX_DEPTH, MAX_SHAPES, SchemaNotRead, Shape

_KINDS: Final = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "double",
    FieldDescriptor.TYPE_INT64: "bigint",
    FieldDescriptor.TYPE_UINT64: "bigint",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_FIXED64: "bigint",
    FieldDescriptor.TYPE_FIXED32: "bigint",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_UINT32: "bigint",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_SFIXED64: "bigint",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SINT64: "bigint",
    FieldDescriptor.TYPE_ENUM: "enum",
}
_MEANINGS: Final = {"google.protobuf.Timestamp": "timestamp_ns", "google.protobuf.Duration": "duration"}
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_PACKAGE: Final = "w"


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a wire message.

    Attributes:
        shape: of its value.
        is_wrapped: the value is in a separate message, which may be absent.
        is_required: of proto2: a message without it is damaged.
        default: of proto2, if the field is absent.
        choice: number of its ``oneof``, None: of none.
        inner: of a message, its members; of an array or map, those of its elements.
    """

    shape: Shape
    is_wrapped: bool = False
    is_required: bool = False
    default: Any = None
    choice: int | None = None
    inner: tuple[Member, ...] = ()


@dataclass(frozen=True)
class MessageSchema:
    """A message that can be read.

    Attributes:
        shape: a struct of the needed fields.
        members: of these.
        file: the wire message's file; the message is its first.
    """

    shape: Shape
    members: tuple[Member, ...]
    file: FileDescriptorProto

    @cached_property
    def descriptor(self) -> Descriptor:
        """The wire message's."""
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self.file)
        return pool.FindMessageTypeByName(f"{_PACKAGE}.M0")

    @cached_property
    def message(self) -> Any:
        """The wire message's class, of Google's own library."""
        return message_factory.GetMessageClass(self.descriptor)


def message_of(files: FileDescriptorSet, name: str = "", path: tuple[int, ...] = (0,)) -> Descriptor:
    """Return a message of the last file: by its full name, else by its index at each level, from the outside in.

    Raises:
        SchemaNotRead: there is none.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        if name:
            return pool.FindMessageTypeByName(name)
        main = pool.FindFileByName(files.file[-1].name)
        found = list(main.message_types_by_name.values())[path[0]]
        for place in path[1:]:
            found = list(found.nested_types)[place]
    except (KeyError, IndexError, TypeError) as error:
        raise SchemaNotRead(f"the schema has no message {name or list(path)}: {error}") from None
    return found


def parse_message(message: Descriptor, wanted: frozenset[str] | None = None) -> MessageSchema:
    """Return the schema for reading a message.

    Args:
        message: see ``message_of``.
        wanted: names of the fields to read; None: all readable ones.

    Raises:
        SchemaNotRead: a needed field contains itself, is a group, or is too large.
    """
    file = FileDescriptorProto(name="wire.proto", package=_PACKAGE, syntax="proto3")
    members = _Writing(file).message(message, (), wanted)
    fields = [field.name for field in message.fields if wanted is None or field.name in wanted]
    shape = Shape("struct", fields=tuple((name, member.shape) for name, member in zip(fields, members, strict=True)))
    return MessageSchema(shape, tuple(members), file)


class _Writing:
    """Writes wire messages, a separate one for each use of a message."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._count = 0

    def message(self, message: Descriptor, path: tuple[str, ...], wanted: frozenset[str] | None = None) -> list[Member]:
        """Write a message; return its members."""
        if message.full_name in path:
            raise SchemaNotRead(f"the message {message.full_name} holds itself, which no column can")
        if len(path) > MAX_DEPTH or self._count > MAX_SHAPES:
            raise SchemaNotRead(f"the message is nested deeper than {MAX_DEPTH}, or has more than {MAX_SHAPES:,} values in one")
        wire = self._file.message_type.add(name=f"M{len(self._file.message_type)}")
        members: list[Member] = []
        for choice in message.oneofs:  # real choices come before those of optional fields
            if len(choice.fields) > 1:
                wire.oneof_decl.add(name=f"c{len(wire.oneof_decl)}")
        for field in message.fields:
            if wanted is None or field.name in wanted:
                self._count += 1
                members.append(self._field(wire, field, (*path, message.full_name)))
        return members

    def _field(self, wire: DescriptorProto, field: FieldDescriptor, path: tuple[str, ...]) -> Member:
        if field.type == FieldDescriptor.TYPE_GROUP:
            raise SchemaNotRead(f"the field {field.name!r} is a group, which is not read")
        if field.is_repeated:
            return self._repeated(wire, field, path)
        written = wire.field.add(name=f"f{field.number}", number=field.number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        member = self._value(written, field, path)
        choice = _choice(field)
        if choice is None and (field.type == FieldDescriptor.TYPE_MESSAGE or not field.has_presence):
            return member
        if choice is None:
            written.proto3_optional = True
            written.oneof_index = len(wire.oneof_decl)
            wire.oneof_decl.add(name=f"_f{field.number}")
        else:
            written.oneof_index = choice
        return replace(
            member, shape=_optional(member.shape), is_required=field.is_required, default=_default(field), choice=choice
        )

    def _value(self, written: FieldDescriptorProto, field: FieldDescriptor, path: tuple[str, ...]) -> Member:
        """Write a field's type; return the member without the field's own properties."""
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            is_enum = field.type == FieldDescriptor.TYPE_ENUM
            written.type = FieldDescriptorProto.TYPE_INT32 if is_enum else field.type
            return Member(_scalar(field))
        name = field.message_type.full_name
        place = len(self._file.message_type)
        inner = tuple(self.message(field.message_type, path))
        written.type = FieldDescriptorProto.TYPE_MESSAGE
        written.type_name = f".{_PACKAGE}.M{place}"
        if name in _WRAPPERS:
            return Member(_optional(inner[0].shape), is_wrapped=True, inner=inner)
        fields = tuple((each.name, member.shape) for each, member in zip(field.message_type.fields, inner, strict=True))
        return Member(Shape("struct", _MEANINGS.get(name, "plain"), fields=fields, is_optional=True), inner=inner)  # type: ignore[arg-type]

    def _repeated(self, wire: DescriptorProto, field: FieldDescriptor, path: tuple[str, ...]) -> Member:
        written = wire.field.add(name=f"f{field.number}", number=field.number, label=FieldDescriptorProto.LABEL_REPEATED)
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if not is_map:
            element = self._value(written, field, path)
            return Member(Shape("array", element=element.shape), inner=(element,))
        key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        entry = wire.nested_type.add(name=f"F{field.number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key.type, label=FieldDescriptorProto.LABEL_OPTIONAL)
        element = self._value(entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL), value, path)
        written.type = FieldDescriptorProto.TYPE_MESSAGE
        written.type_name = f".{_PACKAGE}.{wire.name}.{entry.name}"
        return Member(Shape("map", element=element.shape), inner=(element,))


def _scalar(field: FieldDescriptor) -> Shape:
    if field.type != FieldDescriptor.TYPE_ENUM:
        return Shape(_KINDS[field.type])  # type: ignore[arg-type]
    values = field.enum_type.values
    return Shape("enum", symbols=tuple(value.name for value in values), numbers=tuple(value.number for value in values))


def _choice(field: FieldDescriptor) -> int | None:
    """Return the index of a field's choice among those of several members; a choice of one is an optional field."""
    if field.containing_oneof is None or len(field.containing_oneof.fields) < 2:
        return None
    choices = [each for each in field.containing_type.oneofs if len(each.fields) > 1]
    return [each.name for each in choices].index(field.containing_oneof.name)


def _optional(shape: Shape) -> Shape:
    return replace(shape, is_optional=True)


def _default(field: FieldDescriptor) -> Any:
    return field.default_value if field.has_default_value and not field.is_required else None

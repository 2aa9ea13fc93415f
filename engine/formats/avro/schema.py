"""Avro schemas: parsed within bounds, converted to a ``Shape``, and written again for the library that reads payloads.

``pyruhvro`` reads a part of Avro, quickly. Each type that it does not know has the same bytes as a type that it knows. Bytes look like texts,
a number with a logical type like a number, an enumeration's value like the number of its symbol, and 4 or 8 fixed bytes like a float or
double. So the *wire* schema has these types instead, with names that are always valid and unique. The shape keeps the values' meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import fastavro

from engine.formats.avro.meanings import meaning_of
from engine.formats.shapes import MAX_DEPTH, MAX_SHAPES, SchemaNotRead, Shape

MAX_SCHEMA_BYTES: Final = 512 << 10
"""Bound of one schema's text. Those of Debezium for wide tables have about 100 KiB."""

_NUMBERS: Final = {"int": "int", "long": "bigint", "float": "double", "double": "double", "boolean": "boolean"}
_PLAIN: Final = {*_NUMBERS, "null", "string", "bytes"}
_NAMED: Final = ("record", "error", "enum", "fixed")
_MAX_FIXED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that can be read.

    Attributes:
        shape: of its values; a struct if it is a record.
        wire: the schema for ``pyruhvro``, always a record. Empty if the library cannot read it (see ``is_quick``).
        plain: if it is not quick, the schema without logical types as parsed by ``fastavro``.
    """

    shape: Shape
    wire: str
    plain: Any = field(hash=False, compare=False)

    @property
    def is_record(self) -> bool:
        return self.shape.kind == "struct"

    @property
    def is_quick(self) -> bool:
        """Whether the vectorised library reads it: all but fixed bytes whose number is no multiple of four."""
        return bool(self.wire)


def parse_schema(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema.

    Args:
        text: JSON.
        references: schemas whose names it uses, each after those that it uses itself.

    Raises:
        SchemaNotRead: it is no schema, refers to itself, or is too large; the text says which.
    """
    reading = _Reading()
    for reference in references:
        reading.learn(_loaded(reference))
    shape, wire, plain = reading.read(_loaded(text), "", 0)
    if shape.kind != "struct":
        wire = {"type": "record", "name": "root", "fields": [{"name": "f0", "type": wire}]}
        plain = {"type": "record", "name": "root", "fields": [{"name": "f0", "type": plain}]}
    if not reading.is_quick and shape.has_union:
        raise SchemaNotRead(
            "a union of several members stands beside fixed bytes whose number is no multiple of four, beside a record without fields, or has "
            "two members that are written alike; send such values as text or bytes"
        )
    if reading.is_quick:
        return AvroSchema(shape, json.dumps(wire), None)
    return AvroSchema(shape, "", fastavro.parse_schema(plain))


def _loaded(text: str) -> Any:
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaNotRead(f"the schema has more than {MAX_SCHEMA_BYTES:,} characters")
    try:
        return json.loads(text)
    except RecursionError:
        raise SchemaNotRead("the schema is nested too deeply") from None
    except ValueError as error:
        if text.strip() in _PLAIN:  # a registry may answer with the bare name
            return text.strip()
        raise SchemaNotRead(f"the schema is not JSON: {error}") from None


class _Reading:
    """One walk through a schema: the names so far, and the enclosing types."""

    def __init__(self) -> None:
        self.is_quick = True
        self._named: dict[str, tuple[Any, str]] = {}
        self._open: list[str] = []
        self._count = 0
        self._enums: dict[str, Shape] = {}

    def learn(self, schema: Any) -> None:
        """Record the names of a referenced schema. It is read at its use."""
        self._collect(schema, "", 0)

    def read(self, schema: Any, space: str, depth: int) -> tuple[Shape, Any, Any]:
        """Return the shape, the wire schema and the plain one."""
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_SHAPES:
            raise SchemaNotRead(f"the schema is nested deeper than {MAX_DEPTH}, or has more than {MAX_SHAPES:,} values in one")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            return self._word(schema, {}, space, depth)
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaNotRead(f"{json.dumps(schema)[:100]} is no Avro type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, space, depth + 1)
        if kind in _NAMED:
            return self._of_name(schema, space, depth)
        if kind == "array":
            shape, wire, plain = self._counted(schema, "items", space, depth)
            return Shape("array", element=shape), {"type": "array", "items": wire}, {"type": "array", "items": plain}
        if kind == "map":
            shape, wire, plain = self._counted(schema, "values", space, depth, least=1)
            return Shape("map", element=shape), {"type": "map", "values": wire}, {"type": "map", "values": plain}
        return self._word(kind, schema, space, depth)

    def _word(self, word: str, schema: dict[str, Any], space: str, depth: int) -> tuple[Shape, Any, Any]:
        if word in _NUMBERS:
            shape = meaning_of(Shape(_NUMBERS[word]), schema)  # type: ignore[arg-type]  # values of that table are kinds
            return shape, "long" if word == "int" else word, "long" if word == "int" else word
        if word in ("string", "bytes"):
            return meaning_of(Shape(word), schema), "string", word  # type: ignore[arg-type]  # likewise
        if word == "null":
            return Shape("null"), "null", "null"
        full = _full_name(word, space)
        found = full if full in self._named else word
        if found in self._open:
            raise SchemaNotRead(
                f"the type {found!r} holds itself, which no column can; send what is inside of it as text or bytes"
            )
        if found not in self._named:
            raise SchemaNotRead(f"the type {word!r} is not declared, neither in the schema nor in what it refers to")
        declared, inside = self._named[found]
        return self._of_name(declared, inside, depth)

    def _of_name(self, schema: dict[str, Any], space: str, depth: int) -> tuple[Shape, Any, Any]:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaNotRead(f"a type {schema['type']!r} has no name")
        given = schema.get("namespace")
        full = _full_name(name, given if isinstance(given, str) else space)
        self._named[full] = (schema, space)
        if schema["type"] == "enum":
            if full not in self._enums:  # one list of symbols for all uses
                self._enums[full] = self._enum(schema)
            return self._enums[full], "long", "long"
        if schema["type"] == "fixed":
            return self._fixed(schema)
        if full in self._open:
            raise SchemaNotRead(
                f"the record {full!r} holds itself, which no column can; send what is inside of it as text or bytes"
            )
        self._open.append(full)
        read = self._record(schema, full.rpartition(".")[0], depth)
        self._open.pop()
        return read

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> tuple[Shape, Any, Any]:
        given = schema.get("fields")
        if not isinstance(given, list) or not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in given):
            raise SchemaNotRead(f"the fields of record {schema.get('name')!r} are no list of objects with names")
        if not given:
            self.is_quick = False
        shapes, wires, plains = [], [], []
        own = f"r{self._count}"
        for place, each in enumerate(given):
            shape, wire, plain = self.read(each.get("type"), space, depth + 1)
            shapes.append((each["name"], shape))
            wires.append({"name": f"f{place}", "type": wire})
            plains.append({"name": f"f{place}", "type": plain})
        if len(dict(shapes)) < len(shapes):
            raise SchemaNotRead(f"record {schema.get('name')!r} has two fields of one name")
        wire_record = {"type": "record", "name": own, "fields": wires}
        return Shape("struct", fields=tuple(shapes)), wire_record, {"type": "record", "name": own, "fields": plains}

    def _enum(self, schema: dict[str, Any]) -> Shape:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(each, str) for each in symbols):
            raise SchemaNotRead(f"the symbols of enum {schema.get('name')!r} are no list of texts")
        return Shape("enum", symbols=tuple(symbols))

    def _fixed(self, schema: dict[str, Any]) -> tuple[Shape, Any, Any]:
        size = schema.get("size")
        if type(size) is not int or not 0 < size <= _MAX_FIXED:
            raise SchemaNotRead(f"the size of fixed {schema.get('name')!r} is not 1 to {_MAX_FIXED:,}")
        name = f"x{self._count}"
        shape = meaning_of(Shape("fixed", size=size), schema)
        plain = {"type": "fixed", "name": name, "size": size}
        if size % 4 or size > 4 * MAX_DEPTH:
            self.is_quick = False
            return shape, plain, plain
        parts = ["double"] * (size // 8) + ["float"] * (size % 8 // 4)
        wire = {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": part} for i, part in enumerate(parts)]}
        return shape, wire, plain

    def _counted(self, schema: dict[str, Any], what: str, space: str, depth: int, least: int = 0) -> tuple[Shape, Any, Any]:
        read = self.read(schema.get(what), space, depth + 1)
        if _least_bytes(read[0]) + least == 0:
            # Ten bytes could announce 2^62 elements.
            raise SchemaNotRead(
                "an array holds values that take no bytes (null, or a record of nothing else); that cannot be read within bounds"
            )
        return read

    def _union(self, members: list[Any], space: str, depth: int) -> tuple[Shape, Any, Any]:
        read = [self.read(member, space, depth + 1) for member in members]
        if not read or any(isinstance(member, list) for member in members):
            raise SchemaNotRead("a union has no members, or holds a union")
        wires, plains = [wire for _, wire, _ in read], [plain for _, _, plain in read]
        present = [(member, shape) for member, (shape, _, _) in zip(members, read, strict=True) if shape.kind != "null"]
        is_optional = len(present) < len(read)
        if len(read) - len(present) > 1:
            raise SchemaNotRead("a union holds null twice")
        if not present:
            return Shape("null"), "null", plains
        if len(present) == 1:
            return replace(present[0][1], is_optional=is_optional), wires, plains
        if len({json.dumps(each) for each in plains}) < len(plains):
            self.is_quick = False  # two members with the same wire type: int and long
        fields = tuple((_member_name(member), shape) for member, shape in present)
        if len(dict(fields)) < len(fields):
            raise SchemaNotRead("a union has two members of one name")
        return Shape("union", fields=fields, is_optional=is_optional), wires, plains

    def _collect(self, schema: Any, space: str, depth: int) -> None:
        """Record the names that a schema declares, at any depth."""
        if depth > MAX_DEPTH * 2:
            raise SchemaNotRead("a referenced schema is nested too deeply")
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, space, depth + 1)
        if not isinstance(schema, dict):
            return
        if schema.get("type") in _NAMED and isinstance(schema.get("name"), str):
            given = schema.get("namespace")
            full = _full_name(schema["name"], given if isinstance(given, str) else space)
            self._named[full] = (schema, space)
            space = full.rpartition(".")[0]
        for inner in (schema.get("type"), schema.get("items"), schema.get("values")):
            self._collect(inner, space, depth + 1)
        for each in schema.get("fields") or ():
            if isinstance(each, dict):
                self._collect(each.get("type"), space, depth + 1)


def full_name_of(text: str) -> str:
    """Return the name of a schema with its namespace, which may name subjects; empty: it has none."""
    try:
        schema = _loaded(text)
    except SchemaNotRead:
        return ""
    name, space = (schema.get("name"), schema.get("namespace")) if isinstance(schema, dict) else (None, None)
    return _full_name(name, space if isinstance(space, str) else "") if isinstance(name, str) else ""


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _member_name(member: Any) -> str:
    """Name a member as Kafka Connect names its field: by its type, or by the type's own name."""
    if isinstance(member, str):
        return member.rpartition(".")[2]
    return str(member.get("name") or member["type"]).rpartition(".")[2]


def _least_bytes(shape: Shape) -> int:
    """Return the least size of a value."""
    if shape.is_optional or shape.kind not in ("null", "struct"):
        return 1
    return sum(_least_bytes(inner) for _, inner in shape.fields)

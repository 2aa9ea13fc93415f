"""The shape of a value in an Avro or Protocol Buffers schema: its form in Arrow, its meaning, and the column that fits it.

A *shape* is a tree without names of its own and without references, so it is finite: schemas that refer to themselves have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from engine.expressions.types.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, STRING, TIME, TIMESTAMP, ColumnType, decimal

Meaning = Literal["plain", "decimal", "uuid", "date", "time_ms", "time_us", "time_ns", "timestamp_ms", "timestamp_us", "timestamp_ns",
                  "instant_text", "day_time", "duration"]  # fmt: skip
"""The meaning of a number or bytes. ``duration`` and ``timestamp_*`` of structs ``{seconds, nanos}`` are those of Protocol Buffers."""

MAX_SHAPES: Final = 10_000
"""The most values inside one value of a schema: a few records that contain each other twice would be millions."""

MAX_DEPTH: Final = 32
"""No useful schema is deeper; code that walks through one is recursive."""

MAX_AMPLIFIED_BYTES: Final = 1 << 30
"""The most memory for a payload. An element of one byte, a null, may stand for a struct of many fields."""

_BYTES_OF_A_PLACE: Final = 8


class SchemaNotRead(ValueError):
    """A schema is damaged or not supported. The text names the fault and says what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A value's form.

    Attributes:
        kind: of the value in Arrow; ``union``: of several members, as a struct with a field for each.
        meaning: see ``Meaning``.
        precision: digits of a decimal; 0 if the schema does not say.
        scale: its digits after the point.
        element: of an array; a map's values.
        fields: of a struct, or of a union's members, by name.
        symbols: names of an enumeration's values.
        numbers: the values themselves; empty: they are the places of the names.
        is_optional: may be null.
        size: of bytes of a fixed size.
    """

    kind: Literal[
        "null", "boolean", "int", "bigint", "double", "string", "bytes", "fixed", "enum", "array", "map", "struct", "union"
    ]
    meaning: Meaning = "plain"
    precision: int = 0
    scale: int = 0
    element: Shape | None = None
    fields: tuple[tuple[str, Shape], ...] = ()
    symbols: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    is_optional: bool = False
    size: int = 0

    @property
    def inner(self) -> Iterator[Shape]:
        """The shapes directly inside."""
        if self.element is not None:
            yield self.element
        yield from (shape for _, shape in self.fields)

    @property
    def places(self) -> int:
        """How many values take memory for one value, null or not."""
        return 1 + sum(shape.places for _, shape in self.fields)

    @property
    def growth(self) -> int:
        """The most bytes in memory from one byte of a payload: the size of an element or entry of a single byte."""
        own = 0 if self.element is None else self.element.places * _BYTES_OF_A_PLACE
        return max([own, *(shape.growth for shape in self.inner)])

    @property
    def has_union(self) -> bool:
        """Whether it is a union of several members, or contains one."""
        return self.kind == "union" or any(shape.has_union for shape in self.inner)

    def column_type(self) -> ColumnType | None:
        """Return the type that fits, None if no column can hold it (a null alone, a struct without fields)."""
        match self.kind:
            case "array" | "map" if self.element is not None:
                inner = self.element.column_type()
                if inner is None:
                    return None
                return ColumnType("array", element=inner) if self.kind == "array" else ColumnType("map", key=STRING, value=inner)
            case "struct" | "union" if self.meaning == "plain":
                fields = [(name, shape.column_type()) for name, shape in self.fields]
                held = tuple((name, declared) for name, declared in fields if declared is not None)
                return ColumnType("struct", fields=held) if held else None
        return self._scalar_type()

    def _scalar_type(self) -> ColumnType | None:
        if self.meaning == "decimal":
            return decimal(min(self.precision or 38, 38), min(self.scale, self.precision or 38, 38))
        if self.meaning != "plain":
            return _MEANT[self.meaning]
        return _PLAIN.get(self.kind)


_PLAIN: Final = {
    "boolean": BOOLEAN,
    "int": INT,
    "bigint": BIGINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "fixed": BYTES,
    "enum": STRING,
}
_MEANT: Final[dict[str, ColumnType]] = {
    "uuid": STRING,
    "date": DATE,
    "day_time": TIME,
    "time_ms": TIME,
    "time_us": TIME,
    "time_ns": TIME,
    "timestamp_ms": TIMESTAMP,
    "timestamp_us": TIMESTAMP,
    "timestamp_ns": TIMESTAMP,
    "instant_text": TIMESTAMP,
    "duration": BIGINT,
}

ARROW_LEAVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.int64(),
    "null": pa.null(),
}
"""Arrow types of values as read, before ``converted``: whole numbers have 64 bits, so that one beyond 32 is noticed."""


def arrow_type(shape: Shape) -> pa.DataType:
    """Return the Arrow type of values as read; a map is a list of entries, as in frames."""
    if shape.kind == "array" and shape.element is not None:
        return pa.list_(arrow_type(shape.element))
    if shape.kind == "map" and shape.element is not None:
        entry = [pa.field("key", pa.string(), nullable=False), pa.field("value", arrow_type(shape.element))]
        return pa.list_(pa.struct(entry))
    if shape.kind in ("struct", "union"):
        return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in shape.fields])
    return ARROW_LEAVES[shape.kind]

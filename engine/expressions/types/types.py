"""Column types and schemas: the one vocabulary that definitions, Polars frames and Postgres tables share.

Text form (``parse_type`` and ``str`` round-trip): ``boolean int bigint double decimal(p,s) string bytes date time timestamp``,
``array<T>``, ``map<string,T>``, ``struct<name:T,...>``, where a field's name that is no plain word stands in quotes
(``struct<"a b":int>``). A timestamp is an instant in UTC with microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import polars as pl

ScalarKind = Literal["boolean", "int", "bigint", "double", "string", "bytes", "date", "time", "timestamp"]
Kind = Literal[ScalarKind, "decimal", "array", "map", "struct"]

MAX_DECIMAL_PRECISION = 38
"""Digits that Polars, Arrow decimal128 and Spark hold alike."""

MAX_TYPE_CHARS = 2_000
MAX_TYPE_NESTING = 8
"""Nobody means a deeper type; the parser is recursive, so a bound keeps hostile input harmless."""

_POLARS: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "bigint": pl.Int64(),
    "double": pl.Float64(),
    "string": pl.String(),
    "bytes": pl.Binary(),
    "date": pl.Date(),
    "time": pl.Time(),
    "timestamp": pl.Datetime("us", "UTC"),
}
_POSTGRES: dict[str, str] = {
    "boolean": "boolean",
    "int": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "string": "text",
    "bytes": "bytea",
    "date": "date",
    "time": "time",
    "timestamp": "timestamptz",
    "array": "jsonb",
    "map": "jsonb",
    "struct": "jsonb",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN = (
    "boolean, int, bigint, double, decimal(p,s), string, bytes, date, time, timestamp, "
    "array<T>, map<string,T>, struct<name:T,...>"
)
_MEANT = {
    "integer": "int", "long": "bigint", "int8": "bigint", "int4": "int", "float": "double", "real": "double", "bool": "boolean",
    "text": "string", "varchar": "string", "str": "string", "binary": "bytes", "bytea": "bytes", "datetime": "timestamp",
    "timestamptz": "timestamp", "numeric": "decimal(p,s)", "list": "array<T>",
}  # fmt: skip


@dataclass(frozen=True)
class ColumnType:
    """The type of a column.

    Attributes:
        kind: which type; the other attributes belong to one kind each.
        precision: digits of a decimal, 1 to 38.
        scale: digits of a decimal behind the point.
        element: what an array holds.
        key: what a map's keys are; always string.
        value: what a map's values are.
        fields: a struct's fields in order.
    """

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    element: ColumnType | None = None
    key: ColumnType | None = None
    value: ColumnType | None = None
    fields: tuple[tuple[str, ColumnType], ...] = ()

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "array":
            return f"array<{self.element}>"
        if self.kind == "map":
            return f"map<{self.key},{self.value}>"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{_written(name)}:{field}" for name, field in self.fields) + ">"
        return self.kind

    @property
    def polars(self) -> pl.DataType:
        """The frame's type. A map is a list of ``{key, value}`` structs, as in Arrow."""
        if self.kind == "decimal":
            return pl.Decimal(self.precision, self.scale or 0)
        if self.kind == "array" and self.element is not None:
            return pl.List(self.element.polars)
        if self.kind == "map" and self.key is not None and self.value is not None:
            return pl.List(pl.Struct({"key": self.key.polars, "value": self.value.polars}))
        if self.kind == "struct":
            return pl.Struct({name: field.polars for name, field in self.fields})
        return _POLARS[self.kind]

    @property
    def postgres(self) -> str:
        """The type of a materialised column; nested types are kept as jsonb."""
        return f"numeric({self.precision},{self.scale})" if self.kind == "decimal" else _POSTGRES[self.kind]

    @property
    def is_integer(self) -> bool:
        """Whether the type is int or bigint."""
        return self.kind in ("int", "bigint")

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic works on it."""
        return self.kind in ("int", "bigint", "double", "decimal")

    @property
    def is_nested(self) -> bool:
        """Whether it holds other values: such values are equal or not, but have no order."""
        return self.kind in ("array", "map", "struct")

    @property
    def inner(self) -> tuple[ColumnType, ...]:
        """The types right inside: of an array's elements, a map's keys and values, a struct's fields."""
        parts = (self.element, self.key, self.value, *(field for _, field in self.fields))
        return tuple(part for part in parts if part is not None)

    def walk(self) -> Iterator[ColumnType]:
        """Yield this type and all inside."""
        yield self
        for part in self.inner:
            yield from part.walk()

    @property
    def shape(self) -> tuple[str, tuple[str, ...]]:
        """What two nested types have in common whose parts can be brought to one type: the kind, and the names of a struct's fields."""
        return self.kind, tuple(name for name, _ in self.fields)

    def with_inner(self, parts: Sequence[ColumnType]) -> ColumnType:
        """Return the nested type of this shape that holds values of these types, given in the order of ``inner``."""
        if self.kind == "array":
            return replace(self, element=parts[0])
        if self.kind == "map":
            return replace(self, key=parts[0], value=parts[1])
        return replace(self, fields=tuple((name, part) for (name, _), part in zip(self.fields, parts, strict=True)))

    @property
    def has_map(self) -> bool:
        """Whether it is a map or holds one: the order of a map's entries means nothing, so that such a value is no key."""
        return self.kind == "map" or any(part.has_map for part in self.inner)

    @property
    def depth(self) -> int:
        """How many types it is nested deep; 0 for one that holds no values."""
        return 1 + max(part.depth for part in self.inner) if self.inner else 0

    @property
    def places(self) -> int:
        """How many values take memory for each one of this type, null or not: those of a struct's fields."""
        return 1 + sum(field.places for _, field in self.fields)


def decimal(precision: int, scale: int) -> ColumnType:
    """Return ``decimal(precision, scale)``.

    Raises:
        ValueError: the precision is not in 1 to 38, or the scale not in 0 to the precision.
    """
    if not 1 <= precision <= MAX_DECIMAL_PRECISION:
        raise ValueError(f"decimal precision must be 1 to {MAX_DECIMAL_PRECISION}, not {precision}")
    if not 0 <= scale <= precision:
        raise ValueError(f"decimal scale must be 0 to the precision {precision}, not {scale}")
    return ColumnType("decimal", precision=precision, scale=scale)


def check_field_name(name: str) -> None:
    """Raise ValueError for a name that no field of a struct can have: Polars reads ``*`` and ``^...$`` as several fields."""
    if not name or "\0" in name or name == "*" or (name.startswith("^") and name.endswith("$")):
        raise ValueError(f"{name!r} cannot be the name of a struct's field")


def _written(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


BOOLEAN, INT, BIGINT, DOUBLE = ColumnType("boolean"), ColumnType("int"), ColumnType("bigint"), ColumnType("double")
STRING, BYTES = ColumnType("string"), ColumnType("bytes")
DATE, TIME, TIMESTAMP = ColumnType("date"), ColumnType("time"), ColumnType("timestamp")


def parse_type(text: str) -> ColumnType:
    """Parse a type as users write it; letter case and spaces between words do not matter.

    Raises:
        ValueError: with a message that says what is allowed here.
    """
    if len(text) > MAX_TYPE_CHARS:
        raise ValueError(f"a type is longer than {MAX_TYPE_CHARS} characters")
    parser = _TypeParser(text)
    result = parser.read(0)
    if parser.peek():
        raise ValueError(f"unexpected {parser.peek()!r} after the type {str(result)!r} in {text!r}")
    return result


class _TypeParser:
    """Recursive descent over the tokens of one type text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = re.findall(r'[A-Za-z_][A-Za-z0-9_]*|\d+|"(?:[^"]|"")*"|\S', text)
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if wanted is not None and token != wanted:
            raise ValueError(f"expected {wanted!r} but found {token or 'the end'!r} in the type {self._text!r}")
        self._at += 1
        return token

    def read(self, depth: int) -> ColumnType:
        if depth > MAX_TYPE_NESTING:
            raise ValueError(f"a type may be nested {MAX_TYPE_NESTING} deep")
        word = self.take().lower()
        if word in get_args(ScalarKind):
            return ColumnType(word)  # type: ignore[arg-type]  # checked on the line above
        nested: dict[str, Callable[[int], ColumnType]] = {"array": self._array, "map": self._map, "struct": self._struct}
        if word == "decimal":
            return self._decimal()
        if word in nested:
            return nested[word](depth)
        meant = f" Write {_MEANT[word]!r}." if word in _MEANT else ""
        raise ValueError(f"unknown type {word or self._text!r}.{meant} Types are {_KNOWN}")

    def _decimal(self) -> ColumnType:
        if self.peek() != "(":
            raise ValueError("decimal needs precision and scale, as in decimal(12,2)")
        self.take("(")
        precision = self._number()
        scale = 0
        if self.peek() == ",":
            self.take(",")
            scale = self._number()
        self.take(")")
        return decimal(precision, scale)

    def _number(self) -> int:
        token = self.take()
        if not re.fullmatch(r"[0-9]{1,4}", token):
            raise ValueError(f"expected a number but found {token or 'the end'!r} in the type {self._text!r}")
        return int(token)

    def _array(self, depth: int) -> ColumnType:
        self.take("<")
        element = self.read(depth + 1)
        self.take(">")
        return ColumnType("array", element=element)

    def _map(self, depth: int) -> ColumnType:
        self.take("<")
        key = self.read(depth + 1)
        if key != STRING:
            raise ValueError(f"a map's keys are strings: write map<string,...>, not map<{key},...>")
        self.take(",")
        value = self.read(depth + 1)
        self.take(">")
        return ColumnType("map", key=key, value=value)

    def _struct(self, depth: int) -> ColumnType:
        self.take("<")
        fields: list[tuple[str, ColumnType]] = []
        while True:
            name = self._field_name()
            if name in dict(fields):
                raise ValueError(f"the struct field {name!r} is declared twice")
            self.take(":")
            fields.append((name, self.read(depth + 1)))
            if self.peek() != ",":
                break
            self.take(",")
        self.take(">")
        return ColumnType("struct", fields=tuple(fields))

    def _field_name(self) -> str:
        token = self.take()
        if len(token) > 1 and token[0] == token[-1] == '"':
            name = token[1:-1].replace('""', '"')
            check_field_name(name)
            return name
        if not _PLAIN_NAME.fullmatch(token):
            raise ValueError(
                f"expected a field name but found {token or 'the end'!r} in the type {self._text!r}; other names than words stand in quotes"
            )
        return token


@dataclass(frozen=True)
class Schema:
    """Columns in order: hashable, read like a mapping from name to type.

    Raises:
        ValueError: a name occurs twice.
    """

    columns: tuple[tuple[str, ColumnType], ...] = ()

    def __post_init__(self) -> None:
        if len(self._by_name) != len(self.columns):
            names = [name for name, _ in self.columns]
            raise ValueError(f"column {next(n for n in names if names.count(n) > 1)!r} is declared twice")

    def __hash__(self) -> int:
        """Hash the columns once: every expression is compiled against a schema, and the compiled ones are kept by it."""
        return self._hash

    def __reduce__(self) -> tuple[type[Schema], tuple[tuple[tuple[str, ColumnType], ...]]]:
        """Leave behind what is remembered: hashes of texts differ from process to process."""
        return Schema, (self.columns,)

    @cached_property
    def _hash(self) -> int:
        return hash(self.columns)

    @cached_property
    def _by_name(self) -> dict[str, ColumnType]:
        return dict(self.columns)

    @cached_property
    def _by_bare_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._by_name:
            found.setdefault(name.partition(".")[2], []).append(name)
        return found

    def qualified(self, bare: str) -> list[str]:
        """Return the names that are this one behind a relation's alias: ``w.temp`` for ``temp``."""
        return self._by_bare_name.get(bare, [])

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(name for name, _ in self.columns)

    @property
    def types(self) -> tuple[ColumnType, ...]:
        return tuple(column for _, column in self.columns)

    @cached_property
    def places(self) -> int:
        """How many values take memory for each record, null or not."""
        return sum(column.places for _, column in self.columns)

    def __getitem__(self, name: str) -> ColumnType:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self.columns)

    def items(self) -> tuple[tuple[str, ColumnType], ...]:
        """Return the (name, type) pairs in order."""
        return self.columns

    def polars(self) -> dict[str, pl.DataType]:
        """Return the Polars schema of a frame with these columns."""
        return {name: column.polars for name, column in self.columns}

    def select(self, names: Iterable[str]) -> Schema:
        """Return these columns, in the order of ``names``. Raises KeyError for an unknown one."""
        return Schema(tuple((name, self._by_name[name]) for name in names))

    def to_json(self) -> list[list[str]]:
        """Return ``[[name, type text], ...]``: a list, because jsonb does not keep the order of an object."""
        return [[name, str(column)] for name, column in self.columns]

    @staticmethod
    def from_json(value: Iterable[Iterable[str]]) -> Schema:
        """Read what ``to_json`` made. Raises ValueError where it is not that."""
        pairs = [tuple(pair) for pair in value]
        return Schema(tuple((name, parse_type(text)) for name, text in pairs))

"""Values at the bounds of every type, and the shapes that hold them at every depth."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa

GOOD: dict[str, str] = {
    "boolean": "true", "int": "1", "bigint": "1", "double": "1.5", "string": '"s"', "timestamp": '"2020-01-01T00:00:00Z"',
    "date": '"2020-01-01"', "time": '"12:00:00"', "decimal(10,2)": "1.25", "decimal(38,10)": "1.25", "bytes": '"YQ=="',
}  # fmt: skip
"""A good value of each type, as JSON."""

JSON_VALUES = [
    "null", "0", "-5", "1.0", "1.5", "1e3", "-0", "-0.0", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "2147483648", "99999999", "100000000", "1e400", "1e-400", "0e5000", "1e5000", "1e1000000000000000000", "-1e-1000000000000000000",
    "1" + "0" * 400, "1" * 5000, "9" * 38, "1.50000000000000000000000000000000000000000", "0.0000000001", "0.00000000001",
    "true", '"x"', '""', '"5"', '"1.5"', '"1e3"', '"true"', '"NaN"', "NaN", "Infinity", "-Infinity", "[]", "{}", "[1]",
    '{"a":1}', '"\\u00e9"', '"\\ud800"', '"\\u0000"', '"\\\\u0000"', '"2020-01-01"', '"2020-01-01T00:00:00"', '"0000-12-31"',
    '"0001-01-01"', '"9999-12-31"', '"12020-01-01"', '"+12020-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"',
    '"0000-01-01T00:00:00Z"', '"24:00:00"', '"23:59:60"', "253402300799999", "253402300800000", "9000000000000000",
    "9223372036854775", "9223372036854776", "1700000000000.5", "123456789012345678901234567890", "1.23456789012345678901",
]  # fmt: skip
"""What may stand in a JSON record where a value is due."""


MIXED_VALUES = [
    "null",
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"\\\\u0000"',
    "NaN",
    "1e5000",
    "9223372036854775808",
    "9000000000000000",
    "{}",
]
"""Some of them, where all would take too long."""

CSV_VALUES = [value.strip('"') for value in JSON_VALUES] + [
    " 5",
    "+5",
    "TRUE",
    "nan",
    "inf",
    "-inf",
    "a\0b",
    '"',
    "1,5",
    "5 ",
    "é",
    "\n",
]


class Shape(NamedTuple):
    """A type around a type.

    Attributes:
        type: the declaration, with ``%s`` for what is inside.
        json: the JSON text around a value; ``%s`` is the value, ``%g`` a good one.
        arrow: the array around each of an array's values.
    """

    type: str
    json: str
    arrow: Callable[[pa.Array], pa.Array]


def _listed(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_each(values), values)


def _mapped(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(_each(values), pa.array(["b"] * len(values)), values)


def _structured(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values, pa.array(["x"] * len(values))], ["b", "a"])


def _each(values: pa.Array) -> pa.Array:
    return pa.array(range(len(values) + 1), pa.int32())


SHAPES = [
    Shape("array<%s>", "[%g,%s]", _listed),
    Shape("map<string,%s>", '{"a":%g,"b":%s}', _mapped),
    Shape("struct<a:string,b:%s>", '{"a":"x","b":%s}', _structured),
    Shape("array<array<%s>>", "[[],null,[%s]]", lambda values: _listed(_listed(values))),
    Shape("array<struct<a:string,b:%s>>", '[{},{"b":%s},null]', lambda values: _listed(_structured(values))),
    Shape("map<string,array<%s>>", '{"":[%g],"b":[%s]}', lambda values: _mapped(_listed(values))),
    Shape("struct<b:map<string,%s>>", '{"b":{"b":%s}}', lambda values: pa.StructArray.from_arrays([_mapped(values)], ["b"])),
]


def wrapped(shape: Shape, value: str, kind: str) -> str:
    """Return the JSON text of a value inside a shape."""
    return shape.json.replace("%g", GOOD[kind]).replace("%s", value)


def _of(kind: pa.DataType, numbers: list[int]) -> pa.Array:
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


FAR = [0, -1, 2**31 - 1, -(2**31)]
FARTHER = [*FAR, 253_402_300_799, 253_402_300_800, 253_402_300_800_000_000, 2**62, -(2**62), 2**63 - 1, -(2**63)]
TEXTS = [
    b"",
    b"s",
    b"a\0b",
    b"\\u0000",
    b"\xff",
    b"\xed\xa0\x80",
    b"5",
    b"1.5",
    b"2020-01-01",
    b"12:00:00",
    b"2020-01-01T00:00:00Z",
]
ARROW_VALUES: list[pa.Array] = [
    pa.array([0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 1e300, 2.0**63, 2.0**31]),
    pa.array([1.5, float("nan"), float("inf")], pa.float32()),
    pa.array(FARTHER, pa.int64()),
    pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
    pa.array([True, False]),
    pa.array([Decimal("1.25"), Decimal("1" * 28), Decimal("99999999.99"), Decimal(100_000_000)], pa.decimal128(38, 10)),
    pa.array(TEXTS, pa.binary()).view(pa.string()),
    pa.array([b"", b"\0", b"\xff"]),
    _of(pa.date32(), FAR),
    _of(pa.time32("s"), [0, 86_399, 86_400, -1]),
    _of(pa.time64("us"), [0, 86_399_999_999, 86_400_000_000, 2**62]),
    _of(pa.timestamp("s"), FARTHER),
    _of(pa.timestamp("ms"), FARTHER),
    _of(pa.timestamp("us", "UTC"), FARTHER),
    _of(pa.timestamp("us", "Asia/Tokyo"), [0, 253_402_300_799_999_999]),
    _of(pa.timestamp("ns", "Asia/Tokyo"), FARTHER),
    _of(pa.duration("ms"), FARTHER),
]
"""What may come in an Arrow stream, some of it against the promise of its type; the first of each is good."""

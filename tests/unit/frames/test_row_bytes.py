"""What a row counts against ``max_bytes``."""

from __future__ import annotations

import polars as pl

from engine.expressions.types.types import Schema, parse_type
from engine.frames.row_bytes import RowBytes


def sizes(type_text: str, values: list[object]) -> list[int]:
    schema = Schema((("c", parse_type(type_text)),))
    return RowBytes(schema.polars()).of(pl.DataFrame({"c": values}, schema=schema.polars())).tolist()


def test_fixed_widths_count_nulls_too() -> None:
    assert sizes("bigint", [1, None]) == [8, 8]
    assert sizes("boolean", []) == []


def test_strings_and_bytes_count_their_bytes_and_an_offset() -> None:
    assert sizes("string", ["ß", "", None]) == [6, 4, 4]
    assert sizes("bytes", [b"abc", None]) == [7, 4]


def test_nested_values_count_what_they_hold() -> None:
    assert sizes("array<int>", [[1, 2], [], None]) == [12, 4, 4]
    assert sizes("array<string>", [["ab", None], [], None]) == [14, 4, 4]
    assert sizes("struct<a:int,b:string>", [{"a": 1, "b": "xyz"}, None]) == [11, 8]
    assert sizes("map<string,bigint>", [[{"key": "k", "value": 1}], None]) == [17, 4]

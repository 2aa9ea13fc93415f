"""Rows: read by their columns' types, compared, written as a file would write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from app.testing.comparing.rows import Row, equal, expected_rows, milliseconds, written
from engine.expressions.types.types import Schema, parse_type


def schema(**columns: str) -> Schema:
    return Schema(tuple((name, parse_type(text)) for name, text in columns.items()))


@pytest.mark.parametrize(
    ("declared", "given", "value"),
    [
        ("timestamp", "2024-01-01T00:00:00+01:00", datetime(2023, 12, 31, 23, tzinfo=UTC)),
        ("timestamp", 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("decimal(10,2)", 12.1, Decimal("12.10")),
        ("decimal(10,2)", "12.10", Decimal("12.10")),
        ("bigint", "9007199254740993", 9007199254740993),
        ("double", 3, 3.0),
        ("bytes", "AAE=", b"\x00\x01"),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("array<double>", [1, 2.5], [1.0, 2.5]),
        ("map<string,bigint>", {"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ("struct<x:int,y:array<string>>", {"x": 1}, {"x": 1, "y": None}),
    ],
)
def test_an_expected_value_is_read_as_its_column_says(declared: str, given: Any, value: Any) -> None:
    rows, faults = expected_rows([{"v": given}], schema(v=declared))
    assert faults == []
    assert rows.rows[0].values == {"v": value}


def test_columns_that_no_row_names_are_not_compared_and_those_that_others_name_are_null() -> None:
    rows, _ = expected_rows([{"a": 1}, {"b": 2}], schema(a="int", b="int", c="int"))
    assert rows.columns == ("a", "b")
    assert rows.matches(rows.rows[0], Row({"a": 1, "b": None, "c": 9}))
    assert not rows.matches(rows.rows[0], Row({"a": 1, "b": 7, "c": 9}))


def test_a_time_counts_where_it_is_given_and_a_delete_always() -> None:
    rows, _ = expected_rows([{"$ts": 5, "a": 1}, {"a": 1}, {"$op": "delete", "a": 1}], schema(a="int"))
    timed, plain, gone = rows.rows
    assert not rows.matches(timed, Row({"a": 1}, ts=6))
    assert rows.matches(plain, Row({"a": 1}, ts=6))
    assert not rows.matches(plain, Row({"a": 1}, is_delete=True))
    assert rows.matches(gone, Row({"a": 1}, is_delete=True, ts=1))


def test_every_fault_of_a_row_is_found_with_its_place() -> None:
    _, faults = expected_rows([{"a": "x", "$ts": "soon", "$op": "put", "b": 1}, 3], schema(a="int"))
    assert [place for place, _ in faults] == ["/1", "/0/b", "/0/a", "/0/$ts", "/0/$op"]


def test_doubles_are_equal_within_their_last_digits_at_any_depth() -> None:
    assert equal({"x": [0.1 + 0.2]}, {"x": [0.3]})
    assert not equal(0.3, 0.3000001)
    assert not equal(1, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("tea", "tea"),
        ("null", '"null"'),
        ("5", '"5"'),
        ("a: b", '"a: b"'),
        ("", '""'),
        (Decimal("1.20"), '"1.20"'),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00Z"),
        (time(1, 2), '"01:02:00"'),
        (b"\x00\x01", '"AAE="'),
        ([1, {"k": "v"}], "[1, {k: v}]"),
    ],
)
def test_a_value_is_written_as_a_file_would_write_it(value: Any, text: str) -> None:
    assert written(value) == text


def test_a_written_delete_shows_what_is_not_null() -> None:
    assert Row({"a": 1, "b": None}, is_delete=True, ts=7).text(["a", "b"], has_ts=True) == "{$op: delete, $ts: 7, a: 1}"


def test_times_are_milliseconds_or_rfc_3339_with_a_zone() -> None:
    assert [milliseconds(value) for value in (5, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01", "x", None)] == [
        5,
        1000,
        None,
        None,
        None,
    ]

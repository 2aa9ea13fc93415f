from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from app.http.answers.record_json import FEW_ROWS, encode_keyed, encode_records
from engine.expressions.types.types import Schema, parse_type


def frame(**columns: pl.Series) -> pl.DataFrame:
    rows = len(next(iter(columns.values())))
    control = {"_offset": pl.int_range(rows, dtype=pl.Int64, eager=True), "_ts": pl.repeat(5, rows, dtype=pl.Int64, eager=True)}
    return pl.DataFrame({**control, "_op": pl.repeat(0, rows, dtype=pl.Int8, eager=True), **columns})


def schema(**columns: str) -> Schema:
    return Schema(tuple((name, parse_type(kind)) for name, kind in columns.items()))


def test_numbers_keep_all_their_digits() -> None:
    given = frame(n=pl.Series([2**53 + 1, None]), d=pl.Series(["1.20", None]).cast(pl.Decimal(10, 2)))
    assert encode_records(given, schema(n="bigint", d="decimal(10,2)"), has_text_numbers=False) == [
        '{"$offset":0,"$event_time_ms":5,"n":9007199254740993,"d":1.20}',
        '{"$offset":1,"$event_time_ms":5,"n":null,"d":null}',
    ]
    [first, _] = encode_records(given, schema(n="bigint", d="decimal(10,2)"), has_text_numbers=True)
    assert json.loads(first) == {"$offset": 0, "$event_time_ms": 5, "n": "9007199254740993", "d": "1.20"}


def test_a_double_that_json_has_no_number_for_is_a_text() -> None:
    given = frame(x=pl.Series([2.0, None, float("nan"), float("inf"), float("-inf"), -0.0]))
    texts = encode_records(given, schema(x="double"), has_text_numbers=False)
    assert [json.loads(text)["x"] for text in texts] == [2.0, None, "NaN", "Infinity", "-Infinity", -0.0]


def test_text_is_escaped_and_times_are_in_utc() -> None:
    given = frame(s=pl.Series(['"\\\né\u2028']), t=pl.Series([datetime(2013, 1, 1, tzinfo=UTC)], dtype=pl.Datetime("us", "UTC")))
    [text] = encode_records(given, schema(s="string", t="timestamp"), has_text_numbers=False)
    assert json.loads(text) | {"s": '"\\\né\u2028', "t": "2013-01-01T00:00:00Z"} == json.loads(text)


def test_a_column_name_can_hold_anything_json_can() -> None:
    [text] = encode_records(frame(**{"a b\\é": pl.Series([1.5])}), schema(**{"a b\\é": "double"}), has_text_numbers=False)
    assert json.loads(text)["a b\\é"] == 1.5


def test_nested_values_become_json_values() -> None:
    declared = schema(m="map<string,timestamp>", s="struct<x:bytes,y:decimal(4,1)>", a="array<int>")
    at = datetime(2013, 1, 1, tzinfo=UTC)
    given = frame(
        m=pl.Series([[{"key": "k", "value": at}], None], dtype=declared["m"].polars),
        s=pl.Series([{"x": b"\0", "y": None}, None], dtype=declared["s"].polars),
        a=pl.Series([[1, None], []], dtype=declared["a"].polars),
    )
    first, second = map(json.loads, encode_records(given, declared, has_text_numbers=False))
    assert (first["m"], first["s"], first["a"]) == ({"k": "2013-01-01T00:00:00Z"}, {"x": "AA==", "y": None}, [1, None])
    assert (second["m"], second["s"], second["a"]) == (None, None, [])


def test_no_records_are_no_text() -> None:
    assert encode_records(pl.DataFrame(), schema(n="int"), has_text_numbers=False) == []


def test_a_record_without_a_value_is_marked() -> None:
    given = frame(id=pl.Series(["a", "b"]), n=pl.Series([1, None])).with_columns(pl.Series("_op", [0, 1], dtype=pl.Int8))
    assert encode_records(given, schema(id="string", n="int"), has_text_numbers=False) == [
        '{"$offset":0,"$event_time_ms":5,"id":"a","n":1}',
        '{"$offset":1,"$event_time_ms":5,"$op":"delete","id":"b","n":null}',
    ]


KINDS = (
    "bigint",
    "int",
    "boolean",
    "string",
    "double",
    "decimal(6,3)",
    "timestamp",
    "date",
    "bytes",
    "array<string>",
    "struct<a:int>",
)
VALUES: dict[str, list[object]] = {
    "bigint": [2**53 + 1, -1, None],
    "int": [0, None, 7],
    "boolean": [True, None, False],
    "string": ['a"b\\c\n\r\t\b\f\x00\x1f\x7f/é\u2028😀', None, ""],
    "double": [1e16, 0.1, None],
    "decimal(6,3)": [Decimal("0.000"), None, Decimal("-1.500")],
    "timestamp": [datetime(2013, 1, 1, tzinfo=UTC), None, datetime(2013, 1, 1, microsecond=5, tzinfo=UTC)],
    "date": [date(2013, 1, 1), None, date(1, 1, 1)],
    "bytes": [b"\x00\xff", None, b""],
    "array<string>": [["a", None], None, []],
    "struct<a:int>": [{"a": 1}, None, {"a": None}],
}


@pytest.mark.parametrize("has_text_numbers", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_few_records_are_written_like_many(kind: str, has_text_numbers: bool) -> None:
    columns = schema(**{'k"': "string", "v": kind})
    few = frame(**{'k"': pl.Series(["x", None, "z"]), "v": pl.Series(VALUES[kind], dtype=columns["v"].polars)})
    many = pl.concat([few] * FEW_ROWS)
    keys, rows = encode_keyed(few, columns, ('k"',), has_text_numbers=has_text_numbers)
    wanted_keys, wanted = encode_keyed(many, columns, ('k"',), has_text_numbers=has_text_numbers)
    assert keys * FEW_ROWS == wanted_keys
    assert rows * FEW_ROWS == wanted

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import polars as pl
import pytest

from app.http.values import instant, parse_instant_ms, parse_stored, parse_value
from engine.expressions.types.types import parse_type


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("true", "boolean", True),
        ("-5", "int", -5),
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("1e3", "double", 1000.0),
        ("1.20", "decimal(4,2)", Decimal("1.20")),
        ("", "string", ""),
        ("AP8=", "bytes", b"\0\xff"),
        ("2013-01-31", "date", dt.date(2013, 1, 31)),
        ("13:45:00", "time", dt.time(13, 45)),
        ("2013-01-01T00:00:00Z", "timestamp", dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
        ("1356998400000", "timestamp", dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_values_are_parsed_into_their_columns_type(text: str, kind: str, value: object) -> None:
    assert parse_value(text, parse_type(kind)) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("yes", "boolean"), ("2147483648", "int"), ("1_000", "int"), ("٣", "int"), ("9223372036854775808", "bigint"), ("nan", "double"),
        ("1e999", "double"), ("NaN", "decimal(4,2)"), ("x", "decimal(4,2)"), ("a\0b", "string"), ("?", "bytes"), ("31.01.2013", "date"),
        ("13:45:00Z", "time"), ("2013-01-01T00:00:00", "timestamp"), ("1", "array<int>"),
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str, kind: str) -> None:
    with pytest.raises(ValueError):
        parse_value(text, parse_type(kind))


def test_a_nested_value_is_the_json_that_tables_hold() -> None:
    kind = parse_type("struct<at:timestamp,n:array<bigint>>")
    assert parse_value('{"n": [1, null]}', kind) == '{"at":null,"n":[1,null]}'
    assert parse_value('{"at": "2013-01-01T01:00:00+01:00"}', kind) == '{"at":"2013-01-01T00:00:00Z","n":null}'
    assert parse_stored('["a"]', parse_type("array<string>")) == ["a"]


@pytest.mark.parametrize("text", ["", "{", "null", '["1"]', '{"m": 1}', '{"n": ["x"]}'])
def test_a_text_that_is_no_nested_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it in JSON"):
        parse_value(text, parse_type("struct<at:timestamp,n:array<bigint>>"))


@pytest.mark.parametrize(
    ("text", "kind", "held"),
    [
        ("1e2", "decimal(5,2)", "100.00"), ("0e-16383", "decimal(5,2)", "0.00"), ("-0e131071", "decimal(5,0)", "0"),
        ("0.50000", "decimal(1,1)", "0.5"), ("-9e35", "decimal(38,2)", "-9" + "0" * 35 + ".00"), ("2.0", "int", None),
        ("2013-01-01T01:00:00+01:00", "timestamp", "2013-01-01 00:00:00+00:00"), ("JFK", "string", "JFK"),
        ("1e36", "decimal(38,2)", None), ("1e131071", "decimal(38,2)", None), ("1e-16383", "decimal(38,2)", None),
        ("9" * 60_000, "decimal(38,0)", None),
        ("0.001", "decimal(38,2)", None), ("0001-01-01T00:00:00+01:00", "timestamp", None), ("1e500000000", "decimal(38,2)", None),
    ],
)  # fmt: skip
def test_a_value_is_parsed_as_its_column_holds_it(text: str, kind: str, held: str | None) -> None:
    if held is None:
        with pytest.raises(ValueError, match="is not"):
            parse_stored(text, parse_type(kind))
        return
    value = parse_stored(text, parse_type(kind))
    assert str(value) == held
    assert pl.Series([value], dtype=parse_type(kind).polars).to_list() == [value]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:00.5+01:00", 500), ("253402300799999", 253402300799999)],
)
def test_instants_are_rfc_3339_or_milliseconds(text: str, ms: int) -> None:
    assert parse_instant_ms(text) == ms
    assert instant(ms) == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)


@pytest.mark.parametrize(
    "text", ["", "-1", "253402300800000", "1969-12-31T23:59:59Z", "2013-01-01", "2013-01-01T00:00:00", "now", "9" * 30]
)
def test_other_instants_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_instant_ms(text)

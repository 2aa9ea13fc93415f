from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from app.domain.values import instant, parse_instant_ms, parse_value
from engine.definition.types import parse_type


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

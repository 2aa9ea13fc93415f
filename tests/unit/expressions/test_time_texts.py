"""Dates and times are written and read by Java's patterns, written out or in a column, in any zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import STRING, Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid
from tests.examples import examples

SPRING = datetime(2024, 3, 9, 7, 5, 3, 45_600, UTC)


def found(expression: str, **columns: tuple[str, list[Any]]) -> list[Any]:
    """The values of an expression over columns, each given as type and values."""
    schema = Schema(tuple((f"s.{name}", parse_type(kind)) for name, (kind, _) in columns.items()))
    frame = pl.DataFrame({f"s.{name}": values for name, (_, values) in columns.items()}, schema=schema.polars())
    scalar = compile_scalar(expression, schema)
    series = frame.select(scalar.expr.alias("x")).to_series()
    assert series.dtype == scalar.type.polars
    return series.to_list()


def written(pattern: str, zone: str | None = None, moment: datetime = SPRING) -> str:
    more = "" if zone is None else f", '{zone}'"
    (text,) = found(f"format_timestamp(t, '{pattern.replace(chr(39), chr(39) * 2)}'{more})", t=("timestamp", [moment]))
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-03-09 07:05:03.045"),
        ("y yy yyyyy uuuu", "2024 24 02024 2024"),
        ("M MM MMM MMMM MMMMM L", "3 03 Mar March M 3"),
        ("d dd D DD DDD", "9 09 69 69 069"),
        ("E EEE EEEE EEEEE", "Sat Sat Saturday S"),
        ("Q QQ QQQ QQQQ", "1 01 Q1 1st quarter"),
        ("H h K k a", "7 7 7 7 AM"),
        ("S SS SSSSSS SSSSSSSSS", "0 04 045600 045600000"),
        ("A n N", "25503045 45600000 25503045600000"),
        ("'T''T' ''", "T'T '"),
        ("yyyy[-MM[-dd]]", "2024-03-09"),
        ("X XX XXX x xx xxx Z O VV", "Z Z Z +00 +0000 +00:00 +0000 GMT GMT"),
        ("é%d", "é%9"),
    ],
)
def test_a_time_is_written_by_a_pattern(pattern: str, text: str) -> None:
    assert written(pattern) == text


@pytest.mark.parametrize(
    ("hour", "text"), [(0, "12 0 24 0 AM"), (1, "1 1 1 1 AM"), (12, "12 0 12 12 PM"), (23, "11 11 23 23 PM")]
)
def test_hours_are_counted_in_four_ways(hour: int, text: str) -> None:
    assert written("h K k H a", moment=SPRING.replace(hour=hour)) == text


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("Asia/Kolkata", "12:35 +0530 +05:30 +0530 GMT+5:30 Asia/Kolkata IST"),
        ("America/New_York", "02:05 -05 -05:00 -0500 GMT-5 America/New_York EST"),
        ("-02:30", "04:35 -0230 -02:30 -0230 GMT-2:30 -02:30 -02:30"),
        ("GMT+3", "10:05 +03 +03:00 +0300 GMT+3 GMT+3 GMT+3"),
    ],
)
def test_a_time_is_written_as_clocks_of_a_zone_show_it(zone: str, text: str) -> None:
    assert written("HH:mm X XXX xx O VV z", zone) == text


def test_dates_and_times_of_the_day_are_written() -> None:
    assert found("format_date(d, 'dd.MM.yy')", d=("date", [date(1969, 7, 20), None])) == ["20.07.69", None]
    assert found("format_time(t, 'HH-mm[ yyyy]')", t=("time", [time(23, 59), None])) == ["23-59", None]
    assert found("date_to_string(n, 'yyyyDDD')", n=("int", [-1, None])) == ["1969365", None]
    assert found("timestamp_to_string(n, 's.SSS')", n=("bigint", [-1, 2**62])) == ["59.999", None]


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-03-09 07:05:03", datetime(2024, 3, 9, 7, 5, 3, tzinfo=UTC)),
        ("yyyyMMddHHmmssSSS", "20240309070503045", datetime(2024, 3, 9, 7, 5, 3, 45_000, UTC)),
        ("d.M.yyyy", "9.3.2024", datetime(2024, 3, 9, tzinfo=UTC)),
        ("d.M.yyyy", "09.03.2024", datetime(2024, 3, 9, tzinfo=UTC)),
        ("yy/DDD", "24/366", datetime(2024, 12, 31, tzinfo=UTC)),
        ("EEE, d MMMM yyyy", "Sat, 9 march 2024", datetime(2024, 3, 9, tzinfo=UTC)),
        ("EEE, d MMMM yyyy", "Sun, 9 march 2024", None),
        ("EEEE yyyy", "monday 2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("EEEE yyyy", "friday 2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("h:mm a", "12:30 am", datetime(1970, 1, 1, 0, 30, tzinfo=UTC)),
        ("K:mm a", "0:30 PM", datetime(1970, 1, 1, 12, 30, tzinfo=UTC)),
        ("kk", "24", datetime(1970, 1, 1, tzinfo=UTC)),
        ("yyyy-MM", "2024-02", datetime(2024, 2, 1, tzinfo=UTC)),
        ("yyyy-MM-dd", "2024-02-31", datetime(2024, 2, 29, tzinfo=UTC)),
        ("yyyy[-MM[-dd]]['T'HH]", "2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("yyyy[-MM[-dd]]['T'HH]", "2024-03T05", datetime(2024, 3, 1, 5, tzinfo=UTC)),
        ("HH:mm:ss.SX", "13:00:00.5+0200", datetime(1970, 1, 1, 11, 0, 0, 500_000, UTC)),
        ("HH:mmXXX", "13:00-03:30", datetime(1970, 1, 1, 16, 30, tzinfo=UTC)),
        ("HH:mm VV", "13:00 Asia/Tokyo", datetime(1970, 1, 1, 4, tzinfo=UTC)),
        ("HH:mm VV", "13:00 Nowhere/Here", None),
        ("yyyy-MM-dd", "2024-13-01", None),
        ("yyyy-MM-dd", "2024-00-01", None),
        ("yyyy-MM-dd", "2024-03-32", None),
        ("yyyy-MM-dd", "0000-01-01", None),
        ("yyyy-MM-dd", "2024-03-09 ", None),
        ("yyyy-DDD", "2023-366", None),
        ("HH:mm", "24:00", None),
        ("HH:mm", "7:05", None),
        ("HH.mm", "07:05", None),
    ],
)
def test_a_time_is_read_by_a_pattern(pattern: str, text: str, moment: datetime | None) -> None:
    quoted = pattern.replace("'", "''")
    assert found(f"parse_timestamp(t, '{quoted}')", t=("string", [text, None])) == [moment, None]
    expected = None if moment is None else int(moment.timestamp() * 1_000)
    assert found(f"string_to_timestamp(t, '{quoted}')", t=("string", [text])) == [expected]


def test_a_time_before_1970_is_read_to_the_millisecond_before() -> None:
    assert found("string_to_timestamp(t, 'yyyy HH:mm:ss.SSSSSS')", t=("string", ["1969 00:00:00.000001"])) == [-31_536_000_000]


def test_a_zone_is_of_texts_that_name_none() -> None:
    assert found("parse_timestamp(t, 'HH[X]', 'Asia/Tokyo')", t=("string", ["09", "09Z"])) == [
        datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 9, tzinfo=UTC),
    ]  # fmt: skip


def test_of_an_hour_that_clocks_show_twice_the_first_is_read_and_one_left_out_counts_on() -> None:
    texts = ["2024-10-27 02:30", "2024-03-31 02:30", "2024-03-31 03:30"]
    assert found("parse_timestamp(t, 'yyyy-MM-dd HH:mm', 'Europe/Berlin')", t=("string", texts)) == [
        datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 3, 31, 1, 30, tzinfo=UTC), datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    ]  # fmt: skip


def test_dates_and_times_of_the_day_are_read() -> None:
    assert found("parse_date(t, 'd.M.yyyy')", t=("string", ["20.07.1969", "x", None])) == [date(1969, 7, 20), None, None]
    assert found("parse_date(t, 'yyyy-MM-dd HH')", t=("string", ["2024-03-09 00", "2024-03-09 01"])) == [date(2024, 3, 9), None]
    assert found("parse_time(t, 'HH:mm:ss.SSSSSS')", t=("string", ["01:02:03.004005"])) == [time(1, 2, 3, 4_000)]
    assert found("string_to_date(t, 'yyyyMMdd')", t=("string", ["19691231", "196912310"])) == [-1, None]


def test_patterns_and_zones_may_differ_from_row_to_row() -> None:
    columns = {
        "t": ("timestamp", [SPRING, SPRING, SPRING, None, SPRING, SPRING]),
        "p": ("string", ["HH VV", "dd", "HH VV", "dd", "nonsense", None]),
        "z": ("string", ["Asia/Tokyo", "UTC", "Nowhere", "UTC", "UTC", "UTC"]),
    }
    assert found("format_timestamp(t, p, z)", **columns) == ["16 Asia/Tokyo", "09", None, None, None, None]
    assert found("format_timestamp(t, p, 'Z')", **columns) == ["07 Z", "09", "07 Z", None, None, None]
    texts = ("string", ["05:30", "30.05", "x"])
    assert found("parse_time(t, p)", t=texts, p=("string", ["HH:mm", "mm.HH", "HH"])) == [time(5, 30), time(5, 30), None]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("format_date(DATE '2024-03-09', 'HH')", "has no hour"),
        ("format_time(CAST('00:00:00' AS time), 'yyyy')", "has no year"),
        ("format_timestamp(t, 'YYYY')", "country's weeks"),
        ("format_timestamp(t, 'G')", "not supported"),
        ("format_timestamp(t, 'B')", "not supported"),
        ("format_timestamp(t, 'ddd')", "so many"),
        ("format_timestamp(t, 'l')", "means nothing"),
        ("format_timestamp(t, 'HH''')", "quote open"),
        ("format_timestamp(t, '[HH')", "bracket [ open"),
        ("format_timestamp(t, 'HH]')", "not open"),
        ("format_timestamp(t, '{HH}')", "means nothing yet"),
        ("format_timestamp(t, 'HH', 'Mars/North')", "no time zone"),
        ("format_timestamp(t, 'HH', '+19:00')", "no time zone"),
        ("parse_timestamp('1', 'HH HH')", "two places"),
        ("parse_timestamp('1', 'MMMMM')", "single letters"),
        ("parse_time('1', 'HH yyyy')", "has a year"),
        ("string_to_date('1', 'dd')", "no year"),
        ("convert_tz(t, 'UTC', 'here')", "no time zone"),
        ("date_add('months', 1, DATE '2024-03-09')", "knows milliseconds"),
        ("date_add('days', 1.5, DATE '2024-03-09')", "whole number"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(call: str, part: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(call, Schema((("s.t", parse_type("timestamp")), ("s.x", STRING))))
    assert caught.value.code == "type_mismatch"
    assert part in caught.value.detail


def test_units_are_added_and_taken_off() -> None:
    n = ("bigint", [25, -25, None, 2**62])
    days = ("date", [date(2024, 2, 28)] * 4)
    assert found("date_add('HOURS', n, d)", n=n, d=days) == [date(2024, 2, 29), date(2024, 2, 26), None, None]
    assert found("date_sub('day', n, d)", n=n, d=days) == [date(2024, 2, 3), date(2024, 3, 24), None, None]
    times = ("time", [time(12)] * 4)
    assert found("time_add('hours', n, t)", n=n, t=times)[:3] == [time(13), time(11), None]
    assert found("time_sub('minutes', n, t)", n=n, t=times)[:3] == [time(11, 35), time(12, 25), None]
    moments = ("timestamp", [datetime(9999, 12, 31, 23, tzinfo=UTC)] * 4)
    assert found("timestamp_add('hours', n, t)", n=n, t=moments) == [None, datetime(9999, 12, 30, 22, tzinfo=UTC), None, None]
    assert found("timestamp_sub('seconds', n, t)", n=n, t=moments)[0] == datetime(9999, 12, 31, 22, 59, 35, tzinfo=UTC)


def test_a_date_before_1970_and_part_of_a_day_is_the_day_nearer_to_1970() -> None:
    assert found("date_sub('hours', 1, d)", d=("date", [date(1970, 1, 1), date(1970, 1, 2)])) == [date(1970, 1, 1)] * 2


def test_a_time_is_moved_from_zone_to_zone() -> None:
    moments = ("timestamp", [SPRING, datetime(2024, 7, 1, tzinfo=UTC), None])
    shifted = found("convert_tz(t, 'America/New_York', '+01:00')", t=moments)
    assert shifted == [SPRING.replace(hour=13), datetime(2024, 7, 1, 5, tzinfo=UTC), None]
    assert found("convert_tz(t, z, 'Z')", t=moments, z=("string", ["+07:00", "x", "Z"])) == [SPRING.replace(hour=0), None, None]


PATTERNS = (
    "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "yyyyDDDAX", "d MMM yyyy, h:mm:ss a, SSSSSS xx", "EEEE, MMMM d yyyy kk:mm:ss.SSSSSS VV",
    "yyyy M d N XXXXX", "yyyyMMddHHmmssSSSSSSZ",
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    moment=st.datetimes(timezones=st.just(UTC)).filter(lambda moment: 1900 < moment.year < 9999),
    pattern=st.sampled_from(PATTERNS),
    zone=st.sampled_from(["Z", "UTC", "+05:45", "-11:00"]),
)
def test_what_was_written_is_read_again(moment: datetime, pattern: str, zone: str) -> None:
    moment = moment.replace(microsecond=0 if "A" in pattern else moment.microsecond)
    text = written(pattern, zone, moment)
    assert found(f"parse_timestamp(t, '{pattern.replace(chr(39), chr(39) * 2)}')", t=("string", [text])) == [moment]

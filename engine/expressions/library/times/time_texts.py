"""Functions that write and read dates and times by Java's patterns, as ksqlDB has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import texts_of, whole
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.times.time_formatting import DATE_FIELDS, Moment, formatted
from engine.expressions.library.times.time_parsing import ParsedFields, reading_of
from engine.expressions.library.times.time_patterns import parts_of
from engine.expressions.library.times.time_zones import UTC, Zone, zone_of
from engine.expressions.library.times.times import instant_of_ms
from engine.expressions.types.types import BIGINT, DATE, INT, STRING, TIME, TIMESTAMP, ColumnType
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce

Build = Callable[[pl.Expr, str, Zone], pl.Expr]
"""Makes an expression of a value, a pattern and a zone."""


def by_pattern(name: str, build: Build, value: pl.Expr, words: Arguments, result: ColumnType) -> Operand:
    """Compile a call whose pattern and zone are written out, or differ from row to row.

    Args:
        name: of the function.
        build: see ``Build``; refuses patterns.
        value: what is written or read.
        words: the pattern and, where it is given, the zone.
        result: type of the result.
    """
    texts = texts_of(name, words)
    written = [word.literal for word in words]
    if all(isinstance(each, str) for each in written):
        pattern, *zone = (str(each) for each in written)
        return Operand(build(value, pattern, zone_of(zone[0]) if zone else UTC), result)
    named = [each.alias(f"word_{number}") for number, each in enumerate(texts)]
    together = pl.struct(value.alias("value"), *named)
    each_apart = partial(_each_apart, build=build, words=len(words), result=result.polars)
    return Operand(together.map_batches(each_apart, return_dtype=result.polars, is_elementwise=True), result)


def _each_apart(given: pl.Series, *, build: Build, words: int, result: pl.DataType) -> pl.Series:
    """Write or read the rows of each pattern and zone; where these are none, the result is NULL."""
    frame = given.struct.unnest().with_row_index("row")
    names = [f"word_{number}" for number in range(words)]
    done = [frame.clear().select("row", pl.lit(None, result).alias("result"))]
    for key, rows in frame.group_by(*names):
        done.append(rows.select("row", _or_null(build, key).cast(result).alias("result")))
    return pl.concat(done).sort("row").get_column("result")


def _or_null(build: Build, words: tuple[object, ...]) -> pl.Expr:
    if any(word is None for word in words):
        return pl.lit(None)
    pattern, *zone = (str(word) for word in words)
    try:
        return build(pl.col("value"), pattern, zone_of(zone[0]) if zone else UTC)
    except ExpressionInvalid:
        return pl.lit(None)


def _date_text(date: pl.Expr, pattern: str, _: Zone) -> pl.Expr:
    return once(lambda value: formatted(parts_of(pattern), Moment.of_date(value)), date)


def _time_text(time: pl.Expr, pattern: str, _: Zone) -> pl.Expr:
    return once(lambda value: formatted(parts_of(pattern), Moment.of_time(value)), time)


def _timestamp_text(timestamp: pl.Expr, pattern: str, zone: Zone) -> pl.Expr:
    return once(lambda value: formatted(parts_of(pattern), Moment.of_timestamp(value, zone)), timestamp)


def _read_date(text: pl.Expr, pattern: str, _: Zone, *, is_lenient: bool = False) -> pl.Expr:
    reading = reading_of(parts_of(pattern), is_lenient=is_lenient)
    if not is_lenient and not reading.fields >= {"year"}:
        raise ExpressionInvalid("type_mismatch", f"the pattern {pattern[:60]!r} has no year")

    def date(groups: pl.Expr) -> pl.Expr:
        found = ParsedFields(reading, groups)
        return pl.when(found.is_read & (found.nanos() == 0)).then(found.date())

    return once(date, reading.groups(text))


def _read_time(text: pl.Expr, pattern: str, _: Zone) -> pl.Expr:
    reading = reading_of(parts_of(pattern))
    if strange := sorted(reading.fields & (DATE_FIELDS | {"zone"})):
        raise ExpressionInvalid("type_mismatch", f"the pattern {pattern[:60]!r} of a time has a {strange[0]}")
    return once(lambda groups: ParsedFields(reading, groups).time(), reading.groups(text))


def _read_timestamp(text: pl.Expr, pattern: str, zone: Zone) -> pl.Expr:
    reading = reading_of(parts_of(pattern))
    return once(lambda groups: ParsedFields(reading, groups).instant(zone), reading.groups(text))


def _read_milliseconds(text: pl.Expr, pattern: str, zone: Zone) -> pl.Expr:
    return _read_timestamp(text, pattern, zone).dt.epoch("us") // 1_000


def _read_days(text: pl.Expr, pattern: str, zone: Zone) -> pl.Expr:
    return _read_date(text, pattern, zone).cast(pl.Int32)


def _format(name: str, kind: ColumnType, build: Build) -> Callable[[Arguments], Operand]:
    return lambda arguments: by_pattern(name, build, coerce(arguments[0], kind, name), arguments[1:], STRING)


def _parse(name: str, build: Build, result: ColumnType) -> Callable[[Arguments], Operand]:
    return lambda arguments: by_pattern(name, build, texts_of(name, arguments[:1])[0], arguments[1:], result)


def timestamp_to_string(arguments: Arguments) -> Operand:
    instant = instant_of_ms(whole("timestamp_to_string", arguments[0]))
    return by_pattern("timestamp_to_string", _timestamp_text, instant, arguments[1:], STRING)


def date_to_string(arguments: Arguments) -> Operand:
    days = whole("date_to_string", arguments[0]).cast(pl.Int32, strict=False)
    return by_pattern("date_to_string", _date_text, days.cast(pl.Date), arguments[1:], STRING)


_PATTERN: Final = "the pattern is Java's, as 'yyyy-MM-dd HH:mm:ss'"
_ZONE: Final = "the zone, such as 'Europe/Berlin' or '+02:00', is UTC unless it is given"
_NOT_SO: Final = "NULL where the text is not written so"
_UNREAD: Final = gaps.without_result("cast_failed")
_NOON: Final = "CAST('2013-01-02T15:04:05.006Z' AS timestamp)"
TIME_TEXTS: Sequence[Function] = (
    Function(
        "format_date", "date: date, pattern: string", "string", f"The date as a text; {_PATTERN}.",
        (Example("format_date(DATE '2013-01-02', 'd MMM yyyy')", "2 Jan 2013"),), _format("format_date", DATE, _date_text), gaps=_UNREAD,
        ksqldb=("FORMAT_DATE",),
    ),
    Function(
        "format_time", "time: time, pattern: string", "string", f"The time of the day as a text; {_PATTERN}.",
        (Example("format_time(CAST('15:04:05' AS time), 'h:mm a')", "3:04 PM"),), _format("format_time", TIME, _time_text), gaps=_UNREAD,
        ksqldb=("FORMAT_TIME",),
    ),
    Function(
        "format_timestamp", "time: timestamp, pattern: string, zone?: string", "string", f"The time as a text; {_PATTERN}; {_ZONE}.",
        (Example(f"format_timestamp({_NOON}, 'yyyy-MM-dd HH:mm:ss.SSS XXX', 'Europe/Berlin')", "2013-01-02 16:04:05.006 +01:00"),),
        _format("format_timestamp", TIMESTAMP, _timestamp_text), gaps=_UNREAD, elsewhere=("strftime", "date_format", "to_char"),
        ksqldb=("FORMAT_TIMESTAMP",),
    ),
    Function(
        "parse_date", "text: string, pattern: string", "date", f"The date that a text says; {_PATTERN}; {_NOT_SO}, or says a time.",
        (Example("format_date(parse_date('2 Jan 2013', 'd MMM yyyy'), 'yyyyMMdd')", "20130102"),),
        _parse("parse_date", partial(_read_date, is_lenient=True), DATE), gaps=_UNREAD, ksqldb=("PARSE_DATE",),
    ),
    Function(
        "parse_time", "text: string, pattern: string", "time", f"The time of the day that a text says; {_PATTERN}; {_NOT_SO}.",
        (Example("format_time(parse_time('3:04 pm', 'h:mm a'), 'HH:mm')", "15:04"),), _parse("parse_time", _read_time, TIME), gaps=_UNREAD,
        ksqldb=("PARSE_TIME",),
    ),
    Function(
        "parse_timestamp", "text: string, pattern: string, zone?: string", "timestamp",
        f"The time that a text says, whatever it leaves out as on 1970-01-01 at 0:00; {_PATTERN}; {_ZONE}, or the text names one; {_NOT_SO}.",
        (Example("parse_timestamp('2013-01-02 16:04', 'yyyy-MM-dd HH:mm', 'Europe/Berlin')", "2013-01-02T15:04:00Z"),),
        _parse("parse_timestamp", _read_timestamp, TIMESTAMP), gaps=_UNREAD, elsewhere=("strptime",), ksqldb=("PARSE_TIMESTAMP",),
    ),
    Function(
        "timestamp_to_string", "milliseconds: whole number, pattern: string, zone?: string", "string",
        "As `format_timestamp`, of the time that is this many milliseconds after 1970.",
        (Example("timestamp_to_string(1357139045006, 'HH:mm:ss.SSS')", "15:04:05.006"),), timestamp_to_string, gaps=_UNREAD,
        ksqldb=("TIMESTAMPTOSTRING",),
    ),
    Function(
        "string_to_timestamp", "text: string, pattern: string, zone?: string", "bigint", "As `parse_timestamp`, in milliseconds since 1970.",
        (Example("string_to_timestamp('2013-01-02T15:04:05Z', 'yyyy-MM-dd''T''HH:mm:ssX')", 1357139045000),),
        _parse("string_to_timestamp", _read_milliseconds, BIGINT), gaps=_UNREAD, ksqldb=("STRINGTOTIMESTAMP",),
    ),
    Function(
        "date_to_string", "days: whole number, pattern: string", "string", "As `format_date`, of the date this many days after 1970-01-01.",
        (Example("date_to_string(1, 'yyyy-MM-dd')", "1970-01-02"),), date_to_string, gaps=_UNREAD, ksqldb=("DATETOSTRING",),
    ),
    Function(
        "string_to_date", "text: string, pattern: string", "int", f"The date that a text says, in days after 1970-01-01; {_PATTERN}; {_NOT_SO}.",
        (Example("string_to_date('19700102', 'yyyyMMdd')", 1),), _parse("string_to_date", _read_days, INT), gaps=_UNREAD,
        ksqldb=("STRINGTODATE",),
    ),
)  # fmt: skip

"""Functions that compute with dates and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import whole, written_text
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.times.time_texts import by_pattern
from engine.expressions.library.times.time_zones import Zone, zone_of
from engine.expressions.library.times.times import FIRST_INSTANT_MS, LAST_EVENT_TIME_MS
from engine.expressions.types.types import DATE, INT, TIME, TIMESTAMP
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import FIRST_DAY, LAST_DAY, ExpressionInvalid, Operand, coerce

_UNITS_MS: Final = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DAY_MS: Final = 86_400_000
_FARTHEST_MS: Final = LAST_EVENT_TIME_MS - FIRST_INSTANT_MS
"""More than this leads from no time to another."""


def _unit_ms(name: str, argument: Operand) -> int:
    unit = written_text(name, argument).lower()
    found = _UNITS_MS.get(unit.removesuffix("s"))
    if found is None:
        raise ExpressionInvalid(
            "type_mismatch", f"{name} knows milliseconds, seconds, minutes, hours and days, not {unit[:40]!r}"
        )
    return found


def _distance_ms(name: str, arguments: Arguments, sign: int) -> pl.Expr:
    """Return how many milliseconds are added; NULL where they are more than there are."""
    unit_ms = _unit_ms(name, arguments[0])
    most = _FARTHEST_MS // unit_ms
    number = whole(name, arguments[1])
    return once(lambda value: pl.when(value.is_between(-most, most)).then(value * (sign * unit_ms)), number)


def _to_date(name: str, sign: int) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        days = coerce(arguments[2], DATE, name).cast(pl.Int64)
        total = days * _DAY_MS + _distance_ms(name, arguments, sign)

        def bounded(value: pl.Expr) -> pl.Expr:
            found = value.abs() // _DAY_MS * value.sign()
            return pl.when(found.is_between(FIRST_DAY, LAST_DAY)).then(found).cast(pl.Int32).cast(pl.Date)

        return Operand(once(bounded, total), DATE)

    return compiled


def _to_time(name: str, sign: int) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        unit_ms = _unit_ms(name, arguments[0])
        number = whole(name, arguments[1]) % (_DAY_MS // unit_ms)
        millis = coerce(arguments[2], TIME, name).cast(pl.Int64) // 1_000_000
        total = (millis + number * (sign * unit_ms)) % _DAY_MS
        return Operand((total * 1_000_000).cast(pl.Time), TIME)

    return compiled


def _to_timestamp(name: str, sign: int) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        micros = coerce(arguments[2], TIMESTAMP, name).dt.epoch("us")
        total = micros + _distance_ms(name, arguments, sign) * 1_000
        return Operand(once(_timestamp_of, total), TIMESTAMP)

    return compiled


def _timestamp_of(micros: pl.Expr) -> pl.Expr:
    is_known = micros.is_between(FIRST_INSTANT_MS * 1_000, LAST_EVENT_TIME_MS * 1_000 + 999)
    return pl.when(is_known).then(micros).cast(TIMESTAMP.polars)


def convert_tz(arguments: Arguments) -> Operand:
    def shifted(instant: pl.Expr, before: str, after: Zone) -> pl.Expr:
        zone = zone_of(before)
        return once(lambda value: value + (after.local(value) - zone.local(value)), instant)

    return by_pattern("convert_tz", shifted, coerce(arguments[0], TIMESTAMP, "convert_tz"), arguments[1:], TIMESTAMP)


def from_days(arguments: Arguments) -> Operand:
    days = whole("from_days", arguments[0])
    bounded = once(lambda value: pl.when(value.is_between(FIRST_DAY, LAST_DAY)).then(value), days)
    return Operand(bounded.cast(pl.Int32).cast(pl.Date), DATE)


def unix_date(arguments: Arguments) -> Operand:
    return Operand(coerce(arguments[0], DATE, "unix_date").cast(pl.Int32), INT)


_UNIT: Final = "a unit written out: milliseconds, seconds, minutes, hours or days"
_OUTSIDE: Final = gaps.without_result("outside_domain")
_TAKES: Final = "unit: string, number: whole number, "
_NEW_YEAR: Final = "CAST('2013-01-01T00:00:00Z' AS timestamp)"
TIME_ARITHMETIC: Sequence[Function] = (
    Function(
        "date_add", f"{_TAKES}date: date", "date", f"The date this many units later; {_UNIT}. Parts of days are left out.",
        (Example("format_date(date_add('days', 31, DATE '2013-01-01'), 'yyyy-MM-dd')", "2013-02-01"),), _to_date("date_add", 1),
        gaps=_OUTSIDE, elsewhere=("adddate",), ksqldb=("DATEADD",),
    ),
    Function(
        "date_sub", f"{_TAKES}date: date", "date", f"The date this many units earlier; {_UNIT}. Parts of days are left out.",
        (Example("format_date(date_sub('hours', 24, DATE '2013-01-01'), 'yyyy-MM-dd')", "2012-12-31"),), _to_date("date_sub", -1),
        gaps=_OUTSIDE, elsewhere=("subdate",), ksqldb=("DATESUB",),
    ),
    Function(
        "time_add", f"{_TAKES}time: time", "time", f"The time of day this many units later, after midnight from 0:00 on; {_UNIT}.",
        (Example("format_time(time_add('hours', 2, CAST('23:30:00' AS time)), 'HH:mm')", "01:30"),), _to_time("time_add", 1),
        ksqldb=("TIMEADD",),
    ),
    Function(
        "time_sub", f"{_TAKES}time: time", "time", f"The time of day this many units earlier, before midnight from 24:00 on; {_UNIT}.",
        (Example("format_time(time_sub('minutes', 31, CAST('00:30:00' AS time)), 'HH:mm')", "23:59"),), _to_time("time_sub", -1),
        ksqldb=("TIMESUB",),
    ),
    Function(
        "timestamp_add", f"{_TAKES}time: timestamp", "timestamp", f"The time this many units later; {_UNIT}.",
        (Example(f"timestamp_add('minutes', 90, {_NEW_YEAR})", "2013-01-01T01:30:00Z"),), _to_timestamp("timestamp_add", 1),
        gaps=_OUTSIDE, elsewhere=("dateadd",), ksqldb=("TIMESTAMPADD",),
    ),
    Function(
        "timestamp_sub", f"{_TAKES}time: timestamp", "timestamp", f"The time this many units earlier; {_UNIT}.",
        (Example(f"timestamp_sub('days', 1, {_NEW_YEAR})", "2012-12-31T00:00:00Z"),), _to_timestamp("timestamp_sub", -1),
        gaps=_OUTSIDE, ksqldb=("TIMESTAMPSUB",),
    ),
    Function(
        "convert_tz", "time: timestamp, from: string, to: string", "timestamp",
        "The time moved by how much clocks in the zone `to` are ahead of those in the zone `from`.",
        (Example(f"convert_tz({_NEW_YEAR}, 'UTC', 'Asia/Tokyo')", "2013-01-01T09:00:00Z"),), convert_tz, gaps=_OUTSIDE,
        ksqldb=("CONVERT_TZ",),
    ),
    Function(
        "from_days", "days: whole number", "date", "The date that is this many days after 1970-01-01; NULL outside the years 1 to 9999.",
        (Example("format_date(from_days(365), 'yyyy-MM-dd')", "1971-01-01"),), from_days, gaps=_OUTSIDE, ksqldb=("FROM_DAYS",),
    ),
    Function(
        "unix_date", "date: date", "int",
        "Days after 1970-01-01. There is no day of today: a result must not depend on when it is computed.",
        (Example("unix_date(DATE '1970-01-11')", 10),), unix_date,
        ksqldb=("UNIX_DATE",),
    ),
)  # fmt: skip

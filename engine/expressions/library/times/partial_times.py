"""Dates and times in texts as ksqlDB's CAST reads them: their ends may be missing (``2013-01``, ``2013-01-02T03``)."""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.expressions.library.times.time_parsing import ParsedFields, Reading, reading_of
from engine.expressions.library.times.time_patterns import Letters, parts_of
from engine.expressions.library.times.time_zones import UTC
from engine.expressions.types.types import DATE, STRING
from engine.expressions.values.once import once
from engine.expressions.values.operands import Operand, cast

_TIMESTAMP: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS[VV]"
_MIDNIGHT: Final = "00:00:00.000"
_TIME: Final = Reading(
    r"^(?P<all>(?P<H>[0-9]{2}):(?P<m>[0-9]{2})(?::(?P<s>[0-9]{2})(?:\.(?P<S>[0-9]{0,9}))?)?)$",
    {letter: Letters(letter, count) for letter, count in (("H", 2), ("m", 2), ("s", 2), ("S", 9))},
)


def date_of(text: pl.Expr) -> pl.Expr:
    """Return the date, NULL where the text is none."""
    return cast(Operand(once(_whole_date, text), STRING), DATE).expr


def time_of(text: pl.Expr) -> pl.Expr:
    """Return the time of the day to the millisecond, NULL where the text is none."""

    def time(groups: pl.Expr) -> pl.Expr:
        found = ParsedFields(_TIME, groups)
        return pl.when(found.is_read).then(found.nanos() // 1_000_000 * 1_000_000).cast(pl.Time)

    return once(time, _TIME.groups(text))


def timestamp_of(text: pl.Expr) -> pl.Expr:
    """Return the instant, NULL where the text is none."""
    reading = reading_of(parts_of(_TIMESTAMP))
    return once(lambda groups: ParsedFields(reading, groups).instant(UTC), reading.groups(once(_whole_timestamp, text)))


def _whole_date(text: pl.Expr) -> pl.Expr:
    """Add the month and the day that a date has not."""
    count = text.str.count_matches("-", literal=True)
    missing = pl.when(count == 0).then(pl.lit("-01-01")).when(count == 1).then(pl.lit("-01")).otherwise(pl.lit(""))
    return pl.when(text.str.contains("^[0-9]{4}(?:-[0-9]{2}){0,2}$")).then(pl.concat_str(text, missing))


def _whole_timestamp(text: pl.Expr) -> pl.Expr:
    """Add what a time has not; only one without a time of the day may lack parts of the date."""
    date, behind = text.str.extract("^([^T]*)T"), text.str.extract("T(.*)$")
    zone = pl.coalesce(behind.str.extract(r"^[^+]*(\+.*)$"), behind.str.extract("^[^-+]*(-.*)$"), pl.lit(""))
    clock = behind.str.extract("^([^-+]*)").str.strip_suffix("Z")
    time = pl.concat_str(clock, pl.lit(_MIDNIGHT).str.slice(clock.str.len_chars()))
    only_date = pl.concat_str(_whole_date(text), pl.lit(f"T{_MIDNIGHT}"))
    return pl.when(text.str.contains("T", literal=True)).then(pl.concat_str(date, pl.lit("T"), time, zone)).otherwise(only_date)

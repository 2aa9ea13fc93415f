"""Functions of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import whole, written_text
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import BIGINT, INT, TIMESTAMP
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce

FIRST_INSTANT_MS, LAST_EVENT_TIME_MS = -62_135_596_800_000, 253_402_300_799_999
"""The beginning of the year 1, and the end of the year 9999, the last instant an event time may have (T8)."""

_TRUNCATIONS = {
    "second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "quarter": "1q", "year": "1y",
}  # fmt: skip
_FIELDS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "year": lambda e: e.dt.year(),
    "quarter": lambda e: e.dt.quarter(),
    "month": lambda e: e.dt.month(),
    "week": lambda e: e.dt.week(),
    "day": lambda e: e.dt.day(),
    "doy": lambda e: e.dt.ordinal_day(),
    "isodow": lambda e: e.dt.weekday(),
    "dow": lambda e: e.dt.weekday().cast(pl.Int32) % 7,
    "hour": lambda e: e.dt.hour(),
    "minute": lambda e: e.dt.minute(),
    "second": lambda e: e.dt.second(),
}


def extract(field: str, moment: Operand) -> Operand:
    """Compile ``EXTRACT(field FROM moment)``, always an int; seconds are whole. Raises ExpressionInvalid."""
    build = _FIELDS.get(field.lower())
    if build is None:
        raise ExpressionInvalid("type_mismatch", f"extract knows {', '.join(_FIELDS)}, not {field[:40]!r}")
    return Operand(build(coerce(moment, TIMESTAMP, "extract")).cast(pl.Int32), INT)


def date_trunc(arguments: Arguments) -> Operand:
    unit = written_text("date_trunc", arguments[0]).lower()
    if unit not in _TRUNCATIONS:
        raise ExpressionInvalid("type_mismatch", f"date_trunc knows {', '.join(_TRUNCATIONS)}, not {unit[:40]!r}")
    return Operand(coerce(arguments[1], TIMESTAMP, "date_trunc").dt.truncate(_TRUNCATIONS[unit]), TIMESTAMP)


def to_timestamp(arguments: Arguments) -> Operand:
    return Operand(instant_of_ms(whole("to_timestamp", arguments[0])), TIMESTAMP)


def instant_of_ms(ms: pl.Expr) -> pl.Expr:
    """Return the time so many milliseconds after 1970, NULL outside the years 1 to 9999."""
    bounded = once(lambda value: pl.when(value.is_between(FIRST_INSTANT_MS, LAST_EVENT_TIME_MS)).then(value), ms)
    return (bounded * 1_000).cast(TIMESTAMP.polars)


def epoch_ms(arguments: Arguments) -> Operand:
    return Operand(coerce(arguments[0], TIMESTAMP, "epoch_ms").dt.epoch("ms"), BIGINT)


TIMES: Sequence[Function] = (
    Function(
        "date_trunc", "unit: string, time: timestamp", "timestamp",
        "The beginning (UTC) of the second, minute, hour, day, week, month, quarter or year (written out) that the time lies in.",
        (Example("date_trunc('hour', CAST('2013-01-01T12:34:56Z' AS timestamp))", "2013-01-01T12:00:00Z"),), date_trunc,
        elsewhere=("datetrunc",),
    ),
    Function(
        "to_timestamp", "milliseconds: whole number", "timestamp", "Milliseconds after 1970 as a time; NULL outside the years 1 to 9999.",
        (Example("to_timestamp(1357041600000)", "2013-01-01T12:00:00Z"),), to_timestamp,
        gaps=gaps.without_result("outside_domain"), elsewhere=("from_unixtime",), ksqldb=("FROM_UNIXTIME",),
    ),
    Function(
        "epoch_ms", "time: timestamp", "bigint", "Milliseconds since 1970.",
        (Example("epoch_ms(CAST('2013-01-01T12:00:00Z' AS timestamp))", 1357041600000),), epoch_ms,
        elsewhere=("unix_millis",), ksqldb=("UNIX_TIMESTAMP",),
    ),
)  # fmt: skip

"""Writing dates and times by Java's patterns (``time_patterns``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from engine.expressions.library.times.time_patterns import DAYS, MONTHS, Letters, Optional, Part
from engine.expressions.library.times.time_zones import Zone
from engine.expressions.values.operands import ExpressionInvalid

_TIME: Final = frozenset(
    {
        "half of the day",
        "hour",
        "minute",
        "second",
        "fraction of a second",
        "millisecond of the day",
        "nanosecond",
        "nanosecond of the day",
    }
)
DATE_FIELDS: Final = frozenset({"year", "day of the year", "month", "day", "quarter", "day of the week"})


@dataclass(frozen=True)
class Moment:
    """What is written.

    Attributes:
        kind: what it is, for messages.
        local: an expression of a datetime without a zone, a date or a time.
        fields: what it has of ``time_patterns.FIELDS``.
        instant: where it has a zone: the instant.
        zone: the zone.
    """

    kind: str
    local: pl.Expr
    fields: frozenset[str]
    instant: pl.Expr | None = None
    zone: Zone | None = None

    @staticmethod
    def of_date(date: pl.Expr) -> Moment:
        return Moment("date", date, DATE_FIELDS)

    @staticmethod
    def of_time(time: pl.Expr) -> Moment:
        return Moment("time", time, _TIME)

    @staticmethod
    def of_timestamp(instant: pl.Expr, zone: Zone) -> Moment:
        return Moment("timestamp", zone.local(instant), DATE_FIELDS | _TIME | {"zone"}, instant, zone)


def formatted(parts: Sequence[Part], moment: Moment) -> pl.Expr:
    """Return the text of a moment.

    Raises:
        ExpressionInvalid: ``type_mismatch``: it has not what a letter stands for.
    """
    texts = _texts(parts, moment)
    return pl.concat_str([pl.when(moment.local.is_not_null()).then(pl.lit("")), *texts])


def _texts(parts: Sequence[Part], moment: Moment) -> list[pl.Expr]:
    found: list[pl.Expr] = []
    for part in parts:
        if isinstance(part, str):
            found.append(pl.lit(part))
        elif isinstance(part, Optional):
            is_there = all(letters.field in moment.fields for letters in _all_letters(part))
            found += _texts(part.parts, moment) if is_there else []
        else:
            if part.field not in moment.fields:
                detail = f"a {moment.kind} has no {part.field}: {part.letter * part.count} of the pattern cannot be written"
                raise ExpressionInvalid("type_mismatch", detail)
            found.append(_zone(part, moment) if part.field == "zone" else _WRITERS[part.letter](moment.local, part.count))
    return found


def _all_letters(part: Optional) -> list[Letters]:
    inner = [each for each in part.parts if isinstance(each, Letters)]
    return [*inner, *(letters for each in part.parts if isinstance(each, Optional) for letters in _all_letters(each))]


def _padded(number: pl.Expr, width: int) -> pl.Expr:
    text = number.cast(pl.String)
    return text if width < 2 else text.str.zfill(width)


def _year(local: pl.Expr, count: int) -> pl.Expr:
    return _padded(local.dt.year() % 100, 2) if count == 2 else _padded(local.dt.year(), count)


def _named(number: pl.Expr, names: Sequence[str], count: int) -> pl.Expr:
    length = {3: 3, 5: 1}.get(count)
    shown = [name[:length] for name in names]
    return number.cast(pl.Int32).replace_strict(list(range(1, len(shown) + 1)), shown, return_dtype=pl.String)


def _month(local: pl.Expr, count: int) -> pl.Expr:
    return _padded(local.dt.month(), count) if count < 3 else _named(local.dt.month(), MONTHS, count)


def _quarter(local: pl.Expr, count: int) -> pl.Expr:
    quarter = local.dt.quarter()
    if count < 3:
        return _padded(quarter, count)
    names = ("Q1", "Q2", "Q3", "Q4") if count == 3 else ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
    return quarter.cast(pl.Int32).replace_strict([1, 2, 3, 4], names, return_dtype=pl.String)


def _hour_of_half(local: pl.Expr) -> pl.Expr:
    return local.dt.hour().cast(pl.Int32) % 12


def _nanos(local: pl.Expr) -> pl.Expr:
    return local.dt.nanosecond().cast(pl.Int64)


def _seconds(local: pl.Expr) -> pl.Expr:
    hours, minutes, seconds = (part.cast(pl.Int64) for part in (local.dt.hour(), local.dt.minute(), local.dt.second()))
    return hours * 3600 + minutes * 60 + seconds


_WRITERS: Final[dict[str, Callable[[pl.Expr, int], pl.Expr]]] = {
    "y": _year,
    "u": _year,
    "D": lambda local, count: _padded(local.dt.ordinal_day(), count),
    "M": _month,
    "L": _month,
    "d": lambda local, count: _padded(local.dt.day(), count),
    "Q": _quarter,
    "q": _quarter,
    "E": lambda local, count: _named(local.dt.weekday(), DAYS, max(count, 3)),
    "a": lambda local, _: pl.when(local.dt.hour() < 12).then(pl.lit("AM")).otherwise(pl.lit("PM")),
    "h": lambda local, count: _padded((_hour_of_half(local) + 11) % 12 + 1, count),
    "K": lambda local, count: _padded(_hour_of_half(local), count),
    "k": lambda local, count: _padded((local.dt.hour().cast(pl.Int32) + 23) % 24 + 1, count),
    "H": lambda local, count: _padded(local.dt.hour(), count),
    "m": lambda local, count: _padded(local.dt.minute(), count),
    "s": lambda local, count: _padded(local.dt.second(), count),
    "S": lambda local, count: _padded(_nanos(local) // 10 ** (9 - count), count),
    "A": lambda local, count: _padded(_seconds(local) * 1_000 + _nanos(local) // 1_000_000, count),
    "n": lambda local, count: _padded(_nanos(local), count),
    "N": lambda local, count: _padded(_seconds(local) * 1_000_000_000 + _nanos(local), count),
}


def _zone(part: Letters, moment: Moment) -> pl.Expr:
    if moment.zone is None or moment.instant is None:
        raise ExpressionInvalid("type_mismatch", f"a {moment.kind} has no zone")
    if part.letter == "V":
        return pl.lit(moment.zone.name)
    if part.letter == "z":
        return moment.zone.short_name(moment.instant)
    offset = (moment.local - moment.instant.dt.replace_time_zone(None)).dt.total_seconds()
    sign = pl.when(offset < 0).then(pl.lit("-")).otherwise(pl.lit("+"))
    size = offset.abs()
    hours, minutes, seconds = size // 3600, size % 3600 // 60, size % 60
    if part.letter == "O":
        rest = pl.when(minutes > 0).then(pl.concat_str([pl.lit(":"), _padded(minutes, 2)])).otherwise(pl.lit(""))
        return pl.when(offset == 0).then(pl.lit("GMT")).otherwise(pl.concat_str([pl.lit("GMT"), sign, _padded(hours, 1), rest]))
    count = {1: 2, 2: 2, 3: 2, 5: 5}[part.count] if part.letter == "Z" else part.count
    colon = pl.lit(":" if count in (3, 5) else "")
    with_minutes = pl.concat_str([colon, _padded(minutes, 2)])
    if count == 1:
        with_minutes = pl.when(minutes > 0).then(with_minutes).otherwise(pl.lit(""))
    with_seconds = pl.lit("")
    if count > 3:
        with_seconds = pl.when(seconds > 0).then(pl.concat_str([colon, _padded(seconds, 2)])).otherwise(pl.lit(""))
    text = pl.concat_str([sign, _padded(hours, 2), with_minutes, with_seconds])
    is_z = part.letter == "X" or (part.letter == "Z" and part.count == 5)
    return pl.when(offset == 0).then(pl.lit("Z")).otherwise(text) if is_z else text

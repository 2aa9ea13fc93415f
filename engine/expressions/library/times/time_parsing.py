"""Reading dates and times by Java's patterns (``time_patterns``): a regular expression finds the fields, which then make a date and a time.

ksqlDB's CAST also reads texts whose ends are missing (``2013-01``, ``2013-01-02T03``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from engine.expressions.library.times.time_patterns import DAYS, MONTHS, Letters, Optional, Part, letters_of, parts_of
from engine.expressions.library.times.time_zones import UTC, Zone, zone_of
from engine.expressions.types.types import DATE, STRING
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, cast

_ALL: Final = "all"


@dataclass(frozen=True)
class Reading:
    """How texts are read.

    Attributes:
        regex: finds the fields: a group for each letter.
        letters: the letters, by their name.
    """

    regex: str
    letters: dict[str, Letters]

    @property
    def fields(self) -> frozenset[str]:
        """What is read."""
        return frozenset(each.field for each in self.letters.values())

    def groups(self, text: pl.Expr) -> pl.Expr:
        """Return a struct of the texts of all fields; all are null where a text is not written so."""
        return text.str.extract_groups(self.regex)


def reading_of(parts: Sequence[Part], *, is_lenient: bool = False) -> Reading:
    """Return how texts of a pattern are read; letter case does not count.

    Args:
        parts: of the pattern.
        is_lenient: numbers may have fewer digits than letters where no other number follows, and something may stand behind all.

    Raises:
        ExpressionInvalid: ``type_mismatch``: a letter stands there twice.
    """
    letters = list(letters_of(parts))
    names = [each.letter for each in letters]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ExpressionInvalid("type_mismatch", f"the pattern has {twice} in two places, of which one would not count")
    following = dict(zip(letters, [*letters[1:], None], strict=True))
    inner = _regex(parts, following, is_lenient=is_lenient)
    return Reading(f"(?is)^(?P<{_ALL}>{inner})" + ("" if is_lenient else "$"), {each.letter: each for each in letters})


def _regex(parts: Sequence[Part], following: dict[Letters, Letters | None], *, is_lenient: bool) -> str:
    found = []
    for place, part in enumerate(parts):
        if isinstance(part, str):
            found.append(pl.escape_regex(part))
        elif isinstance(part, Optional):
            found.append(f"(?:{_regex(part.parts, following, is_lenient=is_lenient)})?")
        else:
            after = parts[place + 1] if place + 1 < len(parts) else None
            is_free = is_lenient and part.is_number and not (isinstance(after, Letters) and after.is_number)
            found.append(f"(?P<{part.letter}>{r'[0-9]{1,9}' if is_free else _of_letters(part)})")
    return "".join(found)


def _of_letters(part: Letters) -> str:
    letter, count = part.letter, part.count
    if letter in "yu":
        return r"[0-9]{1,4}" if count == 1 else rf"[0-9]{{{count}}}"
    if letter in "ML" and count > 2:
        return _one_of(MONTHS, count)
    if letter == "E":
        return _one_of(DAYS, max(count, 3))
    if letter in "Qq":
        return {1: r"[1-4]", 2: r"0[1-4]", 3: r"Q[1-4]", 4: r"(?:1st|2nd|3rd|4th) quarter"}[count]
    if letter == "a":
        return "AM|PM"
    if letter == "S":
        return rf"[0-9]{{{count}}}"
    if letter in "AnN":
        return rf"[0-9]{{{count},15}}"
    if part.field == "zone":
        return _of_zone(letter, count)
    longest = 3 if letter == "D" else 2
    return rf"[0-9]{{{count},{longest}}}" if count < 2 or letter == "D" else rf"[0-9]{{{count}}}"


def _one_of(names: Sequence[str], count: int) -> str:
    if count == 5:
        raise ExpressionInvalid("type_mismatch", "single letters of months and days do not tell them apart")
    return "|".join(name[:3] if count == 3 else name for name in names)


def _of_zone(letter: str, count: int) -> str:
    if letter in "Vz":
        return r"[A-Za-z][A-Za-z0-9/_+\-]*(?::[0-9]{2})?|[+-][0-9]{2}:?[0-9]{2}"
    if letter == "O":
        return r"GMT(?:[+-][0-9]{1,2}(?::[0-9]{2})?)?"
    if letter == "Z":
        return r"Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?" if count == 5 else r"[+-][0-9]{4}"
    number = {
        1: r"[+-][0-9]{2}(?:[0-9]{2})?", 2: r"[+-][0-9]{4}", 3: r"[+-][0-9]{2}:[0-9]{2}", 4: r"[+-][0-9]{4}(?:[0-9]{2})?",
        5: r"[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?",
    }[count]  # fmt: skip
    return f"Z|{number}" if letter == "X" else number


class ParsedFields:
    """The fields of texts.

    Args:
        reading: how they were read.
        groups: what ``Reading.groups`` made.
    """

    def __init__(self, reading: Reading, groups: pl.Expr) -> None:
        self._letters = reading.letters
        self._groups = groups
        self.is_read = groups.struct.field(_ALL).is_not_null()

    def _number(self, *letters: str) -> pl.Expr | None:
        letter = next((each for each in letters if each in self._letters), None)
        return None if letter is None else self._groups.struct.field(letter).cast(pl.Int64, strict=False)

    def date(self) -> pl.Expr:
        """Return the date; what it does not say is that of 1970-01-01. A day behind its month's end is the last one of the month."""
        year = _or(self._year(), 1970)
        day_of_year = self._number("D")
        if day_of_year is not None:
            ordinal = _or(day_of_year, 1)
            date = pl.date(_within(year, 1, 9999), 1, 1) + pl.duration(days=_within(ordinal, 1, 366) - 1)
            return pl.when(date.dt.year() == year).then(date)
        month, day = _within(_or(self._month(), 1), 1, 12), _within(_or(self._number("d"), 1), 1, 31)
        first = pl.date(_within(year, 1, 9999), month, 1)
        return (
            first
            + pl.duration(days=pl.min_horizontal(day, first.dt.days_in_month().cast(pl.Int64)) - 1)
            + pl.duration(days=day * 0)
        )

    def _year(self) -> pl.Expr | None:
        letter = "y" if "y" in self._letters else "u"
        year = self._number(letter)
        if year is None or self._letters[letter].count != 2:
            return year
        return pl.when(year < 100).then(year + 2000).otherwise(year)

    def _month(self) -> pl.Expr | None:
        letter = "M" if "M" in self._letters else "L"
        if letter not in self._letters or self._letters[letter].is_number:
            return self._number(letter)
        name = self._groups.struct.field(letter).str.to_lowercase().str.slice(0, 3)
        return name.replace_strict(
            [month[:3].lower() for month in MONTHS], list(range(1, 13)), default=None, return_dtype=pl.Int64
        )

    def nanos(self) -> pl.Expr:
        """Return the nanosecond of the day; what is not said is 0."""
        whole = self._number("N")
        if whole is not None:
            return _within(_or(whole, 0), 0, 86_400_000_000_000 - 1)
        millis = self._number("A")
        if millis is not None:
            return _within(_or(millis, 0), 0, 86_400_000 - 1) * 1_000_000
        minute, second = (_within(_or(self._number(letter), 0), 0, 59) for letter in "ms")
        return ((self._hour() * 60 + minute) * 60 + second) * 1_000_000_000 + self._fraction()

    def time(self) -> pl.Expr:
        """Return the time of the day to the millisecond."""
        return pl.when(self.is_read).then(self.nanos() // 1_000_000 * 1_000_000).cast(pl.Time)

    def _hour(self) -> pl.Expr:
        if "H" in self._letters:
            return _within(_or(self._number("H"), 0), 0, 23)
        if "k" in self._letters:
            return _within(_or(self._number("k"), 24), 1, 24) % 24
        hour = (
            _within(_or(self._number("h"), 12), 1, 12) % 12 if "h" in self._letters else _within(_or(self._number("K"), 0), 0, 11)
        )
        if "a" not in self._letters:
            return hour
        is_late = self._groups.struct.field("a").str.to_lowercase().eq_missing(pl.lit("pm"))
        return hour + pl.when(is_late).then(12).otherwise(0)

    def _fraction(self) -> pl.Expr:
        if "n" in self._letters:
            return _within(_or(self._number("n"), 0), 0, 999_999_999)
        if "S" not in self._letters:
            return pl.lit(0, pl.Int64)
        digits = self._groups.struct.field("S").str.pad_end(9, "0")
        return _or(digits.cast(pl.Int64, strict=False), 0)

    def local(self) -> pl.Expr:
        """Return the date and the time without a zone."""
        micros = self.nanos() // 1_000
        local = self.date().cast(pl.Datetime("us")) + pl.duration(microseconds=micros)
        return pl.when(self.is_read & self._is_day(local)).then(local)

    def _is_day(self, local: pl.Expr) -> pl.Expr:
        """Say whether the day of the week that a text names is that of its date; without a whole date it says nothing."""
        if "E" not in self._letters or not {"year", "month", "day"} <= {each.field for each in self._letters.values()}:
            return pl.lit(value=True)
        names = pl.Series([day[:3].lower() for day in DAYS])
        name = self._groups.struct.field("E").str.to_lowercase().str.slice(0, 3)
        number = name.replace_strict(names, pl.Series(range(1, 8)), default=None, return_dtype=pl.Int64)
        return number.is_null() | (number == local.dt.weekday())

    def instant(self, zone: Zone) -> pl.Expr:
        """Return the instant.

        Args:
            zone: of texts that name none.
        """
        letter = next((each.letter for each in self._letters.values() if each.field == "zone"), None)
        if letter is None:
            return zone.instant(self.local())
        name = self._groups.struct.field(letter)
        both = pl.struct(self.local().alias("local"), name.alias("zone"))
        return both.map_batches(lambda given: _instants(given, zone), return_dtype=pl.Datetime("us", "UTC"), is_elementwise=True)


def _instants(given: pl.Series, otherwise: Zone) -> pl.Series:
    """Return instants of local times, zone by zone."""
    frame = given.struct.unnest().with_row_index("row")
    done = [frame.clear().select("row", pl.col("local").dt.replace_time_zone("UTC").alias("instant"))]
    for (name,), rows in frame.group_by("zone"):
        zone = otherwise if name is None else _known(str(name))
        instant = pl.lit(None) if zone is None else zone.instant(pl.col("local"))
        done.append(rows.select("row", instant.cast(pl.Datetime("us", "UTC")).alias("instant")))
    return pl.concat(done).sort("row").get_column("instant")


def _known(name: str) -> Zone | None:
    try:
        return zone_of(name.upper() if name.lower() in ("z", "utc", "gmt") else name)
    except ExpressionInvalid:
        return None


def _or(number: pl.Expr | None, otherwise: int) -> pl.Expr:
    return pl.lit(otherwise, pl.Int64) if number is None else number.fill_null(otherwise)


def _within(number: pl.Expr, low: int, high: int) -> pl.Expr:
    return pl.when(number.is_between(low, high)).then(number)


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
    return once(lambda groups: ParsedFields(_TIME, groups).time(), _TIME.groups(text))


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

"""Patterns of dates and times as Java's ``DateTimeFormatter`` reads them: letters, quoted texts and optional parts in brackets.

Of letters that depend on a country's weeks, and of eras and padding, there are none here: they are refused by name. Texts are English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.expressions.values.operands import ExpressionInvalid

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

FIELDS: Final = {
    "y": "year", "u": "year", "D": "day of the year", "M": "month", "L": "month", "d": "day", "Q": "quarter", "q": "quarter",
    "E": "day of the week", "a": "half of the day", "h": "hour", "K": "hour", "k": "hour", "H": "hour", "m": "minute", "s": "second",
    "S": "fraction of a second", "A": "millisecond of the day", "n": "nanosecond", "N": "nanosecond of the day", "V": "zone", "z": "zone",
    "O": "zone", "X": "zone", "x": "zone", "Z": "zone",
}  # fmt: skip
"""Letters → what they stand for."""

_LONGEST: Final = {
    "D": 3, "d": 2, "Q": 4, "q": 4, "M": 5, "L": 5, "E": 5, "a": 1, "h": 2, "K": 2, "k": 2, "H": 2, "m": 2, "s": 2, "S": 9, "V": 2,
    "z": 3, "O": 1, "X": 5, "x": 5, "Z": 5,
}  # fmt: skip
_MOST_DIGITS: Final = 19
_OF_WEEKS: Final = "eFwWYc"
_OTHERS: Final = "GpBgv"
_PART = re.compile(r"''|'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)

MAX_PATTERN_CHARS: Final = 200
"""Nobody means a longer one."""


@dataclass(frozen=True, slots=True)
class Letters:
    """A letter so many times.

    Attributes:
        letter: which one.
        count: how often.
    """

    letter: str
    count: int

    @property
    def field(self) -> str:
        """What it stands for."""
        return FIELDS[self.letter]

    @property
    def is_number(self) -> bool:
        """Whether it is written in digits."""
        if self.letter in "MLQq":
            return self.count < 3
        return self.letter not in "EaVzOXxZ"


@dataclass(frozen=True, slots=True)
class Optional:
    """What stands in brackets: left out where a text does not have it."""

    parts: tuple[Part, ...]


Part = str | Letters | Optional
"""A text that stands for itself, letters, or an optional part."""


@lru_cache(maxsize=1_000)
def parts_of(pattern: str) -> tuple[Part, ...]:
    """Read a pattern.

    Raises:
        ExpressionInvalid: ``type_mismatch``: it is none, or has what is not supported.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise _refused(pattern, f"may have {MAX_PATTERN_CHARS} characters")
    open_parts: list[list[Part]] = [[]]
    for found in _PART.finditer(pattern):
        written = found[0]
        if written == "[":
            open_parts.append([])
        elif written == "]":
            if len(open_parts) == 1:
                raise _refused(pattern, "closes a bracket ] that is not open")
            inner = Optional(tuple(open_parts.pop()))
            open_parts[-1].append(inner)
        else:
            open_parts[-1].append(_part(pattern, written, found[1], found[2]))
    if len(open_parts) > 1:
        raise _refused(pattern, "leaves a bracket [ open")
    return tuple(open_parts[0])


def letters_of(parts: Sequence[Part]) -> Iterator[Letters]:
    """Yield all letters, in order."""
    for part in parts:
        if isinstance(part, Letters):
            yield part
        elif isinstance(part, Optional):
            yield from letters_of(part.parts)


def _part(pattern: str, written: str, quoted: str | None, letter: str | None) -> Part:
    if written == "''":
        return "'"
    if quoted is not None:
        return quoted.replace("''", "'")
    if letter is not None:
        return _letters(pattern, letter, len(written))
    if written == "'":
        raise _refused(pattern, "leaves a quote open")
    if written in "{}#":
        raise _refused(pattern, f"has {written}, which means nothing yet; put it into quotes")
    return written


def _letters(pattern: str, letter: str, count: int) -> Letters:
    if letter in _OF_WEEKS:
        raise _refused(pattern, f"has {letter}, which depends on a country's weeks and is not supported")
    if letter in _OTHERS:
        raise _refused(pattern, f"has {letter}, which is not supported")
    if letter not in FIELDS:
        raise _refused(pattern, f"has the letter {letter}, which means nothing; put texts into quotes, as in 'T'")
    if count > _LONGEST.get(letter, _MOST_DIGITS) or (letter == "V" and count != 2) or (letter == "Z" and count == 4):
        raise _refused(pattern, f"has {letter * count}: so many of that letter are not supported")
    return Letters(letter, count)


def _refused(pattern: str, why: str) -> ExpressionInvalid:
    return ExpressionInvalid("type_mismatch", f"the pattern {pattern[:60]!r} {why}")

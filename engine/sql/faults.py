"""What is wrong with a text of the language, and where. The sentence for it depends on what the text is for, so others make it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

FaultKind = Literal[
    "alias", "argument_name", "cast_of_typed_text", "character", "columns_and_query", "comment", "curly_quote", "field", "field_of_value",
    "incomplete", "interval", "letter", "name", "not_in_list", "open_quote", "order", "other_sql", "parameter", "pattern", "query",
    "read_only", "script_too_long", "separator", "time_zone", "too_deep", "too_long", "too_many", "try_cast", "tuple", "unexpected",
    "variable", "variable_value", "window_function",
]  # fmt: skip
"""What was found: something that the language has not but people try, or ``unexpected``, or nothing more where more is needed."""


_LONGEST_WORD: Final = 20
"""Longer names are no misspelt words of the language; comparing them takes its time."""

_LIKENESS: Final = 0.7
"""As difflib counts it: a letter too many, too few or wrong in a word of four."""


@dataclass(frozen=True, slots=True)
class Misspelt:
    """A word that is spelt almost like one that could stand in its place."""

    written: str
    meant: str


def meant(written: str, words: Sequence[str]) -> str | None:
    """Return which of the words somebody may have meant, who wrote another one."""
    if not 2 <= len(written) <= _LONGEST_WORD or written in words:
        return None
    return next(iter(difflib.get_close_matches(written, words, 1, _LIKENESS)), None)


class SyntaxFault(Exception):
    """A text that is none of the language.

    Attributes:
        kind: what was found.
        start: of what does not fit: its first character, from 0.
        end: behind its last one.
        expected: what would fit there, in words; '' where ``kind`` says all.
        misspelt: a word there or right before that could be meant as another one.
    """

    def __init__(self, kind: FaultKind, start: int, end: int, expected: str = "", misspelt: Misspelt | None = None) -> None:
        super().__init__(f"{kind} at {start}")
        self.kind, self.start, self.end, self.expected, self.misspelt = kind, start, end, expected, misspelt


class ListTooLong(SyntaxFault):
    """A list of values, arguments or branches beyond its bound.

    Attributes:
        of: the list: ``IN``, ``CASE``, ``||``, or the function whose arguments they are.
        count: how many there are.
        most: how many there may be.
    """

    def __init__(self, of: str, count: int, most: int, start: int, end: int) -> None:
        super().__init__("too_long", start, end)
        self.of, self.count, self.most = of, count, most

"""What is wrong with a text of the language, and where. The sentence for it depends on what the text is for, so others make it."""

from __future__ import annotations

from typing import Literal

FaultKind = Literal[
    "alias", "argument_name", "cast_of_typed_text", "comment", "element", "field", "field_of_value", "incomplete", "interval", "lambda",
    "not_in_list", "open_quote", "parameter", "pattern", "query", "separator", "too_deep", "too_long", "tuple", "try_cast", "unexpected",
    "window_function",
]  # fmt: skip
"""What was found: something that the language has not but people try, or ``unexpected``, or nothing more where more is needed."""


class SyntaxFault(Exception):
    """A text that is none of the language.

    Attributes:
        kind: what was found.
        start: of what does not fit: its first character, from 0.
        end: behind its last one.
        expected: what would fit there, in words; '' where ``kind`` says all.
    """

    def __init__(self, kind: FaultKind, start: int, end: int, expected: str = "") -> None:
        super().__init__(f"{kind} at {start}")
        self.kind, self.start, self.end, self.expected = kind, start, end, expected


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

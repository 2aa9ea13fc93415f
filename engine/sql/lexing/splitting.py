"""Cuts a script into statements and puts values in for ``${name}``. A statement ends with ``;``; the last one may do without."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.sql.faults import SyntaxFault
from engine.sql.lexing.tokens import statement_tokens

_PIECE: Final = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*+|/\*.*?\*/)
    | /\*.*
    | (?P<end>;)
    | (?P<variable>\$\{[A-Za-z_][A-Za-z0-9_]*\})
    | (?P<text>'[^']*+(?:''[^']*+)*+'?)
    | "[^"]*+(?:""[^"]*+)*+"?
    | `[^`]*+(?:``[^`]*+)*+`?
    | \$\$.*?(?:\$\$|\Z)
    | [^\s;"'`$/-]++
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
"""What matters for cutting. What is not closed goes to the end, so that each character is read once."""

_IN_TEXT: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Cut:
    """A statement of a script: from its first character to behind its last, without comments around it and its semicolon."""

    start: int
    end: int


def cuts_of(script: str) -> Iterator[Cut]:
    """Yield where the statements of a script stand; empty ones are left out."""
    start = end = None
    for match in _PIECE.finditer(script):
        if match.lastgroup == "space":
            continue
        if match.lastgroup != "end":
            start = match.start() if start is None else start
            end = match.end()
        elif start is not None and end is not None:
            yield Cut(start, end)
            start = end = None
    if start is not None and end is not None:
        yield Cut(start, end)


@dataclass(frozen=True, slots=True)
class Value:
    """What stands in the place of a variable: from where to where in the filled text, and where the variable stood in the written one."""

    start: int
    end: int
    written_start: int
    written_end: int


@dataclass(frozen=True, slots=True)
class Filled:
    """A text with values in the place of variables."""

    text: str
    values: tuple[Value, ...] = ()

    def written(self, at: int) -> int:
        """Return where a character of the filled text stood in the written one: inside a value where its variable began."""
        index = bisect_right(self.values, at, key=lambda value: value.start) - 1
        if index < 0:
            return at
        value = self.values[index]
        return value.written_start if at < value.end else value.written_end + at - value.end


def filled(text: str, variables: Mapping[str, str], most: int) -> Filled:
    """Return the text of a statement with values in the place of ``${name}``.

    A variable stands for a whole name or literal. Inside a text in single quotes it stands for any characters, and one that is not defined
    stays as it is written.

    Args:
        text: of the statement.
        variables: by name, in upper case.
        most: characters that the text may have then.

    Raises:
        SyntaxFault: ``variable`` for one that is not defined, ``variable_value`` for one that is neither name nor literal, ``too_long``.
    """
    if "${" not in text:
        return Filled(text)
    parts: list[str] = []
    values: list[Value] = []
    written = size = 0
    for start, end, value in _values(text, variables):
        parts += (text[written:start], value)
        begin = size + start - written
        size, written = begin + len(value), end
        values.append(Value(begin, size, start, end))
        if size > most:
            raise SyntaxFault("too_long", start, end)
    return Filled("".join((*parts, text[written:])), tuple(values))


def _values(text: str, variables: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield where a variable stands and its value."""
    for match in _PIECE.finditer(text):
        if match.lastgroup == "variable":
            yield match.start(), match.end(), _whole(match, variables)
        elif match.lastgroup == "text":
            for inner in _IN_TEXT.finditer(text, match.start(), match.end()):
                if (value := variables.get(inner[1].upper())) is not None:
                    yield inner.start(), inner.end(), value.replace("'", "''")


def _whole(match: re.Match[str], variables: Mapping[str, str]) -> str:
    value = variables.get(match.group()[2:-1].upper())
    if value is None:
        raise SyntaxFault("variable", match.start(), match.end())
    if not _is_one(value):
        raise SyntaxFault("variable_value", match.start(), match.end())
    return value


def _is_one(value: str) -> bool:
    """Whether a text is one name or literal, and nothing beside it."""
    unsigned = value.removeprefix("-")
    try:
        token = statement_tokens(unsigned)[0]
    except SyntaxFault:
        return False
    is_kind = token.kind == "number" or (value == unsigned and token.kind in ("word", "quoted", "text"))
    return is_kind and (token.start, token.end) == (0, len(unsigned))

"""From text to tokens. Every token knows where it stands; what is no token of the language is one of its own, for the parser to refuse."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from engine.sql.faults import SyntaxFault

Kind = Literal["word", "quoted", "text", "number", "sign", "end"]

_SIGNS: Final = re.escape("()[]{},.;:+-*/%<>=!?@&|^~#`\\\"'")
_TOKEN: Final = re.compile(
    rf"""
    (?P<space>\s+)
    | (?P<comment>--|/\*)
    | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[^\s\d{_SIGNS}][^\s{_SIGNS}]*)
    | (?P<sign><=>|<>|!=|<=|>=|==|\|\||->|=>|::|:=|.)
    """,
    re.VERBOSE | re.DOTALL,
)

_STATEMENT_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<comment>/\*)
    | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    | (?P<text>'(?:[^']|'')*'|\$\$.*?\$\$)
    | (?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?(?![A-Za-z0-9_@]))
    | (?P<word>[A-Za-z_0-9][A-Za-z0-9_@]*)
    | (?P<sign><=>|<>|!=|<=|>=|==|\|\||->|=>|::|:=|\$\$|.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""As ksqlDB writes: comments are passed over, a name may begin with a digit and hold ``@``, and other alphabets stand in quotes."""


class Token(NamedTuple):
    """One token.

    Attributes:
        text: as it stands in the text; of a quoted name and of a text what is between the quotes, doubled ones made single.
        start: of its first character, from 0.
        end: behind its last one.
        word: a word in upper case, as the language's own words are compared; of other tokens ''.
    """

    kind: Kind
    text: str
    start: int
    end: int
    word: str = ""

    def is_sign(self, *signs: str) -> bool:
        """Whether it is one of these signs."""
        return self.kind == "sign" and self.text in signs


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of an expression; the last one is the end.

    Raises:
        SyntaxFault: ``comment``, or ``open_quote``.
    """
    return _tokens(text, _TOKEN)


def statement_tokens(text: str) -> list[Token]:
    """Return the tokens of a statement; the last one is the end.

    Raises:
        SyntaxFault: ``comment`` where one is not closed, or ``open_quote``.
    """
    return _tokens(text, _STATEMENT_TOKEN)


def _tokens(text: str, pattern: re.Pattern[str]) -> list[Token]:
    found: list[Token] = []
    at = 0
    while match := _after_name(text, at, found) or pattern.match(text, at):  # any character is a sign
        kind, part, start, at = match.lastgroup, match.group(), at, match.end()
        if kind == "comment":
            raise SyntaxFault("comment", start, at)
        if kind == "sign" and part in ("'", '"', "`", "$$"):
            raise SyntaxFault("open_quote", start, len(text))
        if kind in ("quoted", "text"):
            quote = part[0]
            part = part[2:-2] if quote == "$" else part[1:-1].replace(quote * 2, quote)
        if kind != "space":
            found.append(Token(kind, part, start, at, part.upper() if kind == "word" else ""))  # type: ignore[arg-type]
    found.append(Token("end", "", len(text), len(text)))
    return found


_DOT: Final = re.compile(r"(?P<sign>\.)")


def _after_name(text: str, at: int, found: list[Token]) -> re.Match[str] | None:
    """Return the dot behind a name: in ``a.1`` it begins no number."""
    is_behind = bool(found) and found[-1].kind in ("word", "quoted") and found[-1].end == at
    return _DOT.match(text, at) if is_behind else None

"""Going through tokens: what stands next, what is needed, where a node began, and the fault where something else stands there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.sql.faults import FaultKind, ListTooLong, Misspelt, SyntaxFault, meant
from engine.sql.lexing.tokens import Token
from engine.sql.tree import Identifier, Node, Span, Text


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that are kept while a text is read.

    Attributes:
        nesting: brackets, CASEs and prefix operators inside each other.
        depth: levels of the tree, in which a chain of AND, OR or || is one.
        values: of one IN.
        arguments: of one call and of one ||, and branches of one CASE.
    """

    nesting: int
    depth: int
    values: int
    arguments: int


_TRIED: Final[dict[str, FaultKind]] = {
    "AS": "alias", "=>": "argument_name", "{": "parameter", ":": "parameter", "?": "parameter",
    "@": "parameter", "~": "pattern", "RLIKE": "pattern", "REGEXP": "pattern", "SIMILAR": "pattern", "GLOB": "pattern", ";": "separator",
    "OVER": "window_function",
}  # fmt: skip
"""What people write that the language has not."""

_CURLY: Final = "‘’“”„«»´"
"""What word processors make of quotes."""

_QUERIES: Final = ("SELECT", "WITH", "VALUES")

_Read = TypeVar("_Read", bound=Node)


class Cursor:
    """A place among the tokens of a text.

    Args:
        tokens: the last one is the end.
        bounds: how large what is read may be.

    Attributes:
        started: where the statement began whose first word was read last.
    """

    def __init__(self, tokens: list[Token], bounds: Bounds) -> None:
        self._tokens, self.bounds, self._at, self._depth = tokens, bounds, 0, 0
        self._tried: dict[str, int] = {}
        self.started = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def ahead(self, distance: int = 1) -> Token:
        """The token so far behind the next one."""
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """Go past the next token and return it."""
        token = self.token
        self._at += 1
        return token

    def take_word(self, *words: str) -> bool:
        """Go past these words, where all of them stand next."""
        if self._tokens[self._at].word != words[0] or not self.stands(words):
            self._tried[words[0]] = self._at
            return False
        self._at += len(words)
        return True

    def stands(self, words: Sequence[str]) -> bool:
        """Whether these words stand next."""
        return all(self.ahead(distance).word == word for distance, word in enumerate(words))

    def note(self, *words: str) -> None:
        """Remember words that could stand next, for the fault where none of them does; ``take_word`` remembers its own."""
        self._tried.update(dict.fromkeys(words, self._at))

    def take_sign(self, sign: str) -> bool:
        """Go past this sign, where it stands next."""
        if not self.token.is_sign(sign):
            return False
        self._at += 1
        return True

    def need_word(self, word: str) -> None:
        """Go past this word; raises ``SyntaxFault`` where another token stands next."""
        if not self.take_word(word):
            raise self.unfit(word)

    def need_sign(self, sign: str) -> None:
        """The same for a sign."""
        if not self.take_sign(sign):
            raise self.unfit(sign)

    def span(self, start: int) -> Span:
        """Return from a character to the end of what was read last."""
        return start, self._tokens[self._at - 1].end

    def span_from(self, node: Node) -> Span:
        """Return from the beginning of a node to the end of what was read last."""
        return self.span(node.span[0] if node.span is not None else 0)

    def unfit(self, expected: str) -> SyntaxFault:
        """Return the fault of the next token where something else is needed."""
        token = self.token
        if token.kind == "end":
            return SyntaxFault("incomplete", token.start, token.end, expected, self._meant())
        is_first = self._at > 0 and self._tokens[self._at - 1].is_sign("(")
        if is_first and token.word in _QUERIES:
            return SyntaxFault("query", token.start, token.end)
        kind = _TRIED.get(token.word or (token.text if token.kind == "sign" else ""), "unexpected")
        if self.stands(("AT", "TIME", "ZONE")):
            kind = "time_zone"
        if token.kind == "sign" and token.text.isalpha():
            kind = "letter"
        if token.kind == "sign" and token.text in _CURLY:
            kind = "curly_quote"
        return SyntaxFault(kind, token.start, token.end, expected, self._meant())

    def _meant(self) -> Misspelt | None:
        """Return which word that could stand here is spelt almost like the next one, or like the one before, taken for a name."""
        words = [word for word, at in self._tried.items() if at == self._at]
        for token in self._tokens[self._at : self._at + 1] + self._tokens[max(self._at - 1, 0) : self._at]:
            if found := meant(token.word, words):
                return Misspelt(token.text, found)
        return None

    def deeper(self, operand: Callable[[], _Read]) -> _Read:
        """Read what stands below a prefix or inside a type: no bracket says how deep."""
        self._depth += 1
        if self._depth > 2 * self.bounds.nesting:
            raise SyntaxFault("too_deep", self.token.start, self.token.end)
        found = operand()
        self._depth -= 1
        return found

    def identifier(self) -> Identifier:
        """Read a name, also one that is a word of the language: what stands before it says that it is a name."""
        token = self.token
        is_digits = token.kind == "number" and token.text.isdigit()
        if token.kind not in ("word", "quoted") and not is_digits:
            raise self.unfit("a name")
        self.advance()
        return Identifier(token.text, token.kind == "quoted", span=(token.start, token.end))

    def text(self) -> Text:
        """Read a text; the next token is one."""
        token = self.advance()
        return Text(token.text, span=(token.start, token.end))

    @staticmethod
    def check_list(of: str, count: int, most: int, span: Span) -> None:
        """Refuse a list that is too long."""
        if count > most:
            raise ListTooLong(of, count, most, *span)

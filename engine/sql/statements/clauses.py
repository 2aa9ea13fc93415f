"""Reads what statements are made of: names, numbers, durations, literals, properties, columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeVar

from engine.sql.expressions.expressions import ExpressionCursor
from engine.sql.expressions.values import RESERVED
from engine.sql.faults import SyntaxFault
from engine.sql.statement_tree import ColumnDefinition, Duration, Property
from engine.sql.tree import Boolean, Identifier, Negative, Node, Null, Number, Text

UNITS: Final = {
    "MILLISECOND": "MILLISECONDS",
    "SECOND": "SECONDS",
    "MINUTE": "MINUTES",
    "HOUR": "HOURS",
    "DAY": "DAYS",
}

NO_NAMES: Final = RESERVED | {
    "ALL", "AT", "BY", "EXISTS", "FULL", "GROUP", "IN", "IS", "LEFT", "LIMIT", "NULL", "RIGHT", "TRUE", "FALSE", "VALUES", "WINDOW",
    "WITHIN", "END", "CAST",
}  # fmt: skip
"""Words that are no names unless they are quoted. ksqlDB reserves more; here their place says what they are."""

MAX_DIGITS: Final = 15
"""Of a whole number: it counts rows, bytes or time, and a millisecond of the year 33,000 has as many."""

_Part = TypeVar("_Part")


class ClauseCursor(ExpressionCursor):
    """A cursor that knows parts of statements."""

    type_words = ("STRING",)  # VARCHAR(STRING)
    reserved = RESERVED | {"WINDOW", "GROUP", "LIMIT", "WITHIN"}

    def name(self, what: str = "a name") -> Identifier:
        """Read a name that is no word of the language, or stands in quotes."""
        token = self.token
        if token.kind == "word" and token.word not in NO_NAMES:
            return self.identifier()
        if token.kind == "quoted" and token.text:
            return self.identifier()
        if token.is_sign("(") and self.ahead().word == "SELECT":
            raise SyntaxFault("query", self.ahead().start, self.ahead().end)
        if token.kind in ("word", "quoted", "number"):
            raise SyntaxFault("name", token.start, token.end, what)
        raise self.unfit(what)

    def stands_name(self) -> bool:
        """Whether a name stands next."""
        return self.token.kind == "quoted" or (self.token.kind == "word" and self.token.word not in NO_NAMES)

    def name_or_text(self, what: str) -> Identifier | Text:
        """Read a name, or a text in its place."""
        return self.text() if self.token.kind == "text" else self.name(what)

    def need_text(self, what: str) -> Text:
        if self.token.kind != "text":
            raise self.unfit(what)
        return self.text()

    def whole_number(self) -> str:
        """Read a whole number without a sign, of as many digits as every place for one takes."""
        if self.token.kind != "number" or not self.token.text.isdigit():
            raise self.unfit("a whole number")
        if len(self.token.text) > MAX_DIGITS:
            raise self.unfit("a smaller number")
        return self.advance().text

    def duration(self) -> Duration:
        """Read ``5 MINUTES``."""
        start, amount = self.token.start, self.whole_number()
        for one, many in UNITS.items():
            if self.take_word(one) or self.take_word(many):
                return Duration(amount, many, span=self.span(start))
        raise self.unfit("a unit of time: MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")

    def listed(self, item: Callable[[], _Part], otherwise: str = "a comma or )") -> tuple[_Part, ...]:
        """Read one or more items in brackets, the opening one included."""
        self.need_sign("(")
        found = [item()]
        while self.take_sign(","):
            found.append(item())
        if not self.take_sign(")"):
            raise self.unfit(otherwise)
        return tuple(found)

    def series(self, item: Callable[[], _Part]) -> tuple[_Part, ...]:
        """Read one or more items with commas between them."""
        found = [item()]
        while self.take_sign(","):
            found.append(item())
        return tuple(found)

    def literal(self) -> Node:
        """Read a number with or without a sign, a text, TRUE, FALSE or NULL."""
        token = self.token
        span = (token.start, token.end)
        if self.take_sign("-"):
            if self.token.kind != "number":
                raise self.unfit("a number")
            return Negative(self.literal(), span=self.span(token.start))
        if token.kind == "text":
            return self.text()
        if token.kind == "number" or token.word in ("TRUE", "FALSE", "NULL"):
            self.advance()
            if token.kind == "number":
                return Number(f"0{token.text}" if token.text.startswith(".") else token.text, span=span)
            return Null(span=span) if token.word == "NULL" else Boolean(token.word == "TRUE", span=span)
        raise self.unfit("a literal: a text in single quotes, a number, TRUE, FALSE or NULL")

    def properties(self) -> tuple[Property, ...]:
        """Read ``WITH (NAME = value, ...)``, where it stands next."""
        return self.listed(self._property) if self.take_word("WITH") else ()

    def _property(self) -> Property:
        start, name = self.token.start, self.name_or_text("a property")
        self.need_sign("=")
        return Property(name, self.literal(), span=self.span(start))

    def columns(self) -> tuple[ColumnDefinition, ...]:
        """Read ``(name type [role], ...)``, where it stands next."""
        return self.listed(self.column) if self.token.is_sign("(") else ()

    def column(self) -> ColumnDefinition:
        """Read ``name type [KEY | PRIMARY KEY | HEADERS | HEADER('k')]``."""
        start = self.token.start
        name, its_type = self.name("a column"), self.type_name()
        role, header = self._role()
        return ColumnDefinition(name, its_type, role, header, span=self.span(start))

    def _role(self) -> tuple[Literal["value", "key", "primary_key", "headers"], Text | None]:
        if self.take_word("PRIMARY"):
            self.need_word("KEY")
            return "primary_key", None
        if self.take_word("KEY"):
            return "key", None
        if self.take_word("HEADERS"):
            return "headers", None
        if not self.take_word("HEADER"):
            return "value", None
        self.need_sign("(")
        header = self.need_text("the header's name in single quotes")
        self.need_sign(")")
        return "headers", header

    def names(self) -> tuple[Identifier, ...]:
        """Read ``(name, ...)``, where it stands next."""
        return self.listed(lambda: self.name("a column")) if self.token.is_sign("(") else ()

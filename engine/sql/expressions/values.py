"""Reads values: literals, columns, calls, CASE, constructors, and what is taken out of them. They bind tighter than every operator."""

from __future__ import annotations

from typing import Final

from engine.sql.expressions.constructors import ConstructorCursor
from engine.sql.faults import SyntaxFault
from engine.sql.lexing.tokens import Token
from engine.sql.tree import (
    Boolean,
    Case,
    Cast,
    Column,
    Element,
    Extract,
    Field,
    Identifier,
    Node,
    Null,
    Number,
    Parameter,
    Paren,
    Star,
    When,
)

RESERVED: Final = frozenset({
    "AND", "OR", "NOT", "LIKE", "ILIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "AS", "DISTINCT", "SELECT", "FROM", "WHERE", "HAVING",
    "ON", "JOIN", "INNER", "OUTER", "CROSS", "UNION", "USING", "WITH", "INTO",
})  # fmt: skip
"""Words that are no columns unless they are quoted or stand behind a dot."""

_VALUE: Final = "a value"


class ValueCursor(ConstructorCursor):
    """A cursor that knows values; what is inside their brackets are expressions."""

    reserved: frozenset[str] = RESERVED
    has_parameters: bool = False

    def value(self) -> Node:
        """Read a value and what is taken out of it."""
        node = self._primary()
        while self.token.kind == "sign":
            if self.token.is_sign("."):
                raise SyntaxFault("field_of_value", self.token.start, self.token.end)
            if self.token.is_sign("->") and self.ahead().is_sign("*"):  # all fields are items of a SELECT, not a value
                break
            if self.take_sign("::"):
                target = self.type_name()
                node = Cast(node, target, span=self.span_from(node))
            elif self.take_sign("->"):
                name = self.identifier()
                node = Field(node, name, span=self.span_from(node))
            elif self.take_sign("["):
                index = self.expression()
                self.need_sign("]")
                node = Element(node, index, span=self.span_from(node))
            else:
                break
        return node

    def _primary(self) -> Node:
        token = self.token
        if token.kind == "number":
            text = self.advance().text
            return Number(f"0{text}" if text.startswith(".") else text, span=(token.start, token.end))
        if token.kind == "text":
            return self.text()
        if token.kind == "quoted":
            return self._named()
        if token.kind == "word":
            return self._of_word(token)
        if self.take_sign("*"):
            return Star(span=(token.start, token.end))
        if self.take_sign("("):
            return self._bracket(token.start)
        if self.has_parameters and token.is_sign("?", ":"):
            return self._bound_value(token.start)
        raise self.unfit(_VALUE)

    def _bound_value(self, start: int) -> Node:
        if self.take_sign("?"):
            return Parameter(span=self.span(start))
        self.advance()
        if self.token.kind != "word" or self.token.start != start + 1:
            raise self.unfit("the name of a parameter, as in :name")
        return Parameter(self.advance().text, span=self.span(start))

    def _bracket(self, start: int) -> Node:
        if self.take_sign(")"):
            raise SyntaxFault("tuple", *self.span(start))
        inner = self.expression()
        if self.token.is_sign(","):
            raise SyntaxFault("tuple", start, self.token.end)
        self.need_sign(")")
        return Paren(inner, span=self.span(start))

    def _of_word(self, token: Token) -> Node:
        span = (token.start, token.end)
        is_called = self.ahead().is_sign("(")
        match token.word:
            case "NULL":
                self.advance()
                return Null(span=span)
            case "TRUE" | "FALSE":
                self.advance()
                return Boolean(token.word == "TRUE", span=span)
            case "CASE":
                return self._case()
            case "CAST" if is_called:
                return self._cast()
            case "EXTRACT" if is_called:
                return self._extract()
            case "ARRAY" if self.ahead().is_sign("["):
                return self.array()
            case "MAP" if is_called:
                return self.map()
            case "STRUCT" if is_called and (self.ahead(2).is_sign(")") or self.ahead(3).is_sign(":=")):
                return self.struct()
            case "TRY_CAST" if is_called:
                raise SyntaxFault("try_cast", *span)
            case "INTERVAL" if self.ahead().kind == "text":
                raise SyntaxFault("interval", *span)
        if token.word in self.reserved:
            raise self.unfit(_VALUE)
        return self.typed_text() or self._named()

    def _named(self) -> Node:
        start = self.token.start
        first = self.identifier()
        if self.take_sign("("):
            return self.call(first, start)
        if not self.take_sign("."):
            return Column(first, span=self.span(start))
        if self.take_sign("*"):
            return Star(first, span=self.span(start))
        second = self.identifier()
        if self.token.is_sign("."):
            raise SyntaxFault("field", start, self.token.end)
        return Column(second, first, span=self.span(start))

    def _case(self) -> Node:
        start = self.advance().start
        subject = None if self.token.word == "WHEN" else self.expression()
        branches: list[When] = []
        while self.token.word == "WHEN":
            at = self.advance().start
            condition = self.expression()
            self.need_word("THEN")
            branches.append(When(condition, self.expression(), span=self.span(at)))
        if not branches:
            raise self.unfit("WHEN")
        default = self.expression() if self.take_word("ELSE") else None
        self.need_word("END")
        span = self.span(start)
        self.check_list("CASE", len(branches), self.bounds.arguments, span)
        return Case(subject, tuple(branches), default, span=span)

    def _cast(self) -> Node:
        start = self.advance().start
        self.need_sign("(")
        operand = self.expression()
        self.need_word("AS")
        target = self.type_name()
        self.need_sign(")")
        return Cast(operand, target, span=self.span(start))

    def _extract(self) -> Node:
        start = self.advance().start
        self.need_sign("(")
        token = self.token
        if token.kind not in ("word", "quoted", "text"):
            raise self.unfit("a part of a time, such as YEAR")
        part = self.text() if token.kind == "text" else Identifier(self.advance().text.upper(), span=(token.start, token.end))
        self.need_word("FROM")
        operand = self.expression()
        self.need_sign(")")
        return Extract(part, operand, span=self.span(start))

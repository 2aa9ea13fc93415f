"""Reads expressions: by recursive descent, one method for each level of precedence, the loosest first.

``OR < AND < = <> <=> < (< <= > >=) < (IS, IN, LIKE, BETWEEN) < || < (+ -) < (* / %) < (- NOT) < ::``. NOT takes all up to an AND, also where
it stands inside an operand. A test (IS …, NOT IN …) that is itself an operand gets brackets, so that its text can be read in one way only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.sql.bounds import Bounds
from engine.sql.brackets import DISTINCT, as_asked, as_side, as_tested, bracketed, closed, is_test
from engine.sql.faults import SyntaxFault
from engine.sql.tokens import Token, tokens_of
from engine.sql.tree import (
    Between,
    Binary,
    Boolean,
    Call,
    Case,
    Cast,
    Chain,
    Column,
    Extract,
    Identifier,
    In,
    Is,
    Like,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Paren,
    Star,
    Text,
    When,
)
from engine.sql.types import TypeCursor

RESERVED: Final = frozenset({
    "AND", "OR", "NOT", "LIKE", "ILIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "AS", "DISTINCT", "SELECT", "FROM", "WHERE", "HAVING",
    "ON", "JOIN", "INNER", "OUTER", "CROSS", "UNION", "USING", "WITH", "INTO",
})  # fmt: skip
"""Words that are no columns unless they are quoted or stand behind a dot."""

_EQUALITY: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<=>": "IS NOT DISTINCT FROM"}
_COMPARISON: Final = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SUM: Final = {"+": "+", "-": "-"}
_PRODUCT: Final = {"*": "*", "/": "/", "%": "%"}
_TESTS: Final = ("IS", "ISNULL", "NOTNULL", "LIKE", "ILIKE", "BETWEEN", "IN")
_NEGATABLE: Final = ("LIKE", "ILIKE", "BETWEEN", "IN", "NULL")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")

_VALUE, _OPERATOR = "a value", "an operator or the end"


def parse_expression(text: str, bounds: Bounds) -> Node:
    """Read one expression.

    Raises:
        SyntaxFault: the text is no expression, or a larger one than may be.
    """
    tokens = tokens_of(text)
    _check_nesting(tokens, bounds)
    parser = _Parser(tokens, bounds)
    tree = parser.expression()
    parser.end()
    _check_depth(tree, bounds)
    return tree


def _check_nesting(tokens: list[Token], bounds: Bounds) -> None:
    """Refuse nesting that would exhaust a recursive parser."""
    depth, prefixes = 0, 0
    for token in tokens:
        prefixes = prefixes + 1 if token.word == "NOT" or token.is_sign("-", "!") else 0
        depth += token.is_sign(*_OPENING) or token.word == "CASE"
        depth -= token.is_sign(*_CLOSING) or token.word == "END"
        if depth + prefixes > bounds.nesting:
            raise SyntaxFault("too_deep", token.start, token.end)


def _check_depth(tree: Node, bounds: Bounds) -> None:
    pending = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > bounds.depth:
            raise SyntaxFault("too_deep", *(node.span or (0, 0)), expected="brackets")
        pending.extend((child, depth + 1) for child in node.children)


class _Parser(TypeCursor):
    def end(self) -> None:
        """Refuse what follows an expression that is whole."""
        if self.token.kind != "end":
            raise self.unfit(_OPERATOR)

    def expression(self) -> Node:
        return self._chain("OR", self._conjunction)

    def _conjunction(self) -> Node:
        return self._chain("AND", self._equality)

    def _chain(self, word: str, operand: Callable[[], Node]) -> Node:
        start, operands = self.token.start, [operand()]
        while self.take_word(word) if word.isalpha() else self.take_sign(word):
            if word == "||":
                operands[-1] = closed(operands[-1])
            operands.append(operand())
        if len(operands) == 1:
            return operands[0]
        span = self.span(start)
        if word == "||":
            self.check_list("||", len(operands), self.bounds.arguments, span)
        return Chain(word, tuple(operands), span=span)

    def _equality(self) -> Node:
        return self._compared(_EQUALITY, self._comparison)

    def _comparison(self) -> Node:
        return self._compared(_COMPARISON, self._tested)

    def _compared(self, signs: dict[str, str], operand: Callable[[], Node]) -> Node:
        left = operand()
        while self.token.kind == "sign" and self.token.text in signs:
            sign = signs[self.advance().text]
            left, right = closed(left), operand()
            is_test = sign in DISTINCT
            left, right = (as_tested(left, is_distinct=True), as_asked(right)) if is_test else (as_side(left), as_side(right))
            left = Binary(sign, left, right, span=self.span_from(left))
        return left

    def _tested(self) -> Node:
        node = self._joined()
        while True:
            is_negated = self.token.word == "NOT" and self.ahead().word in _NEGATABLE
            if is_negated:
                self.advance()
            found = self._test(node, is_negated=is_negated)
            if found is None:
                return node
            is_not = is_negated or (isinstance(found, Not) and isinstance(found.operand, Is))
            is_operand = is_not and self.token.word in ("NOT", *_TESTS)
            node = bracketed(found) if is_operand else found

    def _test(self, operand: Node, *, is_negated: bool) -> Node | None:
        """Read one test of an operand; None where none follows."""
        word = self.token.word
        if word == "IS":
            return self._is(operand)
        if word in ("ISNULL", "NOTNULL") or (is_negated and word == "NULL"):
            self.advance()
            found: Node = Is(as_tested(operand), Null(), span=self.span_from(operand))
            return found if word == "ISNULL" else Not(found, span=self.span_from(operand))
        if word in ("LIKE", "ILIKE"):
            return self._like(operand, is_negated=is_negated)
        if word == "BETWEEN":
            found = self._between(operand)
        elif word == "IN":
            found = self._in(operand)
        else:
            return None
        return Not(found, span=found.span) if is_negated else found

    def _is(self, operand: Node) -> Node:
        self.need_word("IS")
        is_negated = self.take_word("NOT")
        if self.take_word("DISTINCT", "FROM"):
            sign = "IS NOT DISTINCT FROM" if is_negated else "IS DISTINCT FROM"
            left, right = as_tested(operand, is_distinct=True), as_asked(self._joined())
            return Binary(sign, left, right, span=self.span_from(operand))
        found = Is(as_tested(operand), self._wanted(), span=self.span_from(operand))
        return Not(found, span=found.span) if is_negated else found

    def _wanted(self) -> Null | Boolean:
        token = self.token
        if token.word not in ("NULL", "UNKNOWN", "TRUE", "FALSE"):
            raise self.unfit("NULL, NOT NULL, TRUE or FALSE")
        self.advance()
        return Null() if token.word in ("NULL", "UNKNOWN") else Boolean(token.word == "TRUE")

    def _like(self, operand: Node, *, is_negated: bool) -> Node:
        is_case_sensitive = self.advance().word == "LIKE"
        pattern = self._joined()
        escape: Text | None = None
        if self.take_word("ESCAPE"):
            if self.token.kind != "text":
                raise self.unfit("a text of one character")
            escape = self.text()
        return Like(operand, pattern, escape, is_case_sensitive, is_negated, span=self.span_from(operand))

    def _between(self, operand: Node) -> Node:
        self.need_word("BETWEEN")
        low = self._joined()
        self.need_word("AND")
        high = self._joined()
        value = bracketed(operand) if is_test(operand) else operand
        return Between(value, low, high, span=self.span_from(operand))

    def _in(self, operand: Node) -> Node:
        self.need_word("IN")
        closing = "]" if self.take_sign("[") else ")"
        if closing == ")" and not self.take_sign("("):
            raise SyntaxFault("not_in_list", self.token.start, self.token.end)
        items = self._list(closing)
        span = self.span_from(operand)
        self.check_list("IN", len(items), self.bounds.values, span)
        return In(operand, items, span=span)

    def _joined(self) -> Node:
        return self._chain("||", self._sum)

    def _sum(self) -> Node:
        return self._calculated(_SUM, self._product)

    def _product(self) -> Node:
        return self._calculated(_PRODUCT, self._unary)

    def _calculated(self, signs: dict[str, str], operand: Callable[[], Node]) -> Node:
        left = operand()
        while self.token.kind == "sign" and self.token.text in signs:
            sign = self.advance().text
            left = Binary(sign, closed(left), operand(), span=self.span_from(left))
        return left

    def _unary(self) -> Node:
        while self.take_sign("+"):
            pass
        start = self.token.start
        if self.take_sign("-"):
            return Negative(self.deeper(self._unary), span=self.span(start))
        if self.take_word("NOT") or self.take_sign("!"):
            return Not(self.deeper(self._equality), span=self.span(start))
        return self._cast_behind(self._primary())

    def _cast_behind(self, node: Node) -> Node:
        while self.token.kind == "sign":
            if self.token.is_sign("."):
                raise SyntaxFault("field_of_value", self.token.start, self.token.end)
            if not self.take_sign("::"):
                break
            target = self.type_name()
            node = Cast(node, target, span=self.span_from(node))
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
        raise self.unfit(_VALUE)

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
            case "TRY_CAST" if is_called:
                raise SyntaxFault("try_cast", *span)
            case "INTERVAL" if self.ahead().kind == "text":
                raise SyntaxFault("interval", *span)
        if token.word in RESERVED:
            raise self.unfit(_VALUE)
        return self.typed_text() or self._named()

    def _named(self) -> Node:
        start = self.token.start
        first = self._identifier()
        if self.take_sign("("):
            return self._call(first, start)
        if not self.take_sign("."):
            return Column(first, span=self.span(start))
        if self.take_sign("*"):
            return Star(first, span=self.span(start))
        second = self._identifier()
        if self.token.is_sign("."):
            raise SyntaxFault("field", start, self.token.end)
        return Column(second, first, span=self.span(start))

    def _identifier(self) -> Identifier:
        token = self.token
        is_digits = token.kind == "number" and token.text.isdigit()
        if token.kind not in ("word", "quoted") and not is_digits:
            raise self.unfit("a name")
        self.advance()
        return Identifier(token.text, token.kind == "quoted", span=(token.start, token.end))

    def _call(self, name: Identifier, start: int) -> Node:
        is_distinct = self.take_word("DISTINCT")
        if not is_distinct and self.token.word == "ALL" and not self.ahead().is_sign(")", ","):
            self.advance()
        arguments = self._list(")")
        span = self.span(start)
        self.check_list(name.text.lower(), len(arguments), self.bounds.arguments, span)
        return Call(Identifier(name.text.lower(), name.is_quoted), arguments, is_distinct, span=span)

    def _list(self, closing: str) -> tuple[Node, ...]:
        """Read expressions up to the closing bracket; a comma may stand before it."""
        items: list[Node] = []
        while not self.take_sign(closing):
            items.append(self.expression())
            if not self.token.is_sign(closing):
                if not self.token.is_sign(","):
                    raise self.unfit(f"a comma or {closing}")
                self.advance()
        return tuple(items)

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

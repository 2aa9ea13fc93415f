"""Reads expressions: by recursive descent, one method for each level of precedence, the loosest first.

``OR < AND < = <> <=> < (< <= > >=) < (IS, IN, LIKE, BETWEEN) < || < (+ -) < (* / %) < (- NOT) < (:: [] -> ())``. NOT takes all up to an
AND, also where it stands inside an operand. A test (IS …, NOT IN …) that is itself an operand gets brackets, so that its text can be read
in one way only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.sql.expressions.values import ValueCursor
from engine.sql.faults import SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.lexing.tokens import Token, tokens_of
from engine.sql.tree import Between, Binary, Boolean, Chain, In, Is, Like, Negative, Node, Not, Null, Paren, Text

_EQUALITY: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<=>": "IS NOT DISTINCT FROM"}
_COMPARISON: Final = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SUM: Final = {"+": "+", "-": "-"}
_PRODUCT: Final = {"*": "*", "/": "/", "%": "%"}
_TESTS: Final = ("IS", "ISNULL", "NOTNULL", "LIKE", "ILIKE", "BETWEEN", "IN")
_NEGATABLE: Final = ("LIKE", "ILIKE", "BETWEEN", "IN", "NULL")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


def parse_expression(text: str, bounds: Bounds) -> Node:
    """Read one expression.

    Raises:
        SyntaxFault: the text is no expression, or a larger one than may be.
    """
    tokens = tokens_of(text)
    check_nesting(tokens, bounds)
    cursor = ExpressionCursor(tokens, bounds)
    tree = cursor.expression()
    if cursor.token.kind != "end":
        raise cursor.unfit("an operator or the end")
    check_depth(tree, bounds)
    return tree


def check_nesting(tokens: list[Token], bounds: Bounds) -> None:
    """Refuse nesting that would exhaust a recursive parser."""
    depth, prefixes = 0, 0
    for token in tokens:
        is_sign = token.kind == "sign"
        prefixes = prefixes + 1 if token.word == "NOT" or (is_sign and token.text in "-!") else 0
        if (is_sign and token.text in _OPENING) or token.word == "CASE":
            depth += 1
        elif (is_sign and token.text in _CLOSING) or token.word == "END":
            depth -= 1
        if depth + prefixes > bounds.nesting:
            raise SyntaxFault("too_deep", token.start, token.end)


def check_depth(tree: Node, bounds: Bounds) -> None:
    """Refuse a tree of more levels than may be."""
    pending = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > bounds.depth:
            raise SyntaxFault("too_deep", *(node.span or (0, 0)), expected="brackets")
        pending.extend((child, depth + 1) for child in node.children)


class ExpressionCursor(ValueCursor):
    """A cursor that knows expressions."""

    def expression(self) -> Node:
        token, behind = self.token, self.ahead()
        if behind.is_sign(",", ")", "]") and token.kind != "sign" and token.word != "NOT":
            return self.value()  # alone, as in most lists: no operator needs to be looked for
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
            left, right = (
                (as_tested(left, is_distinct=True), as_operand_of_test(right)) if is_test else (as_side(left), as_side(right))
            )
            left = Binary(sign, left, right, span=self.span_from(left))
        return left

    def _tested(self) -> Node:
        node = self.operand()
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
            left, right = as_tested(operand, is_distinct=True), as_operand_of_test(self.operand())
            return Binary(sign, left, right, span=self.span_from(operand))
        found = Is(as_tested(operand), self._tested_value(), span=self.span_from(operand))
        return Not(found, span=found.span) if is_negated else found

    def _tested_value(self) -> Null | Boolean:
        token = self.token
        if token.word not in ("NULL", "UNKNOWN", "TRUE", "FALSE"):
            raise self.unfit("NULL, NOT NULL, TRUE or FALSE")
        self.advance()
        return Null() if token.word in ("NULL", "UNKNOWN") else Boolean(token.word == "TRUE")

    def _like(self, operand: Node, *, is_negated: bool) -> Node:
        is_case_sensitive = self.advance().word == "LIKE"
        pattern = self.operand()
        escape: Text | None = None
        if self.take_word("ESCAPE"):
            if self.token.kind != "text":
                raise self.unfit("a text of one character")
            escape = self.text()
        return Like(operand, pattern, escape, is_case_sensitive, is_negated, span=self.span_from(operand))

    def _between(self, operand: Node) -> Node:
        self.need_word("BETWEEN")
        low = self.operand()
        self.need_word("AND")
        high = self.operand()
        value = bracketed(operand) if is_test(operand) else operand
        return Between(value, low, high, span=self.span_from(operand))

    def _in(self, operand: Node) -> Node:
        self.need_word("IN")
        closing = "]" if self.take_sign("[") else ")"
        if closing == ")" and not self.take_sign("("):
            raise SyntaxFault("not_in_list", self.token.start, self.token.end)
        items = self.expressions(closing)
        span = self.span_from(operand)
        self.check_list("IN", len(items), self.bounds.values, span)
        return In(operand, items, span=span)

    def operand(self) -> Node:
        """Read what stands beside a comparison: all that binds tighter."""
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
        return self.value()


DISTINCT: Final = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")


_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=", *DISTINCT)


def is_test(node: Node) -> bool:
    """Whether a node is IS … or IS [NOT] DISTINCT FROM …."""
    return isinstance(node, Is) or (isinstance(node, Binary) and node.sign in DISTINCT)


def _is_truth(node: Node) -> bool:
    """Whether a node gives a truth value by its form alone."""
    is_compared = isinstance(node, Binary) and node.sign in _COMPARISONS
    return is_compared or isinstance(node, Not | Is | Like | Between | In) or (isinstance(node, Chain) and node.sign != "||")


def bracketed(node: Node) -> Node:
    """Return a node in brackets that nobody wrote."""
    return Paren(node, span=node.span)


def closed(node: Node) -> Node:
    """Return what stands before an operator, in brackets where it ends with a NOT, which would take what follows for its own."""
    last = node
    while isinstance(last, Binary | Negative):
        last = last.right if isinstance(last, Binary) else last.operand
    return bracketed(node) if isinstance(last, Not) else node


def as_side(node: Node) -> Node:
    """Return a side of a comparison, in brackets where it is a test."""
    return bracketed(node) if is_test(node.operand if isinstance(node, Not) else node) else node


def as_tested(node: Node, *, is_distinct: bool = False) -> Node:
    """Return what IS tests, in brackets where its end would not be seen."""
    is_plain = (
        isinstance(node, Between | In)
        or (isinstance(node, Like) and not node.is_negated)
        or (isinstance(node, Is) and not is_distinct)
    )
    return bracketed(node) if _is_truth(node) and not is_plain else node


def as_operand_of_test(node: Node) -> Node:
    """Return what stands behind IS and IS DISTINCT FROM, in brackets where it is a truth value."""
    return bracketed(node) if _is_truth(node) else node

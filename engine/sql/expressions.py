"""Reads expressions: by recursive descent, one method for each level of precedence, the loosest first.

``OR < AND < = <> <=> < (< <= > >=) < (IS, IN, LIKE, BETWEEN) < || < (+ -) < (* / %) < (- NOT) < ::``. NOT takes all up to an AND, also where
it stands inside an operand. A test (IS …, NOT IN …) that is itself an operand gets brackets, so that its text can be read in one way only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from engine.sql.bounds import Bounds
from engine.sql.faults import FaultKind, ListTooLong, SyntaxFault
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
    Span,
    Star,
    Text,
    TypeName,
    When,
)
from engine.sql.type_names import TYPE_PHRASES, TYPE_WORDS

RESERVED: Final = frozenset({
    "AND", "OR", "NOT", "LIKE", "ILIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "AS", "DISTINCT", "SELECT", "FROM", "WHERE", "HAVING",
    "ON", "JOIN", "INNER", "OUTER", "CROSS", "UNION", "USING", "WITH", "INTO",
})  # fmt: skip
"""Words that are no columns unless they are quoted or stand behind a dot."""

_EQUALITY: Final = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<=>": "IS NOT DISTINCT FROM"}
_COMPARISON: Final = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SUM: Final = {"+": "+", "-": "-"}
_PRODUCT: Final = {"*": "*", "/": "/", "%": "%"}
_DISTINCT: Final = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_TESTS: Final = ("IS", "ISNULL", "NOTNULL", "LIKE", "ILIKE", "BETWEEN", "IN")
_NEGATABLE: Final = ("LIKE", "ILIKE", "BETWEEN", "IN", "NULL")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")

_TRIED: Final[dict[str, FaultKind]] = {
    "AS": "alias", "=>": "argument_name", "[": "element", "->": "lambda", "{": "parameter", ":": "parameter", "?": "parameter",
    "@": "parameter", "~": "pattern", "RLIKE": "pattern", "REGEXP": "pattern", "SIMILAR": "pattern", "GLOB": "pattern", ";": "separator",
    "OVER": "window_function",
}  # fmt: skip
"""What people write that the language has not."""

_QUERIES: Final = ("SELECT", "WITH", "VALUES")
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


_Read = TypeVar("_Read", bound=Node)


class _Parser:
    def __init__(self, tokens: list[Token], bounds: Bounds) -> None:
        self._tokens, self._bounds, self._at, self._depth = tokens, bounds, 0, 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _ahead(self, distance: int = 1) -> Token:
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def _advance(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def _take_word(self, *words: str) -> bool:
        """Go past these words, where all of them stand next."""
        if not self._stands(words):
            return False
        self._at += len(words)
        return True

    def _stands(self, words: Sequence[str]) -> bool:
        """Whether these words stand next."""
        return all(self._ahead(distance).word == word for distance, word in enumerate(words))

    def _take_sign(self, sign: str) -> bool:
        if not self._token.is_sign(sign):
            return False
        self._at += 1
        return True

    def _need_word(self, word: str) -> None:
        if not self._take_word(word):
            raise self._unfit(word)

    def _need_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._unfit(sign)

    def _span(self, start: int) -> Span:
        return start, self._tokens[self._at - 1].end

    def _from(self, node: Node) -> Span:
        return self._span(node.span[0] if node.span is not None else 0)

    def _unfit(self, expected: str) -> SyntaxFault:
        token = self._token
        if token.kind == "end":
            return SyntaxFault("incomplete", token.start, token.end, expected)
        is_first = self._at > 0 and self._tokens[self._at - 1].is_sign("(")
        if is_first and token.word in _QUERIES:
            return SyntaxFault("query", token.start, token.end)
        kind = _TRIED.get(token.word or (token.text if token.kind == "sign" else ""), "unexpected")
        return SyntaxFault(kind, token.start, token.end, expected)

    def end(self) -> None:
        """Refuse what follows an expression that is whole."""
        if self._token.kind != "end":
            raise self._unfit(_OPERATOR)

    def expression(self) -> Node:
        return self._chain("OR", self._conjunction)

    def _conjunction(self) -> Node:
        return self._chain("AND", self._equality)

    def _chain(self, word: str, operand: Callable[[], Node]) -> Node:
        start, operands = self._token.start, [operand()]
        while self._take_word(word) if word.isalpha() else self._take_sign(word):
            if word == "||":
                operands[-1] = _closed(operands[-1])
            operands.append(operand())
        if len(operands) == 1:
            return operands[0]
        span = self._span(start)
        if word == "||":
            self._check_list("||", len(operands), self._bounds.arguments, span)
        return Chain(word, tuple(operands), span=span)

    def _equality(self) -> Node:
        return self._compared(_EQUALITY, self._comparison)

    def _comparison(self) -> Node:
        return self._compared(_COMPARISON, self._tested)

    def _compared(self, signs: dict[str, str], operand: Callable[[], Node]) -> Node:
        left = operand()
        while self._token.kind == "sign" and self._token.text in signs:
            sign = signs[self._advance().text]
            left, right = _closed(left), operand()
            is_test = sign in _DISTINCT
            left, right = (_as_tested(left, is_distinct=True), _as_asked(right)) if is_test else (_as_side(left), _as_side(right))
            left = Binary(sign, left, right, span=self._from(left))
        return left

    def _tested(self) -> Node:
        node = self._joined()
        while True:
            is_negated = self._token.word == "NOT" and self._ahead().word in _NEGATABLE
            if is_negated:
                self._advance()
            found = self._test(node, is_negated=is_negated)
            if found is None:
                return node
            is_not = is_negated or (isinstance(found, Not) and isinstance(found.operand, Is))
            is_operand = is_not and self._token.word in ("NOT", *_TESTS)
            node = Paren(found, span=found.span) if is_operand else found

    def _test(self, operand: Node, *, is_negated: bool) -> Node | None:
        """Read one test of an operand; None where none follows."""
        word = self._token.word
        if word == "IS":
            return self._is(operand)
        if word in ("ISNULL", "NOTNULL") or (is_negated and word == "NULL"):
            self._advance()
            found: Node = Is(_as_tested(operand), Null(), span=self._from(operand))
            return found if word == "ISNULL" else Not(found, span=self._from(operand))
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
        self._need_word("IS")
        is_negated = self._take_word("NOT")
        if self._take_word("DISTINCT", "FROM"):
            sign = "IS NOT DISTINCT FROM" if is_negated else "IS DISTINCT FROM"
            left, right = _as_tested(operand, is_distinct=True), _as_asked(self._joined())
            return Binary(sign, left, right, span=self._from(operand))
        found = Is(_as_tested(operand), self._wanted(), span=self._from(operand))
        return Not(found, span=found.span) if is_negated else found

    def _wanted(self) -> Null | Boolean:
        token = self._token
        if token.word not in ("NULL", "UNKNOWN", "TRUE", "FALSE"):
            raise self._unfit("NULL, NOT NULL, TRUE or FALSE")
        self._advance()
        return Null() if token.word in ("NULL", "UNKNOWN") else Boolean(token.word == "TRUE")

    def _like(self, operand: Node, *, is_negated: bool) -> Node:
        is_case_sensitive = self._advance().word == "LIKE"
        pattern = self._joined()
        escape: Text | None = None
        if self._take_word("ESCAPE"):
            if self._token.kind != "text":
                raise self._unfit("a text of one character")
            escape = self._text()
        return Like(operand, pattern, escape, is_case_sensitive, is_negated, span=self._from(operand))

    def _between(self, operand: Node) -> Node:
        self._need_word("BETWEEN")
        low = self._joined()
        self._need_word("AND")
        high = self._joined()
        value = Paren(operand, span=operand.span) if _is_test(operand) else operand
        return Between(value, low, high, span=self._from(operand))

    def _in(self, operand: Node) -> Node:
        self._need_word("IN")
        closing = "]" if self._take_sign("[") else ")"
        if closing == ")" and not self._take_sign("("):
            raise SyntaxFault("not_in_list", self._token.start, self._token.end)
        items = self._list(closing)
        span = self._from(operand)
        self._check_list("IN", len(items), self._bounds.values, span)
        return In(operand, items, span=span)

    def _joined(self) -> Node:
        return self._chain("||", self._sum)

    def _sum(self) -> Node:
        return self._calculated(_SUM, self._product)

    def _product(self) -> Node:
        return self._calculated(_PRODUCT, self._unary)

    def _calculated(self, signs: dict[str, str], operand: Callable[[], Node]) -> Node:
        left = operand()
        while self._token.kind == "sign" and self._token.text in signs:
            sign = self._advance().text
            left = Binary(sign, _closed(left), operand(), span=self._from(left))
        return left

    def _unary(self) -> Node:
        while self._take_sign("+"):
            pass
        start = self._token.start
        if self._take_sign("-"):
            return Negative(self._deeper(self._unary), span=self._span(start))
        if self._take_word("NOT") or self._take_sign("!"):
            return Not(self._deeper(self._equality), span=self._span(start))
        return self._cast_behind(self._primary())

    def _deeper(self, operand: Callable[[], _Read]) -> _Read:
        """Read what stands below a prefix or inside a type: no bracket says how deep."""
        self._depth += 1
        if self._depth > 2 * self._bounds.nesting:
            raise SyntaxFault("too_deep", self._token.start, self._token.end)
        found = operand()
        self._depth -= 1
        return found

    def _cast_behind(self, node: Node) -> Node:
        while self._token.kind == "sign":
            if self._token.is_sign("."):
                raise SyntaxFault("field_of_value", self._token.start, self._token.end)
            if not self._take_sign("::"):
                break
            target = self._type()
            node = Cast(node, target, span=self._from(node))
        return node

    def _primary(self) -> Node:
        token = self._token
        if token.kind == "number":
            text = self._advance().text
            return Number(f"0{text}" if text.startswith(".") else text, span=(token.start, token.end))
        if token.kind == "text":
            return self._text()
        if token.kind == "quoted":
            return self._named()
        if token.kind == "word":
            return self._of_word(token)
        if self._take_sign("*"):
            return Star(span=(token.start, token.end))
        if self._take_sign("("):
            return self._bracket(token.start)
        raise self._unfit(_VALUE)

    def _text(self) -> Text:
        token = self._advance()
        return Text(token.text, span=(token.start, token.end))

    def _bracket(self, start: int) -> Node:
        if self._take_sign(")"):
            raise SyntaxFault("tuple", *self._span(start))
        inner = self.expression()
        if self._token.is_sign(","):
            raise SyntaxFault("tuple", start, self._token.end)
        self._need_sign(")")
        return Paren(inner, span=self._span(start))

    def _of_word(self, token: Token) -> Node:
        span = (token.start, token.end)
        is_called = self._ahead().is_sign("(")
        match token.word:
            case "NULL":
                self._advance()
                return Null(span=span)
            case "TRUE" | "FALSE":
                self._advance()
                return Boolean(token.word == "TRUE", span=span)
            case "CASE":
                return self._case()
            case "CAST" if is_called:
                return self._cast()
            case "EXTRACT" if is_called:
                return self._extract()
            case "TRY_CAST" if is_called:
                raise SyntaxFault("try_cast", *span)
            case "INTERVAL" if self._ahead().kind == "text":
                raise SyntaxFault("interval", *span)
        if token.word in RESERVED:
            raise self._unfit(_VALUE)
        return self._typed_text() or self._named()

    def _typed_text(self) -> Node | None:
        """Read ``DATE '2013-01-01'``; None where something else stands there."""
        start = self._token.start
        phrase = next((words for words in TYPE_PHRASES if self._stands(words)), None)
        behind = 1 if phrase is None else len(phrase)
        if phrase is None and self._token.word not in TYPE_WORDS:
            return None
        if self._ahead(behind).is_sign("("):
            behind += next((length for length in (3, 5) if self._ahead(behind + length - 1).is_sign(")")), 0)
        if self._ahead(behind).kind != "text":
            return None
        target = self._type()
        found = Cast(self._text(), target, span=self._span(start))
        if self._token.is_sign("::"):
            raise SyntaxFault("cast_of_typed_text", self._token.start, self._token.end)
        return found

    def _named(self) -> Node:
        start = self._token.start
        first = self._identifier()
        if self._take_sign("("):
            return self._call(first, start)
        if not self._take_sign("."):
            return Column(first, span=self._span(start))
        if self._take_sign("*"):
            return Star(first, span=self._span(start))
        second = self._identifier()
        if self._token.is_sign("."):
            raise SyntaxFault("field", start, self._token.end)
        return Column(second, first, span=self._span(start))

    def _identifier(self) -> Identifier:
        token = self._token
        is_digits = token.kind == "number" and token.text.isdigit()
        if token.kind not in ("word", "quoted") and not is_digits:
            raise self._unfit("a name")
        self._advance()
        return Identifier(token.text, token.kind == "quoted", span=(token.start, token.end))

    def _call(self, name: Identifier, start: int) -> Node:
        is_distinct = self._take_word("DISTINCT")
        if not is_distinct and self._token.word == "ALL" and not self._ahead().is_sign(")", ","):
            self._advance()
        arguments = self._list(")")
        span = self._span(start)
        self._check_list(name.text.lower(), len(arguments), self._bounds.arguments, span)
        return Call(Identifier(name.text.lower(), name.is_quoted), arguments, is_distinct, span=span)

    def _list(self, closing: str) -> tuple[Node, ...]:
        """Read expressions up to the closing bracket; a comma may stand before it."""
        items: list[Node] = []
        while not self._take_sign(closing):
            items.append(self.expression())
            if not self._token.is_sign(closing):
                if not self._token.is_sign(","):
                    raise self._unfit(f"a comma or {closing}")
                self._advance()
        return tuple(items)

    def _case(self) -> Node:
        start = self._advance().start
        subject = None if self._token.word == "WHEN" else self.expression()
        branches: list[When] = []
        while self._token.word == "WHEN":
            at = self._advance().start
            condition = self.expression()
            self._need_word("THEN")
            branches.append(When(condition, self.expression(), span=self._span(at)))
        if not branches:
            raise self._unfit("WHEN")
        default = self.expression() if self._take_word("ELSE") else None
        self._need_word("END")
        span = self._span(start)
        self._check_list("CASE", len(branches), self._bounds.arguments, span)
        return Case(subject, tuple(branches), default, span=span)

    def _cast(self) -> Node:
        start = self._advance().start
        self._need_sign("(")
        operand = self.expression()
        self._need_word("AS")
        target = self._type()
        self._need_sign(")")
        return Cast(operand, target, span=self._span(start))

    def _extract(self) -> Node:
        start = self._advance().start
        self._need_sign("(")
        token = self._token
        if token.kind not in ("word", "quoted", "text"):
            raise self._unfit("a part of a time, such as YEAR")
        part = self._text() if token.kind == "text" else Identifier(self._advance().text.upper(), span=(token.start, token.end))
        self._need_word("FROM")
        operand = self.expression()
        self._need_sign(")")
        return Extract(part, operand, span=self._span(start))

    def _type(self) -> TypeName:
        start = self._token.start
        name = next((name for words, name in TYPE_PHRASES.items() if self._take_word(*words)), None)
        if name is None:
            if self._token.kind not in ("word", "quoted"):
                raise self._unfit("a type")
            written = self._advance().text
            name = TYPE_WORDS.get(written.upper(), written)
        numbers = self._numbers() if self._take_sign("(") else ()
        types = self._types() if name in ("ARRAY", "MAP") and self._take_sign("<") else ()
        found = TypeName(name, numbers, types, span=self._span(start))
        while self._token.is_sign("[") and self._ahead().is_sign("]"):
            self._at += 2
            found = TypeName("ARRAY", types=(found,), span=self._span(start))
        return found

    def _numbers(self) -> tuple[str, ...]:
        found: list[str] = []
        while not found or self._take_sign(","):
            if not (self._token.kind == "number" and self._token.text.isdigit()) and self._token.word != "MAX":
                raise self._unfit("a whole number")
            found.append(self._advance().text.upper())
        self._need_sign(")")
        return tuple(found)

    def _types(self) -> tuple[TypeName, ...]:
        found = [self._deeper(self._type)]
        while self._take_sign(","):
            found.append(self._deeper(self._type))
        self._need_sign(">")
        return tuple(found)

    @staticmethod
    def _check_list(of: str, count: int, most: int, span: Span) -> None:
        if count > most:
            raise ListTooLong(of, count, most, *span)


def _is_test(node: Node) -> bool:
    return isinstance(node, Is) or (isinstance(node, Binary) and node.sign in _DISTINCT)


def _is_truth(node: Node) -> bool:
    """Whether a node gives a truth value by its form alone."""
    is_compared = isinstance(node, Binary) and (
        node.sign in _DISTINCT or node.sign in _EQUALITY.values() or node.sign in _COMPARISON
    )
    return is_compared or isinstance(node, Not | Is | Like | Between | In) or (isinstance(node, Chain) and node.sign != "||")


def _bracketed(node: Node) -> Node:
    return Paren(node, span=node.span)


def _closed(node: Node) -> Node:
    """Return what stands before an operator, in brackets where it ends with a NOT, which would take what follows for its own."""
    last = node
    while isinstance(last, Binary | Negative):
        last = last.right if isinstance(last, Binary) else last.operand
    return _bracketed(node) if isinstance(last, Not) else node


def _as_side(node: Node) -> Node:
    """Return a side of a comparison, in brackets where it is a test."""
    return _bracketed(node) if _is_test(node.operand if isinstance(node, Not) else node) else node


def _as_tested(node: Node, *, is_distinct: bool = False) -> Node:
    """Return what IS tests, in brackets where its end would not be seen."""
    is_plain = (
        isinstance(node, Between | In)
        or (isinstance(node, Like) and not node.is_negated)
        or (isinstance(node, Is) and not is_distinct)
    )
    return _bracketed(node) if _is_truth(node) and not is_plain else node


def _as_asked(node: Node) -> Node:
    """Return what stands behind IS and IS DISTINCT FROM, in brackets where it is a truth value."""
    return _bracketed(node) if _is_truth(node) else node

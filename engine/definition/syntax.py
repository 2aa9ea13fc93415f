"""From expression text to a syntax tree, and back. The tree is sqlglot's; what may be in it is decided here.

Three fences, outside in: the text (length, nesting, no comments, no statement separator), the kind of node (an allow-list), and
what a node may carry (an allow-list per kind, so that a clause this release does not know is refused and never silently ignored).
No text of a user is ever handed on to a database or to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from engine.definition.limits import MAX_ARGUMENTS, MAX_CANONICAL_CHARS, MAX_IN_VALUES, MAX_NESTING, MAX_TREE_DEPTH
from engine.definition.operands import ExpressionInvalid

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_PREFIX = frozenset({TokenType.NOT, TokenType.DASH})


class SlackwaterDialect(Dialect):
    """SQL scalar expressions with no function known to the parser: every call stays as written and is looked up by us."""

    class Tokenizer(tokens.Tokenizer):
        """``$`` may be part of a name (``w.$match``)."""

        VAR_SINGLE_TOKENS: ClassVar[set[str]] = {"$"}

    class Parser(parser.Parser):
        """Only CAST, EXTRACT and CASE keep their own syntax."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, type[exp.Func]]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parser.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }


_BINARY: tuple[str, ...] = ("this", "expression")
_ALLOWED: dict[type[exp.Expr], tuple[str, ...]] = {
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is,
            exp.Like, exp.ILike, exp.Escape, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe, exp.Extract,
        ),
        _BINARY,
    ),
    **dict.fromkeys((exp.Paren, exp.Not, exp.Neg, exp.Boolean), ("this",)),
    exp.Null: (),
    exp.Star: (),
    exp.Column: ("this", "table"),
    exp.Identifier: ("this", "quoted"),
    exp.Literal: ("this", "is_string"),
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true"),
    exp.Cast: ("this", "to"),
    exp.DataType: ("this", "expressions", "nested", "kind"),
    exp.DataTypeParam: ("this",),
    exp.Var: ("this",),
    exp.Anonymous: ("this", "expressions"),
    exp.Distinct: ("expressions",),
}  # fmt: skip
_FLAGS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.DPipe: ("safe",),
    exp.Div: ("typed", "safe"),
    exp.Like: ("negate",),
    exp.ILike: ("negate",),
}
"""Flags the parser itself sets; of these only ``negate`` has a meaning (NOT LIKE)."""

_LISTS: dict[type[exp.Expr], tuple[str, str, int, str]] = {
    exp.In: ("expressions", "the most values of IN are ", MAX_IN_VALUES, "put them into a table and join it"),
    exp.Anonymous: ("expressions", "the most arguments of {name} are ", MAX_ARGUMENTS, "put calls into each other"),
    exp.Case: ("ifs", "the most branches of CASE are ", MAX_ARGUMENTS, "put the values into a table and join it"),
}
"""Kinds of nodes with a list: which field, what is too long, its bound, and what to write instead."""

_QUERIES = (exp.Query, exp.Subquery, exp.Exists, exp.Window, exp.Values)


def parse(text: str) -> exp.Expr:
    """Parse one expression whose every node is allowed.

    Raises:
        ExpressionInvalid: ``expression_malformed``, or ``not_a_scalar`` for statements, subqueries and window functions.
    """
    if len(text) > MAX_CANONICAL_CHARS:
        raise _malformed(f"an expression may have {MAX_CANONICAL_CHARS:,} characters, this one has {len(text):,}")
    if not text.strip():
        raise _malformed("the expression is empty")
    if "\0" in text:
        raise _malformed("the expression holds a NUL character")
    dialect = SlackwaterDialect()
    try:
        found = dialect.tokenize(text)
        _check_tokens(found)
        trees = dialect.parser().parse_into(exp.Condition, found, text)
    except SqlglotError as error:
        raise _malformed(f"{_excerpt(text)} is not a SQL expression: {_reason(error)}") from error
    except RecursionError as error:
        raise _malformed("the expression is nested too deeply") from error
    if len(trees) != 1 or trees[0] is None:
        raise _malformed(f"{_excerpt(text)} is not one expression")
    check(trees[0], text)
    return trees[0]


def _check_tokens(found: list[Token]) -> None:
    """Refuse comments and separators, and nesting that would exhaust a recursive parser."""
    depth, prefixes = 0, 0
    for token, following in zip(found, [*found[1:], None], strict=True):
        if token.token_type == TokenType.INTERVAL and following is not None and following.token_type == TokenType.STRING:
            # Refused anyway; here, because the parser looks for numbers in the text in a time that grows with the square of its length.
            raise _malformed(
                f"{_excerpt(f'interval {following.text!r}')} is not supported in expressions: {_INSTEAD[exp.Interval]}"
            )
        if token.comments:
            raise _malformed("comments are not allowed in an expression; write - (-x) with brackets for a double minus")
        if token.token_type == TokenType.SEMICOLON:
            raise _malformed("an expression is one expression: ';' is not allowed")
        prefixes = prefixes + 1 if token.token_type in _PREFIX else 0
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth + prefixes > MAX_NESTING:
            raise _malformed(f"an expression may be nested {MAX_NESTING} deep")


def check(tree: exp.Expr, text: str) -> None:
    """Check every node of a tree against the allow-list. Raises ExpressionInvalid."""
    pending: list[tuple[exp.Expr, int]] = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        kind = type(node)
        if depth > MAX_TREE_DEPTH:
            raise _malformed(f"more than {MAX_TREE_DEPTH} operators in a row; use brackets, IN (…) or several columns")
        if kind not in _ALLOWED:
            if isinstance(node, _QUERIES):
                raise ExpressionInvalid(
                    "not_a_scalar", f"{_excerpt(text)}: statements, subqueries and window functions are not allowed here"
                )
            raise _malformed(f"{described(node, text)} is not supported in expressions{_instead(node)}")
        _check_parts(node)
        allowed = _ALLOWED[kind] + _FLAGS.get(kind, ())
        for name, value in node.args.items():
            if name in allowed or value in (None, False, [], ()):
                continue
            if name == "query":
                raise ExpressionInvalid("not_a_scalar", "IN takes a list of values, not a subquery; use a join")
            raise _malformed(f"{described(node, text)} is not supported in expressions{_instead(node)}")
        for child in node.iter_expressions():
            is_chain = isinstance(node, (exp.And, exp.Or)) and type(child) is kind
            pending.append((child, depth if is_chain else depth + 1))


def _check_parts(node: exp.Expr) -> None:
    """Refuse a list of values, arguments or branches beyond its bound."""
    listed = _LISTS.get(type(node))
    if listed is None:
        return
    field, what, most, way_out = listed
    count = len(node.args.get(field) or ())
    if count > most:
        raise _malformed(f"{what.format(name=node.name.lower()[:60])}{most:,}, this one has {count:,}; {way_out}")


def render(tree: exp.Expr) -> str:
    """Return the canonical text of a tree; ``parse(render(tree))`` is the same tree."""
    return tree.sql(dialect=SlackwaterDialect, comments=False, normalize_functions="lower")


def quoted(name: str, alias: str | None = None) -> str:
    """Return a column reference that resolves to exactly this name, whatever is in it."""
    parts = [alias, name] if alias is not None else [name]
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def reference(name: str) -> str:
    """Return an expression that is exactly this column."""
    alias, dot, column = name.partition(".")
    return quoted(column, alias) if dot else quoted(name)


def flatten(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of one operator (``a AND b AND c``), left to right, without recursion."""
    kind, operands, pending = type(node), list[exp.Expr](), [node]
    while pending:
        current = pending.pop()
        if type(current) is kind:
            pending.extend((current.args["expression"], current.args["this"]))
        else:
            operands.append(current)
    return operands


def _malformed(detail: str) -> ExpressionInvalid:
    return ExpressionInvalid("expression_malformed", detail)


def described(node: exp.Expr, text: str) -> str:
    """Name a part of an expression by its own text, never by what the parser calls it; the whole where that cannot be found in it."""
    try:
        part = render(node)
    except (SqlglotError, RecursionError, ValueError, AttributeError):
        return _excerpt(text)
    at = text.lower().find(part.lower())
    return _excerpt(text if at < 0 else text[at : at + len(part)])


_INSTEAD: dict[type[exp.Expr], str] = {
    exp.Column: "a column is written as column or relation.column; a struct's fields cannot be taken out",
    exp.Interval: "durations belong into `window`, `grace` and other fields; of times use epoch_ms(…) and milliseconds",
    exp.Bracket: "elements of arrays and maps cannot be taken out",
    exp.Dot: "a struct's fields cannot be taken out",
    exp.Lambda: "there are no lambda functions",
    exp.TryCast: "CAST(… AS …) gives NULL where it fails",
    exp.RegexpLike: "use LIKE, or contains(text, part)",
    exp.Alias: 'names of columns stand beside the expression: {"name": "expression"}',
    exp.Parameter: "there are no parameters: write the value",
    exp.Placeholder: "there are no parameters: write the value",
    exp.Tuple: "compare columns one by one with AND",
    exp.JSONExtract: "read the value out before it is sent, into a column of its own",
    exp.Cast: "a cast is CAST(… AS type), without a format",
}
"""What to write instead of what people try."""


def _instead(node: exp.Expr) -> str:
    found = next((text for kind, text in _INSTEAD.items() if isinstance(node, kind)), None)
    return "; GET /v1/functions lists what there is" if found is None else f": {found}"


def _excerpt(text: str) -> str:
    """Quote the text for a message, bounded and with control characters escaped."""
    return json.dumps(text if len(text) <= 60 else text[:60] + "…", ensure_ascii=False)


def _reason(error: SqlglotError) -> str:
    """Say where reading ended, in our own words: the parser's speak of its tokens and classes."""
    if not isinstance(error, ParseError) or not error.errors:
        return "a quote is not closed"
    first = error.errors[0]
    found = str(first.get("highlight") or "").strip()
    if not found or (not str(first.get("end_context") or "").strip() and _is_open(error)):
        return "it is not complete"
    return f"{_excerpt(found)} at character {first['col']} does not fit what stands before it"


def _is_open(error: ParseError) -> bool:
    """Whether the parser wanted more at the end of the text."""
    return str(error.errors[0]["description"]).startswith(("Expecting", "Required", "Expected"))

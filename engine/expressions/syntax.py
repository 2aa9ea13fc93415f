"""Expressions of definitions: read by the parser of the language (``engine.sql``), within our bounds, with faults in our users' words.

No text of a user is ever handed on to a database or to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.expressions.cpu_deadline import ask
from engine.expressions.limits import MAX_ARGUMENTS, MAX_CANONICAL_CHARS, MAX_IN_VALUES, MAX_NESTING, MAX_TREE_DEPTH
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.bounds import Bounds
from engine.sql.expressions.expressions import parse_expression
from engine.sql.faults import FaultKind, ListTooLong, SyntaxFault
from engine.sql.printing import expressions as printing
from engine.sql.sentences import INSTEAD, described, excerpt, too_deep, too_many
from engine.sql.tree import Node

_BOUNDS: Final = Bounds(MAX_NESTING, MAX_TREE_DEPTH, MAX_IN_VALUES, MAX_ARGUMENTS)

INSTEAD_IN_EXPRESSIONS: Final[Mapping[FaultKind, str]] = {
    **INSTEAD,
    "alias": 'names of columns stand beside the expression: {"name": "expression"}',
    "comment": "comments are not allowed in an expression; write - (-x) with brackets for a double minus",
    "interval": "durations belong into `window`, `grace` and other fields; of times use epoch_ms(…) and milliseconds",
    "query": "statements, subqueries and window functions are not allowed here; use a join",
    "separator": "an expression is one expression: ';' is not allowed",
    "window_function": "statements, subqueries and window functions are not allowed here",
}

_NO_SCALARS: Final[frozenset[FaultKind]] = frozenset({"query", "window_function"})


def parse(text: str) -> Node:
    """Parse one expression.

    Raises:
        ExpressionInvalid: ``expression_malformed``, or ``not_a_scalar`` for subqueries and window functions.
    """
    if len(text) > MAX_CANONICAL_CHARS:
        raise _malformed(f"an expression may have {MAX_CANONICAL_CHARS:,} characters, this one has {len(text):,}")
    if not text.strip():
        raise _malformed("the expression is empty")
    if "\0" in text:
        raise _malformed("the expression holds a NUL character")
    ask()
    try:
        return parse_expression(text, _BOUNDS)
    except RecursionError as error:
        raise _malformed(f"an expression may be nested {MAX_NESTING} deep") from error
    except SyntaxFault as fault:
        code = "not_a_scalar" if fault.kind in _NO_SCALARS else "expression_malformed"
        raise ExpressionInvalid(code, _sentence(fault, text)) from fault


def render(tree: Node) -> str:
    """Return the canonical text of a tree; ``parse(render(tree))`` is the same tree."""
    return printing.show(tree)


def quoted(name: str, alias: str | None = None) -> str:
    """Return a column reference that resolves to exactly this name, whatever is in it."""
    return printing.quoted(name) if alias is None else f"{printing.quoted(alias)}.{printing.quoted(name)}"


def reference(name: str) -> str:
    """Return an expression that is exactly this column."""
    alias, dot, column = name.partition(".")
    return quoted(column, alias) if dot else quoted(name)


def _malformed(detail: str) -> ExpressionInvalid:
    return ExpressionInvalid("expression_malformed", detail)


def _sentence(fault: SyntaxFault, text: str) -> str:
    if isinstance(fault, ListTooLong):
        return too_many(fault)
    if fault.kind == "too_deep":
        return too_deep(fault, "an expression", _BOUNDS)
    if fault.kind == "incomplete":
        return f"{excerpt(text)} is not complete: it ends where {described(fault.expected)} is needed"
    found = excerpt(text[fault.start : fault.end])
    if fault.kind == "unexpected":
        return f"{excerpt(text)} is no expression: {found} at character {fault.start + 1} stands where {described(fault.expected)} is needed"
    return f"{found} at character {fault.start + 1}: {INSTEAD_IN_EXPRESSIONS[fault.kind]}"

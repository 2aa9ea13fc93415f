"""Expressions of definitions: read by the parser of the language (``engine.sql``), within our bounds, with faults in our users' words.

No text of a user is ever handed on to a database or to Spark.
"""

from __future__ import annotations

import json
from typing import Final

from engine.definition.limits import MAX_ARGUMENTS, MAX_CANONICAL_CHARS, MAX_IN_VALUES, MAX_NESTING, MAX_TREE_DEPTH
from engine.definition.operands import ExpressionInvalid
from engine.definition.patience import ask
from engine.sql import printing
from engine.sql.bounds import Bounds
from engine.sql.expressions import parse_expression
from engine.sql.faults import FaultKind, ListTooLong, SyntaxFault
from engine.sql.tree import Node

_BOUNDS: Final = Bounds(MAX_NESTING, MAX_TREE_DEPTH, MAX_IN_VALUES, MAX_ARGUMENTS)

_INSTEAD: Final[dict[FaultKind, str]] = {
    "alias": 'names of columns stand beside the expression: {"name": "expression"}',
    "argument_name": "x => … is a function, and an argument of one that takes functions; other arguments have no names",
    "cast_of_typed_text": "which type comes first is not clear; write CAST(… AS …), or brackets: (DATE '2013-01-01')::timestamp",
    "comment": "comments are not allowed in an expression; write - (-x) with brackets for a double minus",
    "field": "a column is written as column or relation.column; a struct's field is taken out with ->",
    "field_of_value": "a struct's field is taken out with ->",
    "interval": "durations belong into `window`, `grace` and other fields; of times use epoch_ms(…) and milliseconds",
    "not_in_list": "IN takes a list of values in brackets",
    "open_quote": "a quote is not closed",
    "parameter": "there are no parameters: write the value",
    "pattern": "use LIKE, or contains(text, part)",
    "query": "statements, subqueries and window functions are not allowed here; use a join",
    "separator": "an expression is one expression: ';' is not allowed",
    "time_zone": "times are in UTC; AT TIME ZONE does not exist",
    "try_cast": "CAST(… AS …) gives NULL where it fails",
    "tuple": "compare columns one by one with AND",
    "window_function": "statements, subqueries and window functions are not allowed here",
}
"""What is wrong, or what to write instead of what people try."""

_NO_SCALARS: Final[frozenset[FaultKind]] = frozenset({"query", "window_function"})

_WAYS_OUT: Final = {
    "IN": ("values of IN", "put them into a table and join it"),
    "CASE": ("branches of CASE", "put the values into a table and join it"),
    "||": ("operands of ||", "join some of them in brackets"),
}


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
        what, way_out = _WAYS_OUT.get(fault.of, (f"arguments of {fault.of[:60]}", "put calls into each other"))
        return f"the most {what} are {fault.most:,}, this one has {fault.count:,}; {way_out}"
    if fault.kind == "too_deep" and fault.expected:
        return f"more than {MAX_TREE_DEPTH} operators in a row; use brackets, IN (…) or several columns"
    if fault.kind == "too_deep":
        return f"an expression may be nested {MAX_NESTING} deep"
    if fault.kind == "incomplete":
        return f"{_excerpt(text)} is not complete: it ends where {_described(fault.expected)} is needed"
    found = _excerpt(text[fault.start : fault.end])
    if fault.kind == "unexpected":
        return f"{_excerpt(text)} is no expression: {found} at character {fault.start + 1} stands where {_described(fault.expected)} is needed"
    return f"{found} at character {fault.start + 1}: {_INSTEAD[fault.kind]}"


def _described(expected: str) -> str:
    """Put words and signs of the language apart from words about them."""
    return expected if expected[:2] in ("a ", "an") or " or " in expected else f"`{expected}`"


def _excerpt(text: str) -> str:
    """Quote the text for a message, bounded and with control characters escaped."""
    return json.dumps(text if len(text) <= 60 else text[:60] + "…", ensure_ascii=False)

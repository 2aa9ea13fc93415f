"""Expressions and types of definitions: read by the parser of the language (``engine.sql``), within our bounds, with faults in our users' words.

No text of a user is ever handed on to a database or to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.expressions.cpu_deadline import ask
from engine.expressions.limits import MAX_ARGUMENTS, MAX_CANONICAL_CHARS, MAX_IN_VALUES, MAX_NESTING, MAX_TREE_DEPTH
from engine.expressions.types.types import STRING, ColumnType, parse_type
from engine.expressions.values.nested import array_of, map_of, struct_of
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.expressions.expressions import parse_expression
from engine.sql.faults import FaultKind, ListTooLong, SyntaxFault
from engine.sql.lexing.cursor import Bounds
from engine.sql.printing import expressions as printing
from engine.sql.sentences import INSTEAD, described, excerpt, too_deep, too_many
from engine.sql.tree import Node, TypeName

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


_NAMES: Final = {
    "text": "string", "varchar": "string", "char": "string", "integer": "int", "long": "bigint", "float": "double",
    "real": "double", "double precision": "double", "bool": "boolean", "numeric": "decimal", "timestamptz": "timestamp",
    "datetime": "timestamp", "varbinary": "bytes", "binary": "bytes",
}  # fmt: skip
"""SQL's own names of our types, as the language prints them."""


def type_of(written: TypeName) -> ColumnType:
    """Return the type that is written; letter case counts in the names of a struct's fields alone.

    Raises:
        ExpressionInvalid: ``type_mismatch``: there is none of that name, or it is too large.
    """
    match written:
        case TypeName(name="ARRAY", types=(element,)):
            return array_of(type_of(element))
        case TypeName(name="MAP", types=(key, value)):
            if type_of(key) != STRING:
                raise ExpressionInvalid(
                    "type_mismatch", f"a map's keys are strings: write map<string,...>, not {render(written)[:60]}"
                )
            return map_of(type_of(value))
        case TypeName(name="STRUCT", fields=fields) if fields:
            return struct_of((field.name.text, type_of(field.type)) for field in fields)
        case _:
            return _plain(written)


def _plain(written: TypeName) -> ColumnType:
    head, bracket, rest = render(written).lower().partition("(")
    known = _NAMES.get(head.strip(), head.strip())
    try:
        return parse_type(known if known == "string" else known + bracket + rest)
    except ValueError as error:
        raise ExpressionInvalid("type_mismatch", f"CAST: {error}") from error

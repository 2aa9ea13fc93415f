"""Names of a query that nothing is called: all of them are reported together, before the query is bound."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES, ENTRIES, KSQLDB_AGGREGATES
from engine.expressions.library.function_list import ELSEWHERE, FUNCTIONS, KSQLDB, function_of
from engine.expressions.suggestions import meant
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.statement_tree import Select
from engine.sql.tree import Call, Column, Identifier, Node, Star
from engine.statements.context.faults import Faults, StatementFault, StatementRefused, raise_all
from engine.statements.context.naming import WINDOW_BOUNDS_OF_SQL
from engine.statements.context.scope import Sources, Translator
from engine.statements.context.session import Session
from engine.statements.queries.joins import row_key_names

_AGGREGATES: Final = frozenset({*AGGREGATE_NAMES, *ENTRIES, *map(str.lower, KSQLDB_AGGREGATES)})
_KNOWN: Final = frozenset(
    {*FUNCTIONS, *map(str.lower, KSQLDB), *_AGGREGATES, "as_value", "count_distinct", "explode", "cube_explode"}
)
"""What a call may name; whether it may stand where it stands is for those who bind it."""

_OF_NAMES: Final = frozenset({"unknown_column", "ambiguous_column", "unknown_relation", "unknown_type", "unknown_function"})
"""Codes of what is reported here; other faults are judged behind the rules of the language."""


def check_names(select: Select, sources: Sources, session: Session, own: Collection[str] = (), *, is_free: bool = False) -> None:
    """Refuse names of columns, inputs, types and functions that mean nothing.

    Raises:
        StatementRefused: the first; the others are its ``others``.
    """
    bounds = WINDOW_BOUNDS_OF_SQL if select.window is not None else ()
    synthetic = {name: Column(Identifier(name, is_quoted=True)) for name in (*own, *bounds, *row_key_names(select.joins))}
    translate = Translator(sources, session.types, dict(synthetic), is_free=is_free)
    faults = [fault for expression in _expressions(select) for fault in name_faults(expression, translate, session)]
    raise_all([fault for fault in faults if fault.code in _OF_NAMES])


def name_faults(expression: Node, translate: Translator, session: Session) -> list[StatementFault]:
    """Return what is wrong with the names in an expression, and what else keeps it from being translated."""
    if isinstance(expression, Star):
        return _star_faults(expression, translate.sources)
    faults: list[StatementFault] = []
    replace(translate, faults=faults)(expression)
    return [*faults, *_unknown_functions(expression, session)]


def _expressions(select: Select) -> Iterator[Node]:
    yield from (item.value for item in select.items)
    yield from (join.on for join in select.joins if join.on is not None)
    yield from (each for each in (select.where, select.having) if each is not None)
    yield from (*select.group_by, *select.partition_by)


def _star_faults(star: Star, sources: Sources) -> list[StatementFault]:
    faults = Faults()
    with faults.part():
        if star.table is not None:
            sources.find(star.table)
    return faults.listed


def _unknown_functions(tree: Node, session: Session) -> Iterator[StatementRefused]:
    for call in (node for node in tree.walk() if isinstance(node, Call)):
        name = call.name.text.lower()
        if name not in _KNOWN and name not in session.functions:
            yield StatementRefused("unknown_function", _no_function(call.name.text, session), call)


def _no_function(name: str, session: Session) -> str:
    near = None if name.lower() in ELSEWHERE else meant(name, [*_KNOWN, *session.functions])
    if near is not None:
        return f"there is no function {name[:60]!r}; did you mean {near}?"
    try:
        function_of(name)
    except ExpressionInvalid as error:
        return error.detail
    raise AssertionError(f"{name} is a function")

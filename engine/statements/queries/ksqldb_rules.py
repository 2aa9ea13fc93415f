"""What ksqlDB refuses although it could be had here. Statements refuse it, too, unless they say ``DIALECT='STANDARD'``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.expressions.aggregates.aggregates import AGGREGATES
from engine.sql.statement_tree import JoinClause, Select
from engine.sql.tree import Binary, Call, Chain, Column, Node, Null, Number
from engine.statements.context.faults import StatementFault, StatementRefused, raise_all
from engine.statements.context.scope import Source, Sources

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_OF_ANY_WINDOW: Final = ("JSON_SR", "AVRO", "PROTOBUF")
"""Formats of keys of which ksqlDB joins windows of different sizes."""

_TABLE_FUNCTIONS: Final = ("explode", "cube_explode")
_NESTED_AGGREGATES: Final = frozenset(
    name.lower() for each in AGGREGATES.values() if each.is_nested_in_ksqldb for name in each.ksqldb
)
_LARGEST: Final = 2**63
"""Of a BIGINT, without its sign."""


def check_rules(select: Select, sources: Sources) -> None:
    """Refuse a query that ksqlDB refuses.

    Raises:
        StatementFault: with ksqlDB's reasons.
    """
    joins = zip(select.joins, sources.listed[1:], strict=True)
    raise_all(
        [
            *_of_formats(select, sources),
            *_of_intermediate_types(select, sources),
            *_of_self_joins(sources),
            *(fault for join, source in joins for fault in _of_join(sources.first, source, join)),
            *_of_table_functions(select, sources),
            *(fault for node in select.walk() for fault in _of_literals(node)),
        ]
    )


def _of_self_joins(sources: Sources) -> Iterator[StatementFault]:
    names = [source.relation.name for source in sources]
    for source in sources.listed[1:]:
        if names.count(source.relation.name) > 1:
            detail = f"{source.relation.name} is on both sides of a join: make a second stream or table of it and join that"
            yield StatementRefused("self_join", detail, source.at)


def _of_join(first: Source, source: Source, join: JoinClause) -> Iterator[StatementFault]:
    on = None if join.on is None else join.on.bare
    if isinstance(on, Chain):
        yield StatementRefused("join_key_mismatch", "ON takes one equality, that of the keys: put the rest into WHERE", on)
    else:
        yield from _of_windows(first, source, join)


def _of_table_functions(select: Select, sources: Sources) -> Iterator[StatementFault]:
    """Refuse what makes several rows of one where rows are those of tables, or of groups."""
    calls = [
        node
        for item in select.items
        for node in item.walk()
        if isinstance(node, Call) and node.name.text.lower() in _TABLE_FUNCTIONS
    ]
    name = calls[0].name.text.upper() if calls else ""
    if calls and sources.first.relation.kind == "table":
        detail = f"{name} makes several rows of one, and a row of a table has its key: read a stream"
        yield StatementRefused("table_function", detail, calls[0])
    if calls and select.group_by:
        detail = f"{name} and GROUP BY do not go together: make a stream with {name}, and group that"
        yield StatementRefused("table_function", detail, calls[0])


def _of_formats(select: Select, sources: Sources) -> Iterator[StatementFault]:
    clause = "JOIN" if select.joins else "GROUP BY" if select.group_by else None
    those = [source.relation.name for source in sources if source.relation.topic.value_format.name == "KAFKA"]
    if clause is not None and those:
        detail = f"values of {', '.join(those)} are written as KAFKA, which is not read by {clause}: give another VALUE_FORMAT"
        yield StatementRefused("format_clash", detail, select.relation)


def _of_intermediate_types(select: Select, sources: Sources) -> Iterator[StatementFault]:
    """Refuse aggregates of which ksqlDB keeps what the format of the first source cannot hold."""
    if sources.first.relation.topic.value_format.name != "DELIMITED":
        return
    for node in select.walk():
        if isinstance(node, Call) and node.name.text.lower() in _NESTED_AGGREGATES:
            name = node.name.text.upper()
            detail = f"{name} keeps nested values, which DELIMITED cannot write: read a relation of another VALUE_FORMAT"
            yield StatementRefused("format_clash", detail, node)


def _of_windows(first: Source, source: Source, join: JoinClause) -> Iterator[StatementFault]:
    """Refuse joins of windows that never equal each other, and those that would need other keys."""
    mine, theirs = first.relation.window, source.relation.window
    if mine is None or theirs is None:
        return
    if (mine.type == "session") != (theirs.type == "session"):
        detail = f"{mine.type.upper()} and {theirs.type.upper()} windows never equal each other: join windows of one type"
        yield StatementRefused("windowed_join", detail, join)
        return
    on = None if join.on is None else join.on.bare
    sides = [side.bare for side in (on.left, on.right)] if isinstance(on, Binary) else []
    keys = {*first.relation.key, *source.relation.key}
    is_on_keys = all(isinstance(side, Column) and _folded(side) in keys for side in sides)
    is_same = mine.size_ms == theirs.size_ms or first.relation.topic.key_format.name in _OF_ANY_WINDOW
    if not is_same or not is_on_keys:
        detail = "relations with windows join on their keys, and their windows have one length: make both so by GROUP BY first"
        yield StatementRefused("windowed_join", detail, join)


def _folded(column: Column) -> str:
    return column.name.text if column.name.is_quoted else column.name.text.upper()


def _of_literals(node: Node) -> Iterator[StatementFault]:
    if (
        isinstance(node, Binary)
        and node.sign in _COMPARISONS
        and any(isinstance(side.bare, Null) for side in (node.left, node.right))
    ):
        yield StatementRefused("null_compared", "a comparison with NULL is never true: write IS NULL or IS NOT NULL", node)
    if isinstance(node, Number) and node.text.isdigit() and int(node.text[:40]) > _LARGEST:
        detail = f"{node.text[:40]} is larger than a BIGINT holds: write it with a point, as a DECIMAL, or smaller"
        yield StatementRefused("number_too_large", detail, node)

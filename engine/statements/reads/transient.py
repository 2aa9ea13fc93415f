"""SELECTs with EMIT that are queries of their own, for as long as somebody reads them.

They write a stream of everything that they show. What identifies a row is no matter: a key that the SELECT does not show is added under a
name of ours, and not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from engine.definition.queries import QueryDefinition
from engine.expressions.types.types import Schema
from engine.sql.statement_tree import RelationKind, Select, SelectItem
from engine.sql.tree import Binary, Chain, Column, Identifier, Node, Number
from engine.statements.context.faults import StatementFault, together
from engine.statements.context.properties import Properties
from engine.statements.context.session import Session
from engine.statements.queries.grouping import has_aggregates
from engine.statements.queries.planning import planned, running_of
from engine.statements.queries.selecting import Selected, select_of

NAME: Final = "transient"
"""Of the query and its result while they have no other."""

_HIDDEN: Final = "KSQL_KEY"

_OF_KEYS: Final = frozenset({"key_missing_in_select", "columns_missing"})
"""Codes of what hidden columns help against."""


@dataclass(frozen=True, slots=True)
class TransientQuery:
    """A query that a SELECT asks for.

    Attributes:
        definition: it writes a stream of every row that it shows; its name is for the caller to give.
        kind: what the rows are: a stream's records, or changes of a table's rows.
        types: of the columns that are shown.
        limit: how many rows are wanted at most.
    """

    definition: QueryDefinition
    kind: RelationKind
    types: Schema
    limit: int | None


def transient_of(select: Select, session: Session, beginning: Literal["earliest", "latest"]) -> TransientQuery:
    """Bind a SELECT with EMIT as a query.

    Raises:
        StatementRefused: it is wrong.
        StatementUnsupported: it cannot be had here.
    """
    wanted = replace(select, limit=None)
    if has_aggregates(*(item.value for item in select.items), select.having) and not select.group_by:
        wanted = replace(wanted, group_by=(Number("1"),))
    selected = _selected(wanted, session)
    definition, plan = planned(selected, NAME, {"stream": NAME}, running_of(Properties(()), session), session, select)
    start = beginning if selected.sources.first.relation.kind == "stream" else "earliest"
    columns = plan.output.columns
    shown = tuple((name, kind) for name, kind in columns.items() if name in selected.columns and not name.startswith(_HIDDEN))
    limit = None if select.limit is None else int(select.limit)
    return TransientQuery(definition.model_copy(update={"start": start}), selected.kind, Schema(shown), limit)


def _selected(select: Select, session: Session) -> Selected:
    """Bind the SELECT, with as many hidden columns as its key asks for."""
    try:
        return select_of(select, session, NAME)
    except StatementFault as fault:
        first = fault
    if lasting := [each for each in first.all if each.code not in _OF_KEYS]:
        raise together(lasting) from first
    for hidden in _hidden(select):
        items = tuple(SelectItem(each, Identifier(f"{_HIDDEN}_{number}", is_quoted=True)) for number, each in enumerate(hidden))
        try:
            return select_of(replace(select, items=(*select.items, *items)), session, NAME)
        except StatementFault:
            continue
    raise first


def _hidden(select: Select) -> Iterator[tuple[Node, ...]]:
    """Yield what may be missing: a value, groups, parts of PARTITION BY, sides of joins."""
    yield (Number("1"),)
    if select.group_by:
        shown = {item.value.bare for item in select.items}
        yield tuple(each for each in select.group_by if each.bare not in shown)
        yield select.group_by
    if select.partition_by:
        yield select.partition_by
    sides = [side for join in select.joins if join.on is not None for side in _sides(join.on)]
    yield from ((side,) for side in sides)
    yield (Column(Identifier("ROWKEY")),)


def _sides(on: Node) -> list[Node]:
    match on.bare:
        case Binary(sign="=", left=left, right=right):
            return [left, right]
        case Chain(sign="AND", operands=operands):
            return [side for part in operands for side in _sides(part)]
    return []

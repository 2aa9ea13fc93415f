"""What the clauses of a SELECT must not say together, whatever its inputs are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.sql.statement_tree import Select
from engine.sql.tree import Null
from engine.statements.context.faults import StatementFault, StatementRefused, StatementUnsupported, raise_all
from engine.statements.queries.grouping import has_aggregates, is_aggregate

_UNENDING: Final = "only a window comes to an end: write EMIT CHANGES, or WINDOW … GROUP BY"


def is_grouped(select: Select) -> bool:
    """Whether a SELECT makes groups, or shows aggregates and should."""
    return bool(select.group_by) or has_aggregates(*(item.value for item in select.items), select.having)


def check_clauses(select: Select) -> None:
    """Refuse clauses that do not go together.

    Raises:
        StatementFault: with every fault.
    """
    raise_all([*_of_any(select), *(_of_groups(select) if is_grouped(select) else _of_rows(select))])


def _of_any(select: Select) -> Iterator[StatementFault]:
    if select.where is not None and has_aggregates(select.where):
        detail = "WHERE judges single rows; a condition over aggregates belongs into HAVING"
        yield StatementRefused("aggregate_in_where", detail, select.where)
    if select.limit is not None:
        detail = "LIMIT belongs to a SELECT that is read at once, not to a query that goes on"
        yield StatementUnsupported("limit_not_supported", detail, select)


def _of_groups(select: Select) -> Iterator[StatementFault]:
    if not select.group_by:
        yield StatementRefused("group_missing", "an aggregate needs groups: write GROUP BY", select)
    elif not has_aggregates(*(item.value for item in select.items), select.having):
        detail = "groups are for aggregates, and there is none: add one, such as COUNT(*), or leave GROUP BY out"
        yield StatementRefused("group_without_aggregate", detail, select.group_by[0])
    if select.partition_by:
        detail = "PARTITION BY does not go with GROUP BY, which gives the rows their key"
        yield StatementRefused("partition_unfit", detail, select.partition_by[0])
    for each in select.group_by:
        if has_aggregates(each):
            detail = "groups are made before anything is aggregated: take the aggregate out of GROUP BY"
            yield StatementRefused("aggregate_in_group", detail, each)
    yield from _nested(select)
    if select.window is None and select.emit is not None and select.emit.mode == "final":
        yield StatementRefused("emit_unfit", _UNENDING, select.emit)


def _nested(select: Select) -> Iterator[StatementFault]:
    detail = "an aggregate stands in another one: make a table of the inner one, and aggregate that"
    for each in (*(item.value for item in select.items), select.having):
        for call in () if each is None else each.walk():
            if is_aggregate(call) and has_aggregates(*call.children):
                yield StatementRefused("nested_aggregate", detail, call)


def _of_rows(select: Select) -> Iterator[StatementFault]:
    if select.window is not None:
        detail = "WINDOW divides groups, and there is no GROUP BY: write one, or leave WINDOW out"
        yield StatementRefused("window_without_group", detail, select.window)
    if select.having is not None:
        detail = "HAVING filters groups, and there is no GROUP BY; use WHERE"
        yield StatementRefused("having_without_group", detail, select.having)
    if select.emit is not None and select.emit.mode in ("final", "window_end"):
        yield StatementRefused("emit_unfit", _UNENDING, select.emit)
    if len(select.partition_by) > 1 and any(isinstance(each.bare, Null) for each in select.partition_by):
        detail = "NULL stands alone in PARTITION BY, where it takes the key away: leave it or the others out"
        yield StatementRefused("partition_unfit", detail, select.partition_by[0])
    for each in select.partition_by:
        if has_aggregates(each):
            detail = "PARTITION BY looks at single records, and this is an aggregate: use GROUP BY"
            yield StatementRefused("aggregate_in_partition", detail, each)

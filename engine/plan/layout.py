"""Lays a checked definition out: what each input reads and is hashed by, and which operators share a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.definition.expressions import compile_scalar
from engine.definition.queries import StartAt
from engine.definition.types import STRING, Schema
from engine.plan.model import Filter, Input, LateRecords, Operator, Output, Plan, Projection, Stage, StreamTableJoin
from engine.plan.scope import Scope, Side
from engine.plan.windows import PlannedWindow


@dataclass(frozen=True, slots=True)
class Layout:
    """What the plan is put together from; every text in it is canonical.

    Attributes:
        pairs: per joined table, from its key columns to the stream's columns that equal them.
        spread: the stream's columns whose hash chooses the task.
        source_where: ``from.where`` over the relation's own names.
        where: the condition after the joins.
    """

    scope: Scope
    pairs: tuple[dict[str, str], ...]
    spread: tuple[str, ...]
    source_where: str | None
    where: str | None
    window: PlannedWindow | None
    projection: Projection
    output: Output


def spread_of(scope: Scope, pairs: tuple[dict[str, str], ...], window: PlannedWindow | None) -> tuple[str, ...]:
    """Return the stream's columns whose hash chooses the task; records that must meet have them equal.

    Joins are hashed by what their keys share (checked by ``common_columns``), a window alone by its group, anything else by the
    stream's key.
    """
    if pairs:
        return common_columns(pairs)
    if window is not None:
        return tuple(source.partition(".")[2] for _, source in window.operator.group)
    return scope.stream.entry.relation.key


def common_columns(pairs: tuple[dict[str, str], ...]) -> tuple[str, ...]:
    """Return the stream's columns that every join uses, in the order of the first one's key; empty where they share none."""
    shared = set.intersection(*(set(pair.values()) for pair in pairs))
    return tuple(dict.fromkeys(column for column in pairs[0].values() if column in shared))


def assemble(layout: Layout) -> Plan:
    """Return the plan."""
    definition = layout.scope.definition
    inputs = _inputs(layout)
    late = definition.late_records
    return Plan(
        query=definition.name,
        tasks=definition.tasks,
        inputs=inputs,
        stages=_stages(layout, inputs),
        output=layout.output,
        late_records=LateRecords(late.max_rows, late.retention),
    )


def _stages(layout: Layout, inputs: tuple[Input, ...]) -> tuple[Stage, ...]:
    scope, window = layout.scope, layout.window
    entering = Schema(
        tuple((f"{source.alias}.{name}", source.relation.columns[name]) for source in inputs for name in source.columns)
    )
    first: list[Operator] = [_join(layout, index, inputs) for index in range(len(scope.tables))]
    if layout.where is not None:
        first.append(Filter(layout.where))
    stream_index = len(inputs) - 1
    if window is None:
        return (Stage(0, entering, stream_index, (*first, layout.projection)),)
    last = (window.operator, layout.projection)
    group = tuple(source for _, source in window.operator.group)
    if {scope.stream.qualified(name) for name in layout.spread} <= set(group):
        return (Stage(0, entering, stream_index, (*first, *last)),)
    joined = Schema((*entering.items(), *((f"{table.alias}.$match", STRING) for table in scope.tables)))
    return (Stage(0, entering, stream_index, tuple(first), exchange_key=group), Stage(1, joined, 0, last))


def _used(layout: Layout) -> set[str]:
    """Return the qualified columns that any expression or group after the source reads."""
    schema = layout.scope.schema()
    texts = [] if layout.where is None else [layout.where]
    used: set[str] = set()
    if layout.window is None:
        texts += [text for _, text in layout.projection.columns]
    else:
        texts += [column.argument for column in layout.window.operator.aggregates if column.argument is not None]
        used |= {source for _, source in layout.window.operator.group}
    return used.union(*(compile_scalar(text, schema).columns for text in texts))


def _inputs(layout: Layout) -> tuple[Input, ...]:
    """Return the inputs, tables first (T2)."""
    used = _used(layout)
    tables = [_table(layout, index, used) for index in range(len(layout.scope.tables))]
    stream = layout.scope.stream
    joined = {column for pair in layout.pairs for column in pair.values()}
    return (
        *tables,
        Input(
            index=len(tables),
            alias=stream.alias,
            relation=stream.entry.relation,
            feed=stream.entry.feed,
            columns=_needed(stream, {*layout.spread, *joined}, used),
            hash_key=layout.spread,
            where=layout.source_where,
            start=_start(layout.scope),
        ),
    )


def _table(layout: Layout, index: int, used: set[str]) -> Input:
    table, pair = layout.scope.tables[index], layout.pairs[index]
    return Input(
        index=index,
        alias=table.alias,
        relation=table.entry.relation,
        feed=table.entry.feed,
        columns=_needed(table, set(), used),
        hash_key=tuple(next(key for key, column in pair.items() if column == wanted) for wanted in layout.spread),
    )


def _needed(side: Side, also: set[str], used: set[str]) -> tuple[str, ...]:
    relation = side.entry.relation
    wanted = {*relation.key, *also}
    return tuple(name for name in relation.columns.names if name in wanted or side.qualified(name) in used)


def _start(scope: Scope) -> Literal["earliest", "latest"] | int:
    start = scope.definition.start
    return start.at_ms if isinstance(start, StartAt) else start


def _join(layout: Layout, index: int, inputs: tuple[Input, ...]) -> StreamTableJoin:
    scope, join, table = layout.scope, layout.scope.definition.joins[index], layout.scope.tables[index]
    relation = table.entry.relation
    return StreamTableJoin(
        name=table.alias,
        type="left" if join.type == "left" else "inner",
        table_index=index,
        stream_key=tuple(scope.stream.qualified(layout.pairs[index][name]) for name in relation.key),
        table_key=tuple(table.qualified(name) for name in relation.key),
        history_retention_ms=relation.history_retention_ms,
        grace_ms=join.grace,
        late=join.late,
        expired=join.expired,
        table_columns=tuple(table.qualified(name) for name in inputs[index].columns),
    )

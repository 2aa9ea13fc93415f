"""Lays a checked definition out: which operators it becomes, in the order of T9."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.expressions.expressions import columns_of
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.types.types import STRING, Schema
from engine.plan.building.exploding import Exploded
from engine.plan.building.grouping import Grouping
from engine.plan.building.join_keys import joined_schema
from engine.plan.building.joins import hold_of
from engine.plan.building.results import Selected
from engine.plan.building.running import PlannedJoin, Running
from engine.plan.building.scope import Checked, Scope
from engine.plan.building.stages import Stages
from engine.plan.building.suppressing import plan_suppress
from engine.plan.model import Computed, LateRecords, Output, Plan
from engine.plan.operators.explosion import Explosion
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.foreign_keys import answer_schema, foreign_key_columns, subscription_schema
from engine.plan.operators.regrouping import regrouped_schema
from engine.plan.operators.row_operators import Filter, Retiming
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.table_table_join import TableTableJoin

FROM_FILTER, FILTER = "from.where", "where"
"""Names of a table's filters. No relation can be called so with a dot; ``where`` is kept free."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the plan is put together from; every text in it is canonical.

    Attributes:
        running: the running relation behind the joins.
        source_where: ``from.where``: of a stream over the relation's own names, of a table over qualified ones.
        where: the condition after the joins.
        grouping: the aggregation.
        selected: the ``select``.
    """

    scope: Scope
    joins: tuple[PlannedJoin, ...]
    running: Running
    source_where: str | None
    where: str | None
    grouping: Grouping | None
    selected: Selected
    output: Output


def assemble(layout: Layout) -> Plan:
    """Return the plan."""
    scope, definition = layout.scope, layout.scope.definition
    stages = Stages(scope, _used(layout), layout.running.original)
    source = scope.source
    if layout.source_where is not None and source.kind == "table":
        is_last = not layout.joins and layout.where is None
        retention_ms = source.entry.relation.history_retention_ms
        stages.add(_table_filter(layout, FROM_FILTER, layout.source_where, source.key(), retention_ms, is_last=is_last))
    elif _is_copy_of_versions(layout):
        stages.add(_admission(layout))
    for place, join in enumerate(layout.joins, 1):
        _add_join(stages, layout, join, place)
    _add_where(stages, layout)
    _add_grouping(stages, layout)
    _add_suppress(stages, layout)
    if layout.selected.exploded is not None:
        _add_explosion(stages, layout, layout.selected.exploded)
    stages.add(layout.selected.projection)
    if definition.into.event_time is not None:
        stages.add(Retiming(definition.into.event_time, definition.into.event_time_format))
    built, inputs = stages.finish()
    if layout.source_where is not None and source.kind == "stream":
        inputs = tuple(replace(one, where=layout.source_where) if one.alias == source.alias else one for one in inputs)
    late, idle = definition.late_records, definition.idle
    return Plan(
        query=definition.name,
        tasks=definition.tasks or 1,
        inputs=inputs,
        stages=built,
        output=layout.output,
        late_records=LateRecords(late.max_rows, late.retention),
        idle_after_ms=None if idle is None else idle.after,
        slowest_after_ms=idle.after if idle is not None and definition.clock == "slowest" else None,
    )


def _is_copy_of_versions(layout: Layout) -> bool:
    """Whether the result is a versioned table's versions as they are: then no operator has judged them by V1."""
    retention_ms = layout.scope.source.entry.relation.history_retention_ms
    has_operators = bool(layout.joins) or layout.where is not None or layout.grouping is not None
    return retention_ms is not None and layout.output.history_retention_ms is not None and not has_operators


def _admission(layout: Layout) -> TableFilter:
    """Plan the judgement of V1: every accepted put goes on, tombstones alike (V2)."""
    source, output = layout.scope.source, layout.output
    known = [ms for ms in (source.entry.relation.history_retention_ms, output.history_retention_ms) if ms is not None]
    return TableFilter(source.alias, "true", source.key(), min(known), tells_every_delete=True)


def _used(layout: Layout) -> frozenset[str]:
    """Return the qualified columns that anything after the inputs reads."""
    scope, used = layout.scope, set(layout.scope.source.key())
    for join in layout.joins:
        used |= {join.side.qualified(part.right) for part in join.parts if part.computed is None}
        used |= {column for part in join.parts for column in part.left.scalar.columns}
    schema = scope.schema()
    texts = [layout.where] if layout.where is not None else []
    if layout.source_where is not None and scope.source.kind == "table":
        texts.append(layout.source_where)
    used = used.union(*(columns_of(text, schema) for text in texts))
    return frozenset(used | (layout.selected.reads if layout.grouping is None else layout.grouping.reads))


def _add_join(stages: Stages, layout: Layout, join: PlannedJoin, place: int) -> None:
    if join.is_foreign_key:
        _add_foreign_key(stages, join, place)
    elif layout.running.kind == "table":
        _add_table_join(stages, layout, join, place)
    else:
        _add_stream_join(stages, join, place)


def _add_stream_join(stages: Stages, join: PlannedJoin, place: int) -> None:
    """Join a stream with a table or a stream; a key that is more than a column becomes one first."""
    side, wanted = join.side, join.join
    computed: dict[str, Checked] = {}
    left: list[str] = []
    for number, part in enumerate(join.parts):
        column = None if part.left.column == EVENT_TIME else part.left.column
        name = column or side.qualified(f"$on{number}")
        left.append(name)
        if column is None:
            computed[name] = part.left
    stages.gather(tuple(left), computed, side.alias)
    hashed_by = {name: part.right for name, part in reversed(list(zip(left, join.parts, strict=True)))}
    made = tuple(
        Computed(part.right, part.computed.text, part.computed.scalar.type) for part in join.parts if part.computed is not None
    )
    right = stages.read(place, hashed_by, made)
    after = (*stages.schema.items(), *right.items())
    if wanted.within is None:
        stages.add(_stream_table_join(join, place, tuple(left), right.names), Schema((*after, (side.match, STRING))))
        return
    spec = StreamStreamJoin(
        name=side.alias,
        type=wanted.type,
        stream_index=place,
        left_key=tuple(left),
        right_key=_right_key(join),
        before_ms=wanted.within.before,
        after_ms=wanted.within.after,
        grace_ms=wanted.within.grace,
        right_columns=right.names,
        is_eager=wanted.within.unmatched == "eager",
    )
    stages.add(spec, Schema((*after, (side.state, STRING))) if spec.is_eager else Schema(after))


def _stream_table_join(join: PlannedJoin, place: int, left: tuple[str, ...], columns: tuple[str, ...]) -> StreamTableJoin:
    wanted = join.join
    return StreamTableJoin(
        name=join.side.alias,
        type="left" if wanted.type == "left" else "inner",
        table_index=place,
        stream_key=left,
        table_key=_right_key(join),
        history_retention_ms=join.side.entry.relation.history_retention_ms,
        grace_ms=wanted.grace,
        late=wanted.late,
        expired=wanted.expired,
        table_columns=columns,
        hold=hold_of(wanted.hold),
    )


def _right_key(join: PlannedJoin) -> tuple[str, ...]:
    return tuple(join.side.qualified(part.right) for part in join.parts)


def _add_table_join(stages: Stages, layout: Layout, join: PlannedJoin, place: int) -> None:
    side, left = join.side, join.left_key
    stages.gather(left, {})
    right = stages.read(place, {name: part.right for name, part in zip(left, join.parts, strict=True)})
    spec = TableTableJoin(
        name=side.alias,
        type=join.join.type,
        table_index=place,
        left_key=left,
        right_key=_right_key(join),
        key=join.key,
        left_retention_ms=join.left_retention_ms,
        right_retention_ms=side.entry.relation.history_retention_ms,
        history=join.join.history,
        left_columns=stages.columns,
        right_columns=right.names,
        # Behind an aggregation it is not the join's rows that the result keeps versions of; these may even be unversioned (TT5).
        is_result_versioned=layout.output.history_retention_ms is not None and layout.grouping is None,
    )
    stages.add(spec, joined_schema(spec, stages.schema, right))
    stages.rename(dict(zip(left, join.key, strict=True)))


def _add_foreign_key(stages: Stages, join: PlannedJoin, place: int) -> None:
    """Three steps: to the foreign key's task, to the right row there, and back to the left row's task."""
    side, key = join.side, join.left_key
    kind: Literal["inner", "left"] = "left" if join.join.type == "left" else "inner"
    stages.gather(key, {})
    if any(EVENT_TIME in part.left.scalar.columns for part in join.parts):
        stages.note_time(side.alias)
    subscription = ForeignKeySubscription(
        name=side.alias,
        type=kind,
        key=key,
        foreign_key=tuple(part.left.text for part in join.parts),
        history_retention_ms=join.left_retention_ms,
        left_columns=stages.columns,
    )
    left, subscriptions = stages.schema, subscription_schema(subscription, stages.schema)
    stages.add(subscription, subscriptions)
    hashed_by = dict(zip(foreign_key_columns(subscription), (part.right for part in join.parts), strict=True))
    stages.exchange(tuple(hashed_by))
    right = stages.read(place, hashed_by)
    lookup = ForeignKeyLookup(
        name=side.alias,
        type=kind,
        table_index=place,
        key=key,
        right_key=_right_key(join),
        right_retention_ms=side.entry.relation.history_retention_ms,
        left_columns=left.names,
        right_columns=right.names,
    )
    stages.add(lookup, answer_schema(lookup, subscriptions, right))
    stages.exchange(key)
    result = Schema((*left.items(), *right.items()))
    stages.add(ForeignKeyResult(side.alias, kind, key, result.names), result)


def _add_where(stages: Stages, layout: Layout) -> None:
    if layout.where is None:
        return
    running = layout.running
    if EVENT_TIME in columns_of(layout.where, layout.scope.schema()):
        stages.note_time(FILTER)
    if running.kind == "table":
        stages.add(_table_filter(layout, FILTER, layout.where, running.key, running.retention_ms, is_last=True))
    else:
        stages.add(Filter(layout.where))


def _table_filter(
    layout: Layout, name: str, condition: str, key: tuple[str, ...], retention_ms: int | None, *, is_last: bool
) -> TableFilter:
    """Plan a filter. One that makes the result judges by the result's own history, as far as there is one."""
    if not is_last or layout.grouping is not None:
        return TableFilter(name, condition, key, retention_ms, tells_every_delete=retention_ms is not None)
    kept_ms = layout.output.history_retention_ms
    known = [ms for ms in (retention_ms, kept_ms) if ms is not None]
    return TableFilter(
        name, condition, key, min(known, default=None), is_result_versioned=kept_ms is not None or retention_ms is None
    )


def _add_grouping(stages: Stages, layout: Layout) -> None:
    grouping = layout.grouping
    if grouping is None:
        if layout.output.kind == "table" or layout.running.kind == "table":
            # One task must write all changes of a row, or their order would be lost.
            stages.gather(layout.running.key, {})
        return
    sources = tuple(group.source for group in grouping.groups)
    if EVENT_TIME in grouping.reads:
        stages.note_time("group_by")
    computed = {group.source: group.value for group in grouping.groups if group.is_computed}
    if grouping.regrouping is None:
        stages.gather(sources, computed)
    else:
        stages.compute(computed, "group_by")
        stages.add(grouping.regrouping, regrouped_schema(grouping.regrouping, stages.schema))
        stages.exchange(sources)
    stages.add(grouping.operator, grouping.result())


def _add_explosion(stages: Stages, layout: Layout, exploded: Exploded) -> None:
    """Make rows of arrays' elements; each has what the ``select`` reads, and not the arrays again."""
    if EVENT_TIME in exploded.reads:
        stages.note_time("select")
    behind = Schema((*stages.schema.items(), *exploded.schema.items()))
    known = layout.scope.selectable(behind)
    read = frozenset[str]().union(*(columns_of(text, known) for _, text in layout.selected.projection.columns))
    carried = tuple(name for name in stages.columns if name in read)
    arrays = tuple((name, array.text) for name, array in exploded.arrays.items())
    stages.add(Explosion(carried, arrays), behind.select([*carried, *exploded.arrays]))


def _add_suppress(stages: Stages, layout: Layout) -> None:
    grouping = layout.grouping
    key = layout.running.key if grouping is None else tuple(grouping.rename(name)[1] for name in grouping.key)
    operator = plan_suppress(layout.scope.definition, key, None if grouping is None else grouping.operator.closing_delay_ms)
    if operator is None:
        return
    if operator.buffer is not None:
        stages.gather((), {}, "suppress")  # a bound for each task would be another bound (S4)
    stages.add(operator)

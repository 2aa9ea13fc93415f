"""Every operator that a plan may have: how it is built, and how its state moves to another number of tasks.

One entry per class of ``engine.plan.operators``; ``KINDS`` is all that the chain and the repartition know of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from engine.expressions.types.types import Schema
from engine.operators.aggregation.running_aggregate import RunningAggregator
from engine.operators.aggregation.table_aggregate import TableAggregator, TableRegrouper
from engine.operators.joins.foreign_key import ForeignKeyAnswerer, ForeignKeyResolver, ForeignKeySubscriber
from engine.operators.joins.stream_stream import StreamStreamJoiner
from engine.operators.joins.stream_table import JoinKeys, StreamTableJoiner
from engine.operators.joins.table_table import TableTableJoiner
from engine.operators.operators import Operator
from engine.operators.rescale import aggregations, joins, windows
from engine.operators.rescale.shares import Shares, Source
from engine.operators.rows.explosion import Exploder
from engine.operators.rows.row_operators import RowFilter, RowProjection, RowRetiming
from engine.operators.rows.table_filter import TableFilterer
from engine.operators.suppression.suppress import TimeLimitSuppressor, WallClockSuppressor
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.open_windows import OpenWindows
from engine.operators.windows.sessions.sessions import SessionAggregator
from engine.operators.windows.sliding.sliding import SlidingAggregator
from engine.plan.model import Input, Plan, Stage, task_key
from engine.plan.operators.aggregation import RunningAggregation, TableAggregation, TableRegrouping
from engine.plan.operators.explosion import Explosion
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.operator import Operator as Spec
from engine.plan.operators.row_operators import Filter, Projection, Retiming
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.plan.operators.table_filter import TableFilter
from engine.plan.operators.table_table_join import TableTableJoin
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation, WindowedAggregation
from engine.state.segments.ports import SegmentStore

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Where an operator is built.

    Attributes:
        running: columns of the running relation before it.
        state: what its ``snapshot`` returned, else None.
        store: where its segments are.
    """

    running: Schema
    stage: Stage
    plan: Plan
    state: State | None
    store: SegmentStore

    def input(self, index: int) -> Input:
        """Return an input of the plan."""
        return next(item for item in self.plan.inputs if item.index == index)

    def is_hashed(self, spec: Spec, columns: Sequence[str]) -> bool:
        """Say whether the rows that come to an operator still have the hash that chose the task, and that is the hash of these columns."""
        before = self.stage.operators[: self.stage.operators.index(spec)]
        return task_key(self.stage, self.plan) == tuple(columns) and all(each.keeps_hash for each in before)

    def side(self, index: int) -> Schema:
        """Return the columns of another input that the operator reads."""
        return input_schema(self.stage, self.input(index))


def input_schema(stage: Stage, source: Input) -> Schema:
    """Return the qualified columns of one input of a stage."""
    return stage.schema.select([f"{source.alias}.{name}" for name in source.schema.names])


S = TypeVar("S", bound=Spec)
W = TypeVar("W", bound=WindowedAggregation)
Build = Callable[[S, TaskContext], Operator]
Move = Callable[[S, Sequence[Source], Shares], list[State]]


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """One kind of operator.

    Attributes:
        spec: what the plan has of it.
        build: makes one that runs.
        move: shares the states that the tasks kept of one among another number of tasks; None: it keeps none.
    """

    spec: type[Spec]
    build: Build[Any]
    move: Move[Any] | None


def _kind(spec: type[S], build: Build[S], move: Move[S] | None) -> OperatorKind:
    """Return an entry whose functions fit the class: ``OperatorKind`` itself cannot say so."""
    return OperatorKind(spec, build, move)


def _windows(spec: type[W], build: Callable[..., Operator], move: Move[W]) -> OperatorKind:
    """Return the entry of windows: open ones that are kept for reading beside final ones have a state of their own."""

    def built(spec: W, site: TaskContext) -> Operator:
        is_hashed = _is_group_hashed(spec, site)
        if not (spec.is_final and site.plan.output.has_open):
            return build(spec, site.running, site.state, site.store, is_hashed=is_hashed)
        states = site.state or {}
        final = build(spec, site.running, states.get("final"), site.store, is_hashed=is_hashed)
        changes = build(spec.showing_changes(), site.running, states.get("changes"), site.store, is_hashed=is_hashed)
        return OpenWindows(final, changes)

    def moved(spec: W, sources: Sequence[Source], shares: Shares) -> list[State]:
        if not (spec.is_final and shares.has_open):
            return move(spec, sources, shares)
        final = move(spec, [source.part("final") for source in sources], shares)
        changes = move(spec.showing_changes(), [source.part("changes") for source in sources], shares)
        return shares.states({"final": final, "changes": changes})

    return _kind(spec, built, moved)


def _join_keys(spec: StreamTableJoin, site: TaskContext) -> JoinKeys:
    """Say on which sides the hash that chose the task is the hash of the join key."""
    table = site.input(spec.table_index)
    is_table_hashed = tuple(f"{table.alias}.{name}" for name in table.hash_key) == spec.table_key
    return JoinKeys(site.is_hashed(spec, spec.stream_key), is_table_hashed)


def _is_group_hashed(spec: RunningAggregation | WindowedAggregation, site: TaskContext) -> bool:
    return site.is_hashed(spec, [source for _, source in spec.group])


def _running(spec: RunningAggregation, site: TaskContext) -> Operator:
    return RunningAggregator(spec, site.running, site.state, site.store, is_hashed=_is_group_hashed(spec, site))


_LIST: Final = (
    _kind(Filter, lambda spec, at: RowFilter(spec, at.running), None),
    _kind(Explosion, lambda spec, at: Exploder(spec, at.running), None),
    _kind(Projection, lambda spec, at: RowProjection(spec, at.running, is_forced_known=at.plan.idle_after_ms is not None), None),
    _kind(Retiming, lambda spec, at: RowRetiming(spec, at.running), None),
    _kind(TableFilter, lambda spec, at: TableFilterer(spec, at.running, at.state, at.store), joins.table_filter),
    _kind(
        StreamTableJoin,
        lambda spec, at: StreamTableJoiner(spec, at.running, at.side(spec.table_index), _join_keys(spec, at), at.state, at.store),
        joins.stream_table,
    ),
    _kind(
        StreamStreamJoin,
        lambda spec, at: StreamStreamJoiner(spec, at.running, at.side(spec.stream_index), at.state, at.store),
        joins.stream_stream,
    ),
    _kind(
        TableTableJoin,
        lambda spec, at: TableTableJoiner(spec, at.running, at.side(spec.table_index), at.state, at.store),
        joins.table_table,
    ),
    _kind(
        ForeignKeySubscription, lambda spec, at: ForeignKeySubscriber(spec, at.running, at.state, at.store), joins.subscription
    ),
    _kind(
        ForeignKeyLookup,
        lambda spec, at: ForeignKeyAnswerer(spec, at.running, at.side(spec.table_index), at.state, at.store),
        joins.lookup,
    ),
    _kind(ForeignKeyResult, lambda spec, at: ForeignKeyResolver(spec, at.running, at.state, at.store), joins.result),
    _windows(WindowAggregation, WindowAggregator, windows.windows),
    _windows(SessionAggregation, SessionAggregator, windows.sessions),
    _windows(SlidingAggregation, SlidingAggregator, windows.sliding),
    _kind(RunningAggregation, _running, aggregations.groups),
    _kind(TableRegrouping, lambda spec, at: TableRegrouper(spec, at.running, at.state, at.store), aggregations.regrouping),
    _kind(TableAggregation, lambda spec, at: TableAggregator(spec, at.running, at.state, at.store), aggregations.groups),
    _kind(
        TimeLimitSuppression, lambda spec, at: TimeLimitSuppressor(spec, at.running, at.state, at.store), aggregations.suppression
    ),
    _kind(
        WallClockSuppression, lambda spec, at: WallClockSuppressor(spec, at.running, at.state, at.store), aggregations.suppression
    ),
)

KINDS: Final[Mapping[type[Spec], OperatorKind]] = {kind.spec: kind for kind in _LIST}

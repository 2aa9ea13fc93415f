"""From the operators of a stage, as the plan describes them, to those that run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.core.aggregation.running_aggregate import RunningAggregator
from engine.core.aggregation.table_aggregate import TableAggregator, TableRegrouper
from engine.core.joins.foreign_key import ForeignKeyAnswerer, ForeignKeyResolver, ForeignKeySubscriber
from engine.core.joins.stream_stream import StreamStreamJoiner
from engine.core.joins.stream_table import JoinKeys, StreamTableJoiner
from engine.core.joins.table_table import TableTableJoiner
from engine.core.operators import Operator
from engine.core.ports import SegmentStore
from engine.core.row_operators import RowFilter, RowProjection
from engine.core.suppression.suppress import TimeLimitSuppressor, WallClockSuppressor
from engine.core.table_filter import TableFilterer
from engine.core.windows.hopping import WindowAggregator
from engine.core.windows.open_windows import OpenWindows
from engine.core.windows.sessions import SessionAggregator
from engine.core.windows.sliding import SlidingAggregator
from engine.definition.types import Schema
from engine.plan import model
from engine.plan.model import Input, Plan, Stage


def running_schema(stage: Stage, plan: Plan) -> Schema:
    """Return the columns of the running relation as it enters a stage."""
    if stage.running is None:
        return plan.stages[stage.index - 1].emitted
    return _input_schema(stage, _input(plan, stage.running))


def build_chain(stage: Stage, plan: Plan, states: dict[str, Any], store: SegmentStore) -> list[Operator]:
    """Build a stage's operators in order, each with its state by name."""
    chain: list[Operator] = []
    running = running_schema(stage, plan)
    for spec in stage.operators:
        state = None if isinstance(spec, model.Filter | model.Projection) else states.get(spec.name)
        chain.append(_build(spec, running, stage, plan, state, store))
        running = chain[-1].schema
    return chain


def _build(
    spec: model.Operator, running: Schema, stage: Stage, plan: Plan, state: dict[str, Any] | None, store: SegmentStore
) -> Operator:
    match spec:
        case model.Filter():
            return RowFilter(spec, running)
        case model.Projection():
            return RowProjection(spec, running, is_forced_known=plan.idle_after_ms is not None)
        case model.TableFilter():
            return TableFilterer(spec, running, state, store)
        case model.StreamTableJoin():
            keys = _join_keys(spec, stage, plan)
            return StreamTableJoiner(spec, running, _side(spec.table_index, stage, plan), keys, state, store)
        case model.StreamStreamJoin():
            return StreamStreamJoiner(spec, running, _side(spec.stream_index, stage, plan), state, store)
        case model.TableTableJoin():
            return TableTableJoiner(spec, running, _side(spec.table_index, stage, plan), state, store)
        case model.ForeignKeySubscription():
            return ForeignKeySubscriber(spec, running, state, store)
        case model.ForeignKeyLookup():
            return ForeignKeyAnswerer(spec, running, _side(spec.table_index, stage, plan), state, store)
        case model.ForeignKeyResult():
            return ForeignKeyResolver(spec, running, state, store)
        case model.WindowAggregation() | model.SessionAggregation() | model.SlidingAggregation():
            return _build_windows(spec, running, plan, state, store)
        case model.RunningAggregation():
            return RunningAggregator(spec, running, state, store)
        case model.TableRegrouping():
            return TableRegrouper(spec, running, state, store)
        case model.TableAggregation():
            return TableAggregator(spec, running, state, store)
        case model.TimeLimitSuppression():
            return TimeLimitSuppressor(spec, running, state, store)
        case model.WallClockSuppression():
            return WallClockSuppressor(spec, running, state, store)


def _build_windows(
    spec: model.WindowedAggregation, running: Schema, plan: Plan, state: dict[str, Any] | None, store: SegmentStore
) -> Operator:
    if spec.emit != "final" or not plan.output.has_open:
        return _windows(spec, running, state, store)
    states = state or {}
    final = _windows(spec, running, states.get("final"), store)
    changes = _windows(replace(spec, emit="changes", is_folded=True), running, states.get("changes"), store)
    return OpenWindows(final, changes)


def _windows(spec: model.WindowedAggregation, running: Schema, state: dict[str, Any] | None, store: SegmentStore) -> Operator:
    match spec:
        case model.WindowAggregation():
            return WindowAggregator(spec, running, state, store)
        case model.SessionAggregation():
            return SessionAggregator(spec, running, state, store)
        case model.SlidingAggregation():
            return SlidingAggregator(spec, running, state, store)


def _input(plan: Plan, index: int) -> Input:
    return next(item for item in plan.inputs if item.index == index)


def _side(index: int, stage: Stage, plan: Plan) -> Schema:
    return _input_schema(stage, _input(plan, index))


def _input_schema(stage: Stage, source: Input) -> Schema:
    """Return the qualified columns of one input."""
    return stage.schema.select([f"{source.alias}.{name}" for name in source.columns])


def _join_keys(spec: model.StreamTableJoin, stage: Stage, plan: Plan) -> JoinKeys:
    """Say on which sides the hash that chose the task is the hash of the join key."""
    table = _input(plan, spec.table_index)
    if stage.running is None:
        hashed = plan.stages[stage.index - 1].exchange_key
    else:
        stream = _input(plan, stage.running)
        hashed = tuple(f"{stream.alias}.{name}" for name in stream.hash_key)
    before = stage.operators[: stage.operators.index(spec)]
    is_hash_kept = all(isinstance(each, model.Filter | model.StreamTableJoin) for each in before)
    is_table_hashed = tuple(f"{table.alias}.{name}" for name in table.hash_key) == spec.table_key
    return JoinKeys(hashed == spec.stream_key and is_hash_kept, is_table_hashed)

"""One task of one stage: orders a batch, runs the stage's operators over it, says what came out.

The chain is that of T9. The task owns the positions of the total order (T2, T3): they continue across batches, so nothing an
operator decides depends on where a batch ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import polars as pl

from engine.core.frames import (
    KEY_HASH,
    OFFSET,
    OP,
    SERVICE_COLUMNS,
    TS,
    Counters,
    Emission,
    OperatorOutput,
    empty_frame,
    empty_late,
    merge_counters,
)
from engine.core.hashing import key_hash
from engine.core.joins import JoinKeys, TableJoin
from engine.core.order import Slice, order_batch
from engine.core.ports import SegmentStore
from engine.core.windows import WindowAggregator
from engine.definition.expressions import compile_scalar
from engine.definition.types import Schema
from engine.errors import StateCorrupt
from engine.plan.model import Filter, Input, Operator, Plan, Projection, Stage, StreamTableJoin, WindowAggregation

STATE_FORMAT: Final = 1
"""Raised when a manifest's meaning changes; a task refuses any other."""


class _Step(Protocol):
    """An operator in the chain."""

    name: str | None
    schema: Schema

    def process(self, frame: pl.DataFrame, inputs: dict[int, pl.DataFrame]) -> OperatorOutput: ...

    def snapshot(self) -> dict[str, Any]: ...

    def clocks(self) -> dict[str, int | None]: ...

    def buffered_rows(self) -> int: ...


class _Stateless:
    """Nothing to remember."""

    name: str | None = None

    def snapshot(self) -> dict[str, Any]:
        return {}

    def clocks(self) -> dict[str, int | None]:
        return {}

    def buffered_rows(self) -> int:
        return 0


class _FilterStep(_Stateless):
    def __init__(self, spec: Filter, schema: Schema) -> None:
        self.schema = schema
        self._condition = compile_scalar(spec.condition, schema).expr

    def process(self, frame: pl.DataFrame, _: dict[int, pl.DataFrame]) -> OperatorOutput:
        return OperatorOutput(frame.filter(self._condition) if frame.height else frame)


class _ProjectionStep(_Stateless):
    def __init__(self, spec: Projection, schema: Schema) -> None:
        compiled = [(name, compile_scalar(text, schema)) for name, text in spec.columns]
        self.schema = Schema(tuple((name, item.type) for name, item in compiled))
        self._columns = [item.expr.cast(item.type.polars).alias(name) for name, item in compiled]

    def process(self, frame: pl.DataFrame, _: dict[int, pl.DataFrame]) -> OperatorOutput:
        if frame.is_empty():
            return OperatorOutput(empty_frame(self.schema))
        return OperatorOutput(frame.select(*SERVICE_COLUMNS, *self._columns))


class _JoinStep:
    def __init__(self, join: TableJoin, name: str, table_index: int) -> None:
        self.name: str | None = name
        self.schema = join.schema
        self._join = join
        self._table_index = table_index

    def process(self, frame: pl.DataFrame, inputs: dict[int, pl.DataFrame]) -> OperatorOutput:
        puts = inputs.get(self._table_index)
        if frame.is_empty() and puts is None:
            return OperatorOutput(empty_frame(self.schema))
        return self._join.process(frame, puts)

    def snapshot(self) -> dict[str, Any]:
        return self._join.snapshot()

    def clocks(self) -> dict[str, int | None]:
        return self._join.clocks

    def buffered_rows(self) -> int:
        return self._join.buffered_rows


class _WindowStep:
    def __init__(self, aggregator: WindowAggregator, name: str) -> None:
        self.name: str | None = name
        self.schema = aggregator.schema
        self._aggregator = aggregator

    def process(self, frame: pl.DataFrame, _: dict[int, pl.DataFrame]) -> OperatorOutput:
        return self._aggregator.process(frame)

    def snapshot(self) -> dict[str, Any]:
        return self._aggregator.snapshot()

    def clocks(self) -> dict[str, int | None]:
        return {self.name or "": self._aggregator.stream_time}

    def buffered_rows(self) -> int:
        return self._aggregator.buffered_rows


class Task:
    """Runs a stage for its share of the keys. Made by ``build_task``."""

    def __init__(
        self,
        inputs: Sequence[Input],
        stream_index: int,
        stream_schema: Schema,
        steps: Sequence[_Step],
        output: Schema,
        exchange_key: Sequence[str] | None,
        state: dict[str, Any] | None,
    ) -> None:
        state = state or {}
        self._inputs = inputs
        self._stream_index = stream_index
        self._empty = empty_frame(stream_schema)
        self._steps = steps
        self._output = output
        self._exchange_key = exchange_key
        self._next_pos: int = state.get("next_pos", 0)
        self._emitted: int = state.get("emitted", 0)
        self._now_ms: int = state.get("now_ms", 0)

    def process(self, slices: list[Slice], now_ms: int) -> Emission:
        """Handle one batch.

        Args:
            slices: the task's records (T2 orders them).
            now_ms: the batch's wall clock; one that went back is taken as the last one (T5).
        """
        self._now_ms = max(self._now_ms, now_ms)
        inputs = order_batch(slices, self._inputs, self._next_pos)
        self._next_pos += sum(frame.height for frame in inputs.values())
        stream = inputs.get(self._stream_index)
        frame = self._empty if stream is None else stream[self._empty.columns]
        counters: Counters = {}
        late: list[pl.DataFrame] = []
        for step in self._steps:
            result = step.process(frame, inputs)
            frame = result.frame
            merge_counters(counters, result.counters)
            if result.late.height:
                late.append(result.late)
        changes = self._changes(frame)
        self._emitted += changes.height
        clocks = {name: clock for step in self._steps for name, clock in step.clocks().items()}
        buffered = {step.name: step.buffered_rows() for step in self._steps if step.name is not None}
        return Emission(changes, pl.concat(late) if late else empty_late(), counters, clocks, buffered)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-able values; every segment it names is durable."""
        operators = {step.name: step.snapshot() for step in self._steps if step.name is not None}
        return {
            "format": STATE_FORMAT,
            "next_pos": self._next_pos,
            "emitted": self._emitted,
            "now_ms": self._now_ms,
            "operators": operators,
        }

    def _changes(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give the chain's rows the columns of the next reader: the sink, or the next stage as canonical records."""
        if self._exchange_key is None:
            return frame[[TS, OP, *self._output.names]]
        hashes = key_hash(frame, self._exchange_key)
        numbers = pl.Series(OFFSET, np.arange(self._emitted, self._emitted + frame.height))
        return frame.with_columns(hashes, numbers)[[KEY_HASH, TS, OFFSET, OP, *self._output.names]]


def build_task(stage: Stage, plan: Plan, state: dict[str, Any] | None, store: SegmentStore) -> Task:
    """Build a task from a stage of a plan and what ``Task.snapshot`` returned, or None.

    The plan may differ from the one the state was made with in grace, late policy and retention.

    Raises:
        StateCorrupt: the state has another format.
    """
    if state is not None and state.get("format") != STATE_FORMAT:
        raise StateCorrupt(f"the state has format {state.get('format')!r}, this version reads {STATE_FORMAT}")
    inputs = plan.inputs if stage.index == 0 else ()
    schema = _stream_schema(stage, inputs)
    operators: dict[str, Any] = (state or {}).get("operators", {})
    steps: list[_Step] = []
    running = schema
    for spec in stage.operators:
        step = _step(spec, running, stage, inputs, operators, store)
        steps.append(step)
        running = step.schema
    is_last = stage.index == len(plan.stages) - 1
    output = plan.output.columns if is_last else plan.stages[stage.index + 1].schema
    return Task(inputs, stage.stream_index, schema, steps, output, None if is_last else stage.exchange_key, state)


def _step(
    spec: Operator, running: Schema, stage: Stage, inputs: Sequence[Input], states: dict[str, Any], store: SegmentStore
) -> _Step:
    if isinstance(spec, Filter):
        return _FilterStep(spec, running)
    if isinstance(spec, Projection):
        return _ProjectionStep(spec, running)
    if isinstance(spec, WindowAggregation):
        return _WindowStep(WindowAggregator(spec, running, states.get(spec.name), store), spec.name)
    keys = _join_keys(spec, inputs, stage.stream_index)
    table = _input_schema(stage.schema, inputs, spec.table_index)
    return _JoinStep(TableJoin(spec, running, table, keys, states.get(spec.name), store), spec.name, spec.table_index)


def _stream_schema(stage: Stage, inputs: Sequence[Input]) -> Schema:
    return _input_schema(stage.schema, inputs, stage.stream_index) if inputs else stage.schema


def _input_schema(schema: Schema, inputs: Sequence[Input], index: int) -> Schema:
    """Return the qualified columns of one input."""
    source = next(item for item in inputs if item.index == index)
    return schema.select([f"{source.alias}.{name}" for name in source.columns])


def _join_keys(spec: StreamTableJoin, inputs: Sequence[Input], stream_index: int) -> JoinKeys:
    """Say on which sides the hash that chose the task is the hash of the join key."""
    hashed = {item.index: tuple(f"{item.alias}.{name}" for name in item.hash_key) for item in inputs}
    return JoinKeys(hashed.get(stream_index) == spec.stream_key, hashed.get(spec.table_index) == spec.table_key)

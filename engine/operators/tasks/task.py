"""One task of one stage: runs the stage's operators over its records of a batch, says what came out.

The chain is that of T9. Positions and times come with the batch and are the same in all tasks (``engine.operators.tasks.order``), so nothing
an operator decides depends on where a batch ended or how many tasks there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl

from engine.errors import EngineError, StateNewer
from engine.frames.clocks import BEFORE_ALL_TIME, Clock
from engine.frames.frames import (
    HEAD,
    KEY_HASH,
    NO_RECORD,
    OFFSET,
    OP,
    OPEN_ROW,
    ORIGIN,
    POS,
    RANK,
    TS,
    Counters,
    blanked,
    constant,
    empty_frame,
    empty_late,
    merge_counters,
    only,
    with_series,
)
from engine.frames.hashing import UNSEEDED, KeyHash, key_hash
from engine.operators.operators import BatchTime, Emission, Operator, OperatorOutput
from engine.operators.pending.spans import bounded
from engine.operators.rows.conflicts import Conflicts
from engine.operators.tasks.chain import build_chain, running_schema
from engine.operators.tasks.lateness import LatenessMeter
from engine.operators.tasks.order import BatchOrder
from engine.operators.tasks.query_times import STREAMS
from engine.operators.tasks.replay import OPERATOR, replayed_rows
from engine.operators.tasks.slices import UPSTREAM, Slice, placed
from engine.plan.lateness import gauges_of
from engine.plan.model import Plan, Stage, input_key, task_key
from engine.plan.times import name_of
from engine.state.segments.ports import SegmentStore

STATE_FORMAT: Final = 4
"""Raised when a manifest's meaning changes."""


@dataclass(slots=True)
class _Made:
    """What a batch made so far."""

    changes: list[pl.DataFrame] = field(default_factory=list)
    causes: list[pl.DataFrame] = field(default_factory=list)
    opened: list[pl.DataFrame] = field(default_factory=list)
    late: list[pl.DataFrame] = field(default_factory=list)
    counters: Counters = field(default_factory=dict)
    failure: EngineError | None = None

    def take(self, output: OperatorOutput) -> None:
        """Take over what an operator made, but for its rows."""
        self.failure = self.failure or output.failure
        merge_counters(self.counters, output.counters)
        if output.late.height:
            self.late.append(output.late)


@dataclass(frozen=True, slots=True)
class Replays:
    """Late records that go through a stage again (``engine.operators.tasks.replay``).

    Attributes:
        records: by operator: ``_ts``, ``operator``, ``record``.
        slices: what the stage before made of such ones.
    """

    records: Sequence[pl.DataFrame] = ()
    slices: Sequence[Slice] = ()


class Task:
    """Runs a stage for its share of the keys. Made by ``build_task``."""

    def __init__(
        self,
        stage: Stage,
        plan: Plan,
        chain: Sequence[Operator],
        conflicts: Conflicts,
        state: dict[str, Any] | None,
        hashing: KeyHash,
    ) -> None:
        state = state or {}
        self._hashing = hashing
        self._keys = {item.index: input_key(item.index, plan) for item in plan.inputs if item.stage == stage.index}
        if stage.index:
            self._keys[UPSTREAM] = plan.stages[stage.index - 1].exchange_key
        self._stage, self._plan = stage, plan
        self._inputs = tuple(item for item in plan.inputs if item.stage == stage.index)
        self._running = UPSTREAM if stage.running is None else stage.running
        self._empty = empty_frame(running_schema(stage, plan))
        self._chain = chain
        self._conflicts = conflicts
        self._named = [(operator.name, operator) for operator in chain if operator.name is not None]
        self._is_last = stage.index == len(plan.stages) - 1
        self._output = (plan.output.columns if self._is_last else stage.emitted).names
        # Of a stream's records without a value the log gives the key alone to who reads it.
        self._values = () if plan.output.kind == "table" else tuple(name for name in self._output if name not in plan.output.key)
        self._keeps_offset = all(operator.keeps_offset for operator in stage.operators)
        self._emitted: int = state.get("emitted", 0)
        gauges = [gauge for gauge in gauges_of(plan) if gauge.stage == stage.index]
        self._lateness = LatenessMeter(gauges)

    def process(
        self,
        slices: Sequence[Slice],
        order: BatchOrder,
        now_ms: int,
        *,
        is_release: bool = False,
        replays: Replays | None = None,
    ) -> Emission:
        """Handle one batch.

        Args:
            slices: the task's records; none in a batch that only brings time.
            order: of the batch.
            now_ms: the batch's wall clock; never falls.
            is_release: release behind the records what an edit has made due (J11).
            replays: late records that go through again behind all that.
        """
        made = _Made()
        moment, clocks = self._moment(order, now_ms, is_release=is_release), order.between[self._stage.index]
        self._run(slices, order, moment, clocks, made)
        replayed = self._replayed(replays, order, moment, clocks, made)
        return Emission(
            pl.concat(made.changes),
            pl.concat(made.late) if made.late else empty_late(),
            made.counters,
            buffered={name: operator.buffered_rows for name, operator in self._named},
            buffered_bytes={name: size for name, operator in self._named if (size := operator.buffered_bytes) is not None},
            oldest_ms={name: ms for name, operator in self._named if (ms := operator.oldest_ms) is not None},
            failure=made.failure,
            wakes_at_ms=min((ms for operator in self._chain if (ms := operator.wakes_at_ms) is not None), default=None),
            dues=self._dues(clocks),
            lateness=self._lateness.take(),
            replayed=replayed,
            opened=pl.concat(made.opened) if made.opened else pl.DataFrame(),
            waiting={name: bounded(spans) for operator in self._chain for name, spans in operator.waiting.items()},
            causes=pl.concat(made.causes) if made.causes else pl.DataFrame(),
        )

    def is_due(self, order: BatchOrder, now_ms: int) -> bool:
        """Whether a batch that brings no records for the task makes it emit something."""
        moment = self._moment(order, now_ms)
        clocks = order.between[self._stage.index]
        return any(operator.is_due(replace(moment, clock=clock)) for operator, clock in zip(self._chain, clocks, strict=False))

    def _moment(self, order: BatchOrder, now_ms: int, *, is_release: bool = False) -> BatchTime:
        """Return when the first operator handles a batch."""
        tables = {item.index: order.clock_of(item.index) for item in self._inputs}
        return BatchTime(now_ms, order.end, order.between[self._stage.index][0], tables, order.progress, is_release)

    def _run(self, slices: Sequence[Slice], order: BatchOrder, moment: BatchTime, clocks: Sequence[Clock], made: _Made) -> None:
        """Let records, and then time, go through the chain."""
        records = placed(slices, self._plan.inputs, order)
        self._lateness.enter(records, moment)
        frames = self._conflicts.winning(self._hashed(records), made.counters)
        running = frames.get(self._running)
        frame = self._empty if running is None else _entering(running, self._empty.columns)
        for operator, clock in zip(self._chain, clocks, strict=False):
            name = name_of(self._stage, operator.name)
            own = replace(moment, clock=clock, closed_ms=order.closed_ms.get(name, BEFORE_ALL_TIME))
            self._lateness.reach(operator, frame, frames, own)
            output = operator.process(frame, frames, own)
            made.take(output)
            frame = output.frame
        self._emit(frame, order, made)

    def _hashed(self, frames: Mapping[int, pl.DataFrame]) -> Mapping[int, pl.DataFrame]:
        """Give records the hash by which the task's state is kept; the one that they come with, without a seed, has chosen the task."""
        if self._hashing == UNSEEDED:
            return frames
        return {index: with_series(frame, self._hashing.of(frame, self._keys[index])) for index, frame in frames.items()}

    def _replayed(
        self, replays: Replays | None, order: BatchOrder, moment: BatchTime, clocks: Sequence[Clock], made: _Made
    ) -> pl.DataFrame:
        """Let late records through again, and what the stage before made of some; returns what comes of them."""
        if replays is None:
            return pl.DataFrame()
        again = _Made(opened=made.opened, late=made.late, counters=made.counters)
        if replays.slices:
            self._run(replays.slices, order, moment, clocks, again)
        names = [operator.name for operator in self._chain]
        for records in replays.records:
            for (name,), own in records.partition_by(OPERATOR, as_dict=True, maintain_order=True).items():
                place = names.index(str(name))
                schema = running_schema(self._stage, self._plan) if place == 0 else self._chain[place - 1].schema
                rows = replayed_rows(own, schema, task_key(self._stage, self._plan), order.end, self._hashing)
                output = self._chain[place].replay(rows, moment)
                again.take(output)
                frame = output.frame
                for operator, clock in zip(self._chain[place + 1 :], clocks[place + 1 :], strict=False):
                    output = operator.process(frame, {}, replace(moment, clock=clock, is_release=False))
                    again.take(output)
                    frame = output.frame
                self._emit(frame, order, again)
        made.failure = made.failure or again.failure
        return pl.concat(again.changes)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-able values; every segment it names is durable."""
        return {
            "format": STATE_FORMAT,
            "emitted": self._emitted,
            "operators": {name: operator.snapshot() for name, operator in self._named},
            "conflicts": self._conflicts.snapshot(),
        }

    def _dues(self, clocks: Sequence[Clock]) -> dict[str, int]:
        """Return the least time at which an operator emits something that waits: of the streams, or behind what waits by the wall clock."""
        least: dict[str, int] = {}
        for operator, clock in zip(self._chain, clocks, strict=False):
            if (due := operator.due_ms) is not None:
                source, time = clock.timed_by or STREAMS, clock.source_time(due)
                least[source] = min(time, least.get(source, time))
        return least

    def _emit(self, frame: pl.DataFrame, order: BatchOrder, made: _Made) -> None:
        """Take what came out of the chain; what only open windows have stands apart from results."""
        if self._is_last and self._plan.output.has_open:
            is_open = pl.col(OP) >= OPEN_ROW
            made.opened.append(frame.filter(is_open)[[TS, OP, *self._output]])
            frame = frame.filter(~is_open)
        if self._is_last:
            heads = pl.Series(HEAD, order.heads(frame.get_column(POS).to_numpy()))
            made.causes.append(only(with_series(frame, heads), HEAD, POS, RANK))
        changes = self._changes(frame)
        self._emitted += changes.height
        made.changes.append(changes)

    def _changes(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give the chain's rows the columns of the next reader: the sink, or the next stage as canonical records."""
        if self._is_last:
            return blanked(only(frame, TS, OP, *self._output), self._values)
        added = [
            key_hash(frame, self._stage.exchange_key),
            pl.Series(OFFSET, np.arange(self._emitted, self._emitted + frame.height)),
            frame.get_column(OFFSET).alias(ORIGIN) if self._keeps_offset else constant(NO_RECORD, frame.height, ORIGIN),
        ]
        service = [KEY_HASH, TS, OFFSET, OP, ORIGIN, POS, RANK]
        return only(with_series(frame, *added), *service, *self._output)


def _entering(running: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Give the running relation's rows to the chain. An emission's own number says nothing to a reader: its origin's offset does."""
    if ORIGIN in running.columns:
        running = with_series(running, running.get_column(ORIGIN).alias(OFFSET))
    return only(running, *columns)


def build_task(stage: Stage, plan: Plan, state: dict[str, Any] | None, store: SegmentStore) -> Task:
    """Build a task from a stage of a plan and what ``Task.snapshot`` returned, or None.

    The plan may differ from the one the state was made with in what ``state_fingerprint`` leaves out.

    Raises:
        StateNewer: the state has another format.
    """
    check_format(state)
    states = state or {}
    chain = build_chain(stage, plan, states.get("operators", {}), store)
    return Task(stage, plan, chain, Conflicts.of(stage, plan, states.get("conflicts", {}), store), state, store.hashing)


def check_format(state: Mapping[str, Any] | None) -> None:
    """Refuse a state that this version cannot read.

    Raises:
        StateNewer: it has another format.
    """
    if state is not None and state.get("format") != STATE_FORMAT:
        raise StateNewer.of("the state", state.get("format"), STATE_FORMAT)

"""One task of one stage: orders a batch, runs the stage's operators over it, says what came out.

The chain is that of T9. The task owns the positions of the total order (T2, T3): they continue across batches, so nothing an
operator decides depends on where a batch ended. It also knows when it is idle (T10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl

from engine.core.chain import build_chain, running_schema
from engine.core.frames import (
    KEY_HASH,
    OFFSET,
    OP,
    POS,
    TS,
    Counters,
    Emission,
    OperatorOutput,
    empty_frame,
    empty_late,
    merge_counters,
)
from engine.core.hashing import key_hash
from engine.core.lateness import LatenessMeter
from engine.core.operators import Moment, Operator
from engine.core.order import CAUSE_OFFSET, CAUSE_PARTITION, UPSTREAM, Ordered, Slice, order_batch
from engine.core.ports import SegmentStore
from engine.core.progress import FeedProgress, Reading
from engine.errors import EngineError, StateCorrupt
from engine.plan.lateness import gauges_of
from engine.plan.model import Plan, Stage

STATE_FORMAT: Final = 2
"""Raised when a manifest's meaning changes; a task refuses any other."""


MAX_ADVANCES: Final = 256
"""Steps of an advance that are taken one by one. Ticks come when something is due, so more are due only after a pause of the clock."""


@dataclass(slots=True)
class _Made:
    """What a batch made so far."""

    changes: list[pl.DataFrame] = field(default_factory=list)
    late: list[pl.DataFrame] = field(default_factory=list)
    counters: Counters = field(default_factory=dict)
    failure: EngineError | None = None


class Task:
    """Runs a stage for its share of the keys. Made by ``build_task``."""

    def __init__(self, stage: Stage, plan: Plan, chain: Sequence[Operator], state: dict[str, Any] | None) -> None:
        state = state or {}
        self._stage = stage
        self._inputs = tuple(item for item in plan.inputs if item.stage == stage.index)
        self._running = UPSTREAM if stage.running is None else stage.running
        self._empty = empty_frame(running_schema(stage, plan))
        self._chain = chain
        self._is_last = stage.index == len(plan.stages) - 1
        self._output = (plan.output.columns if self._is_last else stage.emitted).names
        self._keeps_cause = not self._is_last and len({item.feed.name for item in plan.inputs}) == 1
        self._idle_after_ms = plan.idle_after_ms
        self._next_pos: int = state.get("next_pos", 0)
        self._emitted: int = state.get("emitted", 0)
        self._now_ms: int = state.get("now_ms", 0)
        self._silent_since_ms: int | None = state.get("silent_since_ms")
        self._advanced_ms: int = state.get("advanced_ms", 0)
        self._progress = FeedProgress(state.get("progress"))
        gauges = [gauge for gauge in gauges_of(plan) if gauge.stage == stage.index]
        self._lateness = LatenessMeter(gauges, dict(state.get("lateness", {})))

    def process(
        self, slices: Sequence[Slice], now_ms: int, readings: Sequence[Reading] = (), awake_ms: int | None = None
    ) -> Emission:
        """Handle one batch.

        Args:
            slices: the task's records (T2 orders them); none in a batch that only brings the clock.
            now_ms: the batch's wall clock; one that went back is taken as the last one (T5).
            readings: how far the batch read the feeds' partitions, where some operator holds for it (J9).
            awake_ms: since when, by the wall clock, nothing that came was left unread: before that no silence counts; None: always.
        """
        self._now_ms = max(self._now_ms, now_ms)
        has_input = any(item.frame.height for item in slices)
        advance_ms = self._silence(awake_ms)
        made = _Made()
        # What silence did, it did before these records came: they are judged by the advanced time.
        self._advance(advance_ms, made)
        self._progress.add(readings)
        self._run(slices, 0, made)
        if has_input:
            self._silent_since_ms, self._advanced_ms = self._now_ms, 0
        return Emission(
            pl.concat(made.changes),
            pl.concat(made.late) if made.late else empty_late(),
            made.counters,
            clocks={name: clock for operator in self._chain for name, clock in operator.clocks.items()},
            buffered={operator.name: operator.buffered_rows for operator in self._chain if operator.name is not None},
            failure=made.failure,
            wakes_at_ms=self._wakes_at_ms(),
            lateness=self._lateness.take(),
        )

    def _advance(self, advance_ms: int, made: _Made) -> None:
        """Let stream times rise, from one moment at which something is let go to the next.

        What one operator lets go the next one takes at its own moment, so the number of ticks makes no difference.
        """
        for _ in range(MAX_ADVANCES):
            if advance_ms <= 0:
                return
            due_ms = min((ms for operator in self._chain if (ms := operator.due_in_ms) is not None), default=advance_ms)
            step_ms = min(advance_ms, max(1, due_ms))
            self._run([], step_ms, made)
            advance_ms -= step_ms
        if advance_ms > 0:
            self._run([], advance_ms, made)

    def _run(self, slices: Sequence[Slice], advance_ms: int, made: _Made) -> None:
        """Let records, and then the clock, go through the chain."""
        batch = order_batch(slices, self._inputs, self._next_pos)
        position = self._next_pos + sum(frame.height for frame in batch.frames.values())
        # What the clock causes has a place of its own behind the batch's last record.
        self._next_pos = position + 1
        moment = Moment(self._now_ms, position, advance_ms, self._progress.of(self._inputs))
        running = batch.frames.get(self._running)
        frame = self._empty if running is None else running[self._empty.columns]
        self._lateness.enter(batch.frames, self._chain)
        for operator in self._chain:
            self._lateness.reach(operator, frame, batch.frames)
            results = _turns(operator, frame, batch.frames, moment)
            frame = results[0].frame if len(results) == 1 else pl.concat([result.frame for result in results])
            for result in results:
                made.failure = made.failure or result.failure
                merge_counters(made.counters, result.counters)
                if result.late.height:
                    made.late.append(result.late)
        changes = self._changes(frame, batch)
        self._emitted += changes.height
        made.changes.append(changes)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-able values; every segment it names is durable."""
        return {
            "format": STATE_FORMAT,
            "next_pos": self._next_pos,
            "emitted": self._emitted,
            "now_ms": self._now_ms,
            "silent_since_ms": self._silent_since_ms,
            "advanced_ms": self._advanced_ms,
            "progress": self._progress.snapshot(),
            "lateness": self._lateness.snapshot(),
            "operators": {operator.name: operator.snapshot() for operator in self._chain if operator.name is not None},
        }

    def _silence(self, awake_ms: int | None) -> int:
        """Return by how much stream times rise because no record came until now (T10)."""
        if self._idle_after_ms is None or self._silent_since_ms is None:
            return 0
        if awake_ms is not None and awake_ms > self._silent_since_ms:
            self._silent_since_ms, self._advanced_ms = awake_ms, 0
        silent_ms = self._now_ms - self._silent_since_ms - self._idle_after_ms
        step_ms = max(0, silent_ms - self._advanced_ms)
        self._advanced_ms += step_ms
        return step_ms

    def _wakes_at_ms(self) -> int | None:
        moments = [operator.wakes_at_ms for operator in self._chain]
        if self._idle_after_ms is not None and self._silent_since_ms is not None:
            begun_ms = self._silent_since_ms + self._idle_after_ms + self._advanced_ms
            due = (operator.due_in_ms for operator in self._chain)
            # Stream time rises by whole milliseconds: what is due now has to wait for the next one.
            moments += [begun_ms + max(1, ms) for ms in due if ms is not None]
        return min((ms for ms in moments if ms is not None), default=None)

    def _changes(self, frame: pl.DataFrame, batch: Ordered) -> pl.DataFrame:
        """Give the chain's rows the columns of the next reader: the sink, or the next stage as canonical records."""
        if self._is_last:
            return frame[[TS, OP, *self._output]]
        added = [
            key_hash(frame, self._stage.exchange_key),
            pl.Series(OFFSET, np.arange(self._emitted, self._emitted + frame.height)),
        ]
        if self._keeps_cause:
            partitions, offsets = batch.causes.of(frame.get_column(POS).to_numpy())
            added += [pl.Series(CAUSE_PARTITION, partitions), pl.Series(CAUSE_OFFSET, offsets)]
        cause = [CAUSE_PARTITION, CAUSE_OFFSET] if self._keeps_cause else []
        return frame.with_columns(added)[[KEY_HASH, TS, OFFSET, OP, *cause, *self._output]]


def _turns(operator: Operator, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: Moment) -> list[OperatorOutput]:
    """Let an operator handle a batch.

    In an idle task its stream time rises from where it was before the batch. Rows that the operator before let go in the same advance
    have moved it already; only what is missing then is added.
    """
    if not moment.advance_ms or frame.is_empty() or operator.name is None:
        return [operator.process(frame, inputs, moment)]
    before = operator.clocks.get(operator.name)
    first = operator.process(frame, inputs, replace(moment, advance_ms=0))
    after = operator.clocks.get(operator.name)
    missing_ms = 0 if before is None or after is None else before + moment.advance_ms - after
    if missing_ms <= 0:
        return [first]
    return [first, operator.process(frame.clear(), {}, replace(moment, advance_ms=missing_ms))]


def build_task(stage: Stage, plan: Plan, state: dict[str, Any] | None, store: SegmentStore) -> Task:
    """Build a task from a stage of a plan and what ``Task.snapshot`` returned, or None.

    The plan may differ from the one the state was made with in what ``state_fingerprint`` leaves out.

    Raises:
        StateCorrupt: the state has another format.
    """
    if state is not None and state.get("format") != STATE_FORMAT:
        raise StateCorrupt(f"the state has format {state.get('format')!r}, this version reads {STATE_FORMAT}")
    return Task(stage, plan, build_chain(stage, plan, (state or {}).get("operators", {}), store), state)

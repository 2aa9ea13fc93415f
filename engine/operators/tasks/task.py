"""One task of one stage: orders a batch, runs the stage's operators over it, says what came out.

The chain is that of T9. The task owns the positions of the total order (T2, T3): they continue across batches, so nothing an
operator decides depends on where a batch ended. It also knows when it is idle (T10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import Any, Final

import numpy as np
import polars as pl

from engine.errors import EngineError, StateNewer
from engine.frames.frames import (
    KEY_HASH,
    NO_RECORD,
    OFFSET,
    OP,
    OPEN_ROW,
    ORIGIN,
    POS,
    TS,
    Counters,
    blanked,
    constant,
    empty_frame,
    empty_late,
    frame_of,
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
from engine.operators.tasks.order import UPSTREAM, Ordered, Slice, order_batch
from engine.operators.tasks.progress import FeedProgress, PartitionProgress
from engine.operators.tasks.replay import OPERATOR, replayed_rows
from engine.operators.tasks.silence import IS_FORCED, REACHED_AT, Advance, Arrivals, Silence
from engine.operators.tasks.turns import NOTHING, entering, forced_rows, turns
from engine.plan.lateness import gauges_of
from engine.plan.model import Plan, Stage, input_key, task_key
from engine.state.segments.ports import SegmentStore

STATE_FORMAT: Final = 3
"""Raised when a manifest's meaning changes."""

MAX_ADVANCES: Final = 256
"""Steps of an advance that are taken one by one. Ticks come when something is due, so more are due only after a pause of the clock."""


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


@dataclass(frozen=True, slots=True)
class _Step:
    """A part of a batch.

    Attributes:
        now_ms: its wall clock.
        advance_ms: by how much stream times rise behind its records.
        is_release: see ``BatchTime``.
        reached_ms: the wall clock that silence reaches with it; None outside of one.
        is_before: it comes before the batch's records.
    """

    now_ms: int
    advance_ms: int = 0
    reached_ms: int | None = None
    is_release: bool = False
    is_before: bool = False


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
        self._has_idle = plan.idle_after_ms is not None
        self._next_pos: int = state.get("next_pos", 0)
        self._emitted: int = state.get("emitted", 0)
        self._now_ms: int = state.get("now_ms", 0)
        self._silence = Silence(plan.idle_after_ms, state)
        self._progress = FeedProgress(state.get("progress"))
        gauges = [gauge for gauge in gauges_of(plan) if gauge.stage == stage.index]
        self._lateness = LatenessMeter(gauges, dict(state.get("lateness", {})))

    def process(
        self,
        slices: Sequence[Slice],
        now_ms: int,
        readings: Sequence[PartitionProgress] = (),
        awake_ms: int | None = None,
        *,
        is_upstream_active: bool = False,
        is_release: bool = False,
        replays: Replays | None = None,
    ) -> Emission:
        """Handle one batch.

        Args:
            slices: the task's records (T2 orders them); none in a batch that only brings the clock.
            now_ms: the batch's wall clock; one that went back is taken as the last one (T5).
            readings: how far the batch read the feeds' partitions, where some operator holds for it (J9).
            awake_ms: since when, by the wall clock, nothing that came was left unread: before that no silence counts; None: always.
            is_release: release behind the records what an edit has made due (J11).
            is_upstream_active: records came to a task of the stage before, or to an input of a later one: this one is not silent either.
            replays: late records that go through again behind all that.
        """
        self._now_ms, last_ms = max(self._now_ms, now_ms), self._now_ms
        is_active = is_upstream_active or any(item.frame.height for item in slices if item.input_index != UPSTREAM)
        arrivals = Arrivals(slices)
        made = _Made()
        # What silence did, it did before these records came: they are judged by the advanced time.
        if (advance := self._silence.last_until(self._now_ms, awake_ms)) is not None:
            self._advance(advance, last_ms, arrivals, made)
        if early := arrivals.take():
            self._run(early, _Step(self._now_ms, is_before=True), made)
        self._progress.add(readings)
        self._run(arrivals.others, _Step(self._now_ms), made)
        if is_release:
            self._run([], _Step(self._now_ms, is_release=True), made)
        replayed = self._replayed(replays, made)
        if is_active:
            self._silence.end(self._now_ms)
        return Emission(
            pl.concat(made.changes),
            pl.concat(made.late) if made.late else empty_late(),
            made.counters,
            clocks={name: clock for operator in self._chain for name, clock in operator.clocks.items()},
            buffered={name: operator.buffered_rows for name, operator in self._named},
            buffered_bytes={name: size for name, operator in self._named if (size := operator.buffered_bytes) is not None},
            oldest_ms={name: ms for name, operator in self._named if (ms := operator.oldest_ms) is not None},
            failure=made.failure,
            wakes_at_ms=self._wakes_at_ms(),
            is_active=is_active,
            lateness=self._lateness.take(),
            replayed=replayed,
            opened=pl.concat(made.opened) if made.opened else pl.DataFrame(),
            waiting={name: bounded(spans) for operator in self._chain for name, spans in operator.waiting.items()},
            causes=pl.concat(made.causes) if made.causes else pl.DataFrame(),
        )

    def _advance(self, advance: Advance, last_ms: int, arrivals: Arrivals, made: _Made) -> None:
        """Let stream times rise, from one moment at which something is released to the next.

        What one operator lets go the next one takes at its own moment, so the number of ticks makes no difference.
        """
        at_ms = min(last_ms, advance.begin_ms)
        for count in count_from(0):
            if at_ms >= advance.end_ms:
                return
            stops = self._stops(at_ms, advance) if count < MAX_ADVANCES else ()
            stop_ms = min([advance.end_ms, *stops])
            if arrivals.next_ms is not None:
                stop_ms = min(stop_ms, max(arrivals.next_ms, at_ms + 1))
            # Up to the moment before the stop nothing goes; but what goes then meets operators whose time has come as far.
            for moment_ms in (stop_ms - 1, stop_ms):
                if moment_ms > at_ms:
                    rises_by_ms = max(moment_ms - max(at_ms, advance.begin_ms), 0)
                    self._run(
                        arrivals.take(moment_ms), _Step(max(moment_ms, last_ms), rises_by_ms, moment_ms, is_before=True), made
                    )
                    at_ms = moment_ms

    def _stops(self, at_ms: int, advance: Advance) -> Iterator[int]:
        """Give the moments of the wall clock at which an operator lets something go, by a timer or by its stream time."""
        if at_ms < advance.begin_ms:
            yield advance.begin_ms
        for operator in self._chain:
            if (wakes_at_ms := operator.wakes_at_ms) is not None and wakes_at_ms > at_ms:
                yield wakes_at_ms
            if (due_ms := operator.due_in_ms) is not None and at_ms >= advance.begin_ms:
                yield at_ms + max(1, due_ms)

    def _run(self, slices: Sequence[Slice], step: _Step, made: _Made) -> None:
        """Let records, and then the clock, go through the chain."""
        # What timers cause has places of its own before and behind the batch's records; what silence does, comes after both.
        first = self._next_pos
        batch = order_batch(slices, self._plan.inputs, first + 1)
        position = first + 1 + sum(frame.height for frame in batch.frames.values())
        self._next_pos = position + 2
        self._lateness.enter(batch.frames, self._chain)
        frames = self._conflicts.winning(self._hashed(batch.frames), made.counters)
        running = frames.get(self._running)
        forced = forced_rows(running) if self._has_idle else NOTHING
        if step.advance_ms:
            forced = np.append(forced, position + 1)
        moment = BatchTime(step.now_ms, position, step.advance_ms, self._progress.of(self._inputs), forced, step.is_release)
        frame = self._empty if running is None else entering(running, self._empty.columns)
        for operator in self._chain:
            self._lateness.reach(operator, frame, frames)
            results = turns(operator, frame, frames, moment, first)
            frame = results[0].frame if len(results) == 1 else pl.concat([result.frame for result in results])
            for result in results:
                made.take(result)
        self._emit(frame, batch, moment, step, made)

    def _hashed(self, frames: Mapping[int, pl.DataFrame]) -> Mapping[int, pl.DataFrame]:
        """Give records the hash by which the task's state is kept; the one that they come with, without a seed, has chosen the task."""
        if self._hashing == UNSEEDED:
            return frames
        return {index: with_series(frame, self._hashing.of(frame, self._keys[index])) for index, frame in frames.items()}

    def _replayed(self, replays: Replays | None, made: _Made) -> pl.DataFrame:
        """Let late records through again, and what the stage before made of some; returns what comes of them."""
        if replays is None:
            return pl.DataFrame()
        again = _Made(opened=made.opened, late=made.late, counters=made.counters)
        if replays.slices:
            self._run(replays.slices, _Step(self._now_ms), again)
        names = [operator.name for operator in self._chain]
        for records in replays.records:
            for (name,), own in records.partition_by(OPERATOR, as_dict=True, maintain_order=True).items():
                place = names.index(str(name))
                schema = running_schema(self._stage, self._plan) if place == 0 else self._chain[place - 1].schema
                rows = replayed_rows(own, schema, task_key(self._stage, self._plan), self._next_pos, self._hashing)
                self._next_pos += rows.height
                self._follow(self._chain[place].replay(rows), place + 1, again)
        made.failure = made.failure or again.failure
        return pl.concat(again.changes)

    def _follow(self, output: OperatorOutput, place: int, made: _Made) -> None:
        """Let what an operator made go through those behind it."""
        batch = order_batch([], self._plan.inputs, self._next_pos)
        step = _Step(self._now_ms)
        moment = BatchTime(self._now_ms, self._next_pos, progress=self._progress.of(self._inputs))
        self._next_pos += 1
        made.take(output)
        frame = output.frame
        for operator in self._chain[place:]:
            result = operator.process(frame, batch.frames, moment)
            made.take(result)
            frame = result.frame
        self._emit(frame, batch, moment, step, made)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-able values; every segment it names is durable."""
        return {
            "format": STATE_FORMAT,
            "next_pos": self._next_pos,
            "emitted": self._emitted,
            "now_ms": self._now_ms,
            **self._silence.snapshot(),
            "progress": self._progress.snapshot(),
            "lateness": self._lateness.snapshot(),
            "operators": {name: operator.snapshot() for name, operator in self._named},
            "conflicts": self._conflicts.snapshot(),
        }

    def _wakes_at_ms(self) -> int | None:
        moments = [operator.wakes_at_ms for operator in self._chain]
        if (reached_ms := self._silence.reached_ms) is not None:
            due = (operator.due_in_ms for operator in self._chain)
            # Stream time rises by whole milliseconds: what is due now has to wait for the next one.
            moments += [reached_ms + max(1, ms) for ms in due if ms is not None]
        return min((ms for ms in moments if ms is not None), default=None)

    def _emit(self, frame: pl.DataFrame, batch: Ordered, moment: BatchTime, step: _Step, made: _Made) -> None:
        """Take what came out of the chain; what only open windows have stands apart from results."""
        if self._is_last and self._plan.output.has_open:
            is_open = pl.col(OP) >= OPEN_ROW
            made.opened.append(frame.filter(is_open)[[TS, OP, *self._output]])
            frame = frame.filter(~is_open)
        clock_ms = step.now_ms if step.reached_ms is None else step.reached_ms
        causes = batch.causes(frame.get_column(POS).to_numpy(), clock_ms, is_before=step.is_before).columns()
        if self._is_last:
            made.causes.append(frame_of(causes))
        changes = self._changes(frame, causes, moment, step)
        self._emitted += changes.height
        made.changes.append(changes)

    def _changes(self, frame: pl.DataFrame, causes: list[pl.Series], moment: BatchTime, step: _Step) -> pl.DataFrame:
        """Give the chain's rows the columns of the next reader: the sink, or the next stage as canonical records."""
        if self._is_last:
            return blanked(only(frame, TS, OP, *self._output), self._values)
        added = [
            key_hash(frame, self._stage.exchange_key),
            pl.Series(OFFSET, np.arange(self._emitted, self._emitted + frame.height)),
            frame.get_column(OFFSET).alias(ORIGIN) if self._keeps_offset else constant(NO_RECORD, frame.height, ORIGIN),
            *causes,
        ]
        if self._has_idle:
            reached = pl.repeat(step.reached_ms, frame.height, dtype=pl.Int64, eager=True)
            added += [pl.Series(IS_FORCED, moment.are_forced(frame)), reached.alias(REACHED_AT)]
        service = [KEY_HASH, TS, OFFSET, OP, *(column.name for column in added[2:])]
        return only(with_series(frame, *added), *service, *self._output)


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

"""What every operator of a task's chain is, and the moment it works at.

An operator takes a batch's rows of the running relation, in processing order, and gives the rows for the next operator. It must
give exactly what handling one record after the other would, for every slicing of the input (T3), and after any restart from a
snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from engine.errors import EngineError, InvariantBroken
from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, NEVER, Bools, Clock
from engine.frames.frames import POS, RANK, Counters, empty_late
from engine.frames.places import is_further
from engine.operators.pending.spans import Span


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far a table's partitions have been read, all of them together (J9).

    Attributes:
        read_to_ms: smallest, over the partitions, of the greatest event time read.
        caught_up_to_ms: the same over the partitions that were not read to their ends; ``AFTER_ALL_TIME`` where all were.
    """

    read_to_ms: int = BEFORE_ALL_TIME
    caught_up_to_ms: int = BEFORE_ALL_TIME


@dataclass(frozen=True, slots=True)
class BatchTime:
    """When an operator handles a batch.

    Attributes:
        now_ms: the wall clock of the batch (T5); never falls.
        position: the position behind the batch's last record: what the wall clock alone causes has it.
        clock: the time of the running relation before the operator. What it makes due is emitted although no row came.
        tables: input index → the time of that table or stream.
        is_release: what is due by the time as it is goes now, at ``position``, and not with the next record (J11).
        progress: input index → progress of that table, as of the end of the batch; absent where it is not known.
        closed_ms: what lies before has closed for good (W6), by time less grace: an edit of the grace does not open it.
    """

    now_ms: int = 0
    position: int = 0
    clock: Clock = field(default_factory=Clock)
    tables: Mapping[int, Clock] = field(default_factory=dict)
    progress: Mapping[int, TableProgress] = field(default_factory=dict)
    is_release: bool = False
    closed_ms: int = BEFORE_ALL_TIME

    def before(self, frame: pl.DataFrame) -> I64:
        """Return the time before the place of each row, by which it is judged (T1b)."""
        return _before(self.clock, frame)

    def table_before(self, input_index: int, frame: pl.DataFrame) -> I64:
        """Return the time of an input before the place of each row."""
        return _before(self.tables[input_index], frame)

    def reached(self, times: I64) -> I64:
        """Return the first position of the batch that brings time to each of these times; ``NEVER`` where it does not come so far."""
        reached = self.clock.reached(times)
        if self.is_release:
            reached = np.where(times <= self.clock.end, np.minimum(reached, self.position), reached)
        return reached

    def are_forced(self, frame: pl.DataFrame) -> Bools:
        """Say which rows silence releases (T10): the place of each is that of its cause."""
        return self.clock.is_silence(frame.get_column(POS).to_numpy())


def _before(clock: Clock, frame: pl.DataFrame) -> I64:
    positions = frame.get_column(POS).to_numpy()
    times = clock.before(positions)
    further = is_further(frame.get_column(RANK))
    return times if further is None else np.where(further, clock.upto(positions), times)


def row_numbers(first: int, rows: int) -> I64:
    """Number the rows of a frame, of which several may share a position, for tables that need a position for each.

    Every second number from ``first`` on is left out, so that ``row_clock`` can rise between two rows.
    """
    return first + 1 + 2 * np.arange(rows)


def row_clock(clock: Clock, frame: pl.DataFrame, numbers: I64) -> Clock:
    """Return a time over the numbers of rows.

    Args:
        clock: the time over positions.
        frame: rows in order, with their places.
        numbers: what ``row_numbers`` gave them.
    """
    places = np.append((numbers[:, None] + np.array([-1, 0])).ravel(), NEVER - 1)
    with_places = np.column_stack([_before(clock, frame), clock.upto(frame.get_column(POS).to_numpy())])
    return Clock(clock.begin, places, np.append(with_places.ravel(), clock.end))


class Operator:
    """One step of a task's chain. What is here suits one that remembers nothing.

    Attributes:
        name: under which its state and counters are kept; None: it has none.
        schema: the payload columns it gives.
    """

    name: str | None = None
    schema: Schema

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle a batch.

        Args:
            frame: the running relation's rows; may have none.
            inputs: the records of the stage's inputs by ``Input.index``, each with ``_pos``; those without records are absent.
            moment: when.
        """
        raise NotImplementedError

    def replay(self, frame: pl.DataFrame, moment: BatchTime) -> OperatorOutput:  # noqa: ARG002 - for joins of a stream with a table
        """Handle late records that it refused before; see ``engine.operators.tasks.replay``.

        Raises:
            InvariantBroken: it takes none; the plan says which operators do (``takes_replays``).
        """
        raise InvariantBroken(f"{self.name} cannot replay late records")

    def is_due(self, moment: BatchTime) -> bool:
        """Whether a batch that brings it no rows makes it emit something; it may err on the side of yes."""
        if self.wakes_at_ms is not None and self.wakes_at_ms <= moment.now_ms:
            return True
        return self.due_ms is not None and int(moment.reached(np.array([self.due_ms]))[0]) < NEVER

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-able values; every segment it names is durable."""
        return {}

    @property
    def buffered_rows(self) -> int:
        """Rows that wait."""
        return 0

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """What an edit could release, by the clock's name: at event times, or at the ends of windows; ``<name>.hold``: at wall clocks."""
        return {}

    @property
    def buffered_bytes(self) -> int | None:
        """How much they weigh; None where that is not known without reading them."""
        return None

    @property
    def oldest_ms(self) -> int | None:
        """The smallest event time that waits; None where nothing does, or where it is not known without reading."""
        return None

    @property
    def due_ms(self) -> int | None:
        """The least time before it at which something is emitted; None where nothing waits for it."""
        return None

    @property
    def wakes_at_ms(self) -> int | None:
        """The wall clock at which something is released without input; None where nothing waits for it."""
        return None


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """What one operator made of one frame.

    Attributes:
        frame: rows for the next operator, with the service columns, in emission order.
        late: rows that must be kept for reading (``LATE_SCHEMA``).
        counters: see ``Counters``.
        failure: the query fails once all that is here has been committed. No record of the failing position or behind it was
            handled, and the operator's state is as if they had never come.
    """

    frame: pl.DataFrame
    late: pl.DataFrame = field(default_factory=lambda: empty_late())
    counters: Counters = field(default_factory=dict)
    failure: EngineError | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """What one task made of one batch.

    Attributes:
        changes: ``_ts``, ``_op`` and the stage's output columns, in emission order; before an exchange canonical records of the
            next stage (``_key_hash`` of the exchange key, ``_offset`` = number of the emission) with the columns of their places.
        late: rows that must be kept for reading (``LATE_SCHEMA``).
        counters: see ``Counters``.
        buffered: operator → rows waiting.
        buffered_bytes: operator → how much they weigh; without those that do not know.
        oldest_ms: operator → the smallest event time that waits; without those where nothing does, or that do not know.
        failure: see ``OperatorOutput``.
        wakes_at_ms: the wall clock at which the task has something to do without input, None for never.
        dues: the least time at which the task has something to do: by ``streams``, or behind an operator that waits by the wall clock.
        waiting: see ``Operator.waiting``; at most ``MAX_SPANS`` spans each.
        lateness: gauge → what it counted (``engine.operators.tasks.lateness``).
        replayed: like ``changes``: what became of replayed late records, marked by standing apart.
        opened: like ``changes``, ``_op`` being ``OPEN_ROW`` or ``OPEN_DELETE``: what open windows have now.
        causes: of the last stage's ``changes``, row by row: its head (how far the merge had come) and its place (``engine.frames.places``).
    """

    changes: pl.DataFrame
    late: pl.DataFrame
    counters: Counters
    buffered: dict[str, int]
    failure: EngineError | None = None
    wakes_at_ms: int | None = None
    dues: dict[str, int] = field(default_factory=dict)
    buffered_bytes: dict[str, int] = field(default_factory=dict)
    oldest_ms: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, dict[str, Any]] = field(default_factory=dict)
    replayed: pl.DataFrame = field(default_factory=pl.DataFrame)
    opened: pl.DataFrame = field(default_factory=pl.DataFrame)
    waiting: dict[str, list[Span]] = field(default_factory=dict)
    causes: pl.DataFrame = field(default_factory=pl.DataFrame)

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
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools
from engine.frames.frames import POS, Counters, empty_late
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
    """When a batch is handled.

    Attributes:
        now_ms: the wall clock of the batch (T5), or of a moment of the silence before it; never falls.
        position: the place in the total order behind the batch's last record: what the wall clock alone causes has it.
        advance_ms: by how much every stream time rises now although no record came (T10); 0 but in an idle task. It happens after the
            frame was handled, and what it lets go is part of the same output.
        is_release: what is due by the stream times as they are goes now, at ``position``, and not with the next record (J11).
        progress: input index → progress of that table, as of the end of the batch; absent where it is not known.
        forced: positions at which not a record but silence lets rows go (T10).
    """

    now_ms: int = 0
    position: int = 0
    advance_ms: int = 0
    progress: Mapping[int, TableProgress] = field(default_factory=dict)
    forced: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    is_release: bool = False

    @property
    def step_ms(self) -> int | None:
        """By how much stream times rise behind the records; 0: they only are looked at again; None: not even that."""
        return self.advance_ms if self.advance_ms > 0 or self.is_release else None

    def are_forced(self, frame: pl.DataFrame) -> Bools:
        """Say which rows silence let go: the place of each is that of its cause."""
        return np.isin(frame.get_column(POS).to_numpy(), self.forced)


class Operator:
    """One step of a task's chain. What is here suits one that remembers nothing.

    Attributes:
        name: under which its state, clocks and counters are kept; None: it has none.
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

    def replay(self, frame: pl.DataFrame) -> OperatorOutput:  # noqa: ARG002 - for joins of a stream with a table
        """Handle late records that it refused before; see ``engine.operators.tasks.replay``.

        Raises:
            InvariantBroken: it takes none; the plan says which operators do (``takes_replays``).
        """
        raise InvariantBroken(f"{self.name} cannot replay late records")

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-able values; every segment it names is durable."""
        return {}

    @property
    def clocks(self) -> dict[str, int | None]:
        """Stream times by name, None before the first record."""
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
    def due_in_ms(self) -> int | None:
        """By how much stream time must advance until something is released; None where nothing waits for it."""
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
            next stage (``_key_hash`` of the exchange key, ``_offset`` = number of the emission).
        late: rows that must be kept for reading (``LATE_SCHEMA``).
        counters: see ``Counters``.
        clocks: operator → stream time, None before its first record.
        buffered: operator → rows waiting.
        buffered_bytes: operator → how much they weigh; without those that do not know.
        oldest_ms: operator → the smallest event time that waits; without those where nothing does, or that do not know.
        failure: see ``OperatorOutput``.
        wakes_at_ms: the wall clock at which the task has something to do without input, None for never.
        waiting: see ``Operator.waiting``; at most ``MAX_SPANS`` spans each.
        lateness: gauge → what it counted (``engine.operators.tasks.lateness``).
        is_active: records of the query's inputs came, to this task or to one of the stage before (T10).
        replayed: like ``changes``: what became of replayed late records, marked by standing apart.
        opened: like ``changes``, ``_op`` being ``OPEN_ROW`` or ``OPEN_DELETE``: what open windows have now.
        causes: of the last stage's ``changes``, row by row: where each stands (``engine.operators.tasks.order.CAUSE_COLUMNS``).
    """

    changes: pl.DataFrame
    late: pl.DataFrame
    counters: Counters
    clocks: dict[str, int | None]
    buffered: dict[str, int]
    failure: EngineError | None = None
    wakes_at_ms: int | None = None
    is_active: bool = False
    buffered_bytes: dict[str, int] = field(default_factory=dict)
    oldest_ms: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, dict[str, Any]] = field(default_factory=dict)
    replayed: pl.DataFrame = field(default_factory=pl.DataFrame)
    opened: pl.DataFrame = field(default_factory=pl.DataFrame)
    waiting: dict[str, list[Span]] = field(default_factory=dict)
    causes: pl.DataFrame = field(default_factory=pl.DataFrame)

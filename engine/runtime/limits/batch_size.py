"""The size of a query's next batch, from the results of earlier ones. It changes no results, as these do not depend on batch ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

SHRINKS_TO: Final = 1 / 16
"""Factor on the records of a batch that emitted too much. Four such steps lead from 20,000 records to one."""


class BatchSize:
    """The bound of a query's next batch: the bound of its slot, or fewer records if they emit much."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._most: int | None = None

    @property
    def rows(self) -> int | None:
        """The most records of a batch; None: as many as the slot allows."""
        return self._rows

    @property
    def is_least(self) -> bool:
        """Whether it cannot shrink. One record passes, however much it emits."""
        return self._rows == 1

    def within(self, limit: BatchLimit) -> BatchLimit:
        """Return the bound of the next batch, from the slot's bound."""
        return limit if self._rows is None else BatchLimit(min(self._rows, limit.max_rows), limit.max_bytes)

    def after(self, rows: int, emitted_bytes: int, limit: BatchLimit, most_bytes: int) -> bool:
        """Record a committed batch; return whether the next one gets another bound.

        If the batch emitted more than half of ``most_bytes``, the next one shrinks in proportion. If a reduced batch emitted less than a
        quarter, the next one is twice as large.
        """
        before = self._rows
        if rows and emitted_bytes > most_bytes // 2:
            fitting = max(rows * (most_bytes // 2) // emitted_bytes, 1)
            self._rows = fitting if before is None else min(fitting, before)
        elif before is not None and rows >= before // 2 and emitted_bytes < most_bytes // 4:
            larger = min(before * 2, self._most or before * 2)
            self._rows = None if larger >= limit.max_rows else larger
        return self._rows != before

    def refused(self, limit: BatchLimit, *, is_for_good: bool = False) -> bool:
        """Record a batch that was abandoned for its size; return whether a smaller one can be tried.

        Args:
            limit: of the slot.
            is_for_good: later batches never grow to this size again, because it cost all queries of the slot a worker.
        """
        if self.is_least:
            return False
        before = min(self._rows or limit.max_rows, limit.max_rows)
        self._rows = max(int(before * SHRINKS_TO), 1)
        if is_for_good:
            self._most = max(before // 2, 1)
        return True


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """Approximate bound of one batch; a cut at an event time may add a few chunks."""

    max_rows: int
    max_bytes: int


SHARED_LIMIT: Final = BatchLimit(20_000, 8 << 20)
"""Bound of one query's batch in a shared slot: the other queries wait for it."""

SHARED_EMITTED: Final = 64 << 20
"""Approximate bytes that one query's batch may emit in a shared slot, eight times its input. The driver holds this for a whole cycle."""

OWN_EMITTED: Final = 1 << 30
"""Approximate bytes that each task of a query in its own slot may emit, at most four times what its batch reads."""


class ExecutionMode(Enum):
    """A query shares a slot, has a dedicated one with large batches, or an isolated one with small batches because it may end its worker."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    ISOLATED = "isolated"

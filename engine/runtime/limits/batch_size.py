"""How much of its input a query takes at once, by what came of it. Results do not depend on where batches end, so this changes none. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHRINKS_TO: Final = 1 / 16
"""Of the records of a batch that emitted too much. Four such steps lead from 20,000 records to one."""


class BatchSize:
    """The bound of one query's next batch: that of its slot, or fewer records where they emit much."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._most: int | None = None

    @property
    def rows(self) -> int | None:
        """At most so many records; None: as many as the slot takes."""
        return self._rows

    @property
    def is_least(self) -> bool:
        """Whether it cannot be smaller. What one record emits passes, however much it is."""
        return self._rows == 1

    def within(self, limit: BatchLimit) -> BatchLimit:
        """Return the bound of the next batch.

        Args:
            limit: that of the slot.
        """
        return limit if self._rows is None else BatchLimit(min(self._rows, limit.max_rows), limit.max_bytes)

    def after(self, rows: int, emitted_bytes: int, limit: BatchLimit, most_bytes: int) -> bool:
        """Take note of a batch that was committed; returns whether the next one shall have another bound.

        More than half of ``most_bytes`` makes the next batch smaller, in proportion; less than a quarter of it makes one that was cut short
        twice as large.

        Args:
            rows: its records.
            emitted_bytes: what it emitted.
            limit: of the slot.
            most_bytes: a batch may emit.
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
        """Take note of a batch that was given up for its size; returns whether a smaller one can be tried.

        Args:
            limit: of the slot.
            is_for_good: later ones shall not become as large again: that one has cost everybody a worker.
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
    """About how much one batch may hold; cutting at an event time may take a few chunks more."""

    max_rows: int
    max_bytes: int

"""Queues of rows that wait, and what can be seen of them without taking anything out."""

from __future__ import annotations

from engine.core.structures.segments import TimeQueue


class WaitingRows(TimeQueue):
    """A queue by time that tells how long its first row has to wait."""

    @property
    def earliest_ms(self) -> int | None:
        """The smallest event time that waits, None where nothing does."""
        return min((segment.min_ts for segment in self._held), default=None)

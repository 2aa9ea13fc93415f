"""Queues of rows that wait, and what can be seen of them without taking anything out."""

from __future__ import annotations

from typing import Any

from engine.frames.frames import TS
from engine.operators.pending.spans import Span, SpanCache, behind, ranked
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.time_queue import TimeQueue


class SpannedQueue(TimeQueue):
    """A queue by time that tells how much waits at which times."""

    def __init__(self, store: SegmentStore, state: list[dict[str, Any]] | None) -> None:
        super().__init__(store, state)
        self._spans = SpanCache(lambda name: ranked(store.load(name).get_column(TS).to_numpy()))

    @property
    def spans(self) -> list[Span]:
        """Rows by time; exact."""
        found = self._spans.of(self._segments.names)
        return [
            span
            for segment, spans in zip(self._segments, found, strict=True)
            for span in behind(spans, segment.min_ts, segment.consumed)
        ]


class WaitingRows(SpannedQueue):
    """A queue by time that tells how long its first row has to wait."""

    @property
    def earliest_ms(self) -> int | None:
        """The smallest event time that waits, None where nothing does."""
        return min((segment.min_ts for segment in self._segments), default=None)

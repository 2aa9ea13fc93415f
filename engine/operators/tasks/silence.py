"""How long a task has been silent, and what silence in the stages before brings it, moment by moment (T10).

Silence is judged by the query's inputs: a later stage's task is silent while the tasks before it are, whatever they emit, and what
they emit because of the silence it takes at the moment of the wall clock at which they let it go. Records that only a later stage
reads end the silence of all tasks before it, whose keys they do not have. So a plan of several stages does what one of a single stage would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import polars as pl

from engine.operators.tasks.order import UPSTREAM, Slice

IS_FORCED: Final = "_is_forced"
"""Column of an emission that goes through an exchange: silence let the row go."""

REACHED_AT: Final = "_reached_at"
"""The wall clock that silence had reached when the row came out; null: it came with the batch's records."""


class Advance(NamedTuple):
    """By how much stream times rise now, as moments of the wall clock: from ``begin_ms`` to ``end_ms``."""

    begin_ms: int
    end_ms: int


class Silence:
    """Since when no record came.

    Args:
        after_ms: how long it lasts before time goes on by itself; None: it never does.
        state: what ``snapshot`` returned, or an empty dict.
    """

    def __init__(self, after_ms: int | None, state: dict[str, Any]) -> None:
        self._after_ms = after_ms
        self._since_ms: int | None = state.get("silent_since_ms")
        self._advanced_ms: int = state.get("advanced_ms", 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values."""
        return {"silent_since_ms": self._since_ms, "advanced_ms": self._advanced_ms}

    @property
    def reached_ms(self) -> int | None:
        """The wall clock that stream times stand for: from here on they go on by themselves. None where they do not."""
        if self._after_ms is None or self._since_ms is None:
            return None
        return self._since_ms + self._after_ms + self._advanced_ms

    def last_until(self, now_ms: int, awake_ms: int | None) -> Advance | None:
        """Return what the silence up to ``now_ms`` comes to, beyond what it came to before.

        Args:
            now_ms: the wall clock.
            awake_ms: since when nothing that came was left unread: before that no silence counts; None: always.
        """
        if self._since_ms is not None and awake_ms is not None and awake_ms > self._since_ms:
            self._since_ms, self._advanced_ms = awake_ms, 0
        begin_ms = self.reached_ms
        if begin_ms is None or begin_ms >= now_ms:
            return None
        self._advanced_ms += now_ms - begin_ms
        return Advance(begin_ms, now_ms)

    def end(self, now_ms: int) -> None:
        """Note that records came."""
        self._since_ms, self._advanced_ms = now_ms, 0


class Arrivals:
    """Rows that the tasks before emitted at moments of their silence, by moment; of one moment in the tasks' order."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        parts = [
            (int(frame.item(0, REACHED_AT)), item.partition, replace(item, frame=frame))
            for item in slices
            if _has_moments(item)
            for frame in item.frame.filter(pl.col(REACHED_AT).is_not_null()).partition_by(REACHED_AT, maintain_order=True)
        ]
        self._parts = sorted(parts, key=lambda part: part[:2])
        self.others = [_without_moment(item) if _has_moments(item) else item for item in slices]

    @property
    def next_ms(self) -> int | None:
        """The moment of the first."""
        return self._parts[0][0] if self._parts else None

    def take(self, until_ms: int | None = None) -> list[Slice]:
        """Remove and return the rows of the moments up to ``until_ms``; None: all."""
        count = sum(until_ms is None or moment <= until_ms for moment, _, _ in self._parts)
        taken, self._parts = self._parts[:count], self._parts[count:]
        return [item for _, _, item in taken]


def _has_moments(item: Slice) -> bool:
    return item.input_index == UPSTREAM and REACHED_AT in item.frame.columns


def _without_moment(item: Slice) -> Slice:
    return replace(item, frame=item.frame.filter(pl.col(REACHED_AT).is_null()))

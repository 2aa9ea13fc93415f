"""Record by record, in lists and loops: a join with grace and hold in front of windows, and a suppression by wall clock, on a scripted clock.

The table of the join has no rows that match. Rows are judged, time rises, and what is due goes, in this order at each place (T1b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NONE_YET = -(10**15)


@dataclass
class Held:
    """A record that waits: event time, arrival, key, the wall clock of its batch."""

    ts: int
    arrival: int
    key: str
    at_ms: int


class Waits(NamedTuple):
    """Settings, in ms; ``until_caught_up``: the table's end counts as far enough; idle_ms None: never idle."""

    grace: int
    at_most: int
    slack: int
    until_caught_up: bool
    size: int
    idle: int | None


@dataclass
class HeldWindows:
    """J3, J9, T10, T11, W2, W6: join with grace and hold, then tumbling windows without grace; results are (start, key, rows)."""

    waits: Waits
    time: int = NONE_YET
    behind: int = NONE_YET
    read_to: int = NONE_YET
    now: int = 0
    active_at: int | None = None
    risen: int = 0
    arrivals: int = 0
    moments: list[tuple[int, int]] = field(default_factory=list)
    graced: list[Held] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    windows: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    rows: list[tuple[int, str, int]] = field(default_factory=list)
    late: list[tuple[int, str, int]] = field(default_factory=list)

    def batch(self, records: Sequence[tuple[str, str, int]], now: int, *, is_at_end: bool) -> None:
        self.now = now
        came: list[Held] = []
        before = self.behind
        if self.waits.idle is not None and self.active_at is not None:
            while self.active_at + self.waits.idle + self.risen < now:
                self.time, self.risen = self.time + 1, self.risen + 1
                came += self._released()
        for name, key, ts in records:
            if name != "s":
                self.read_to = max(self.read_to, ts)
                continue
            self.active_at, self.risen = now, 0
            record = Held(ts, self.arrivals, key, now)
            self.arrivals += 1
            if self.time != NONE_YET and ts < self.time - self.waits.grace:
                self._window(record, before)
            else:
                self.graced.append(record)
            self.time = max(self.time, ts)
            came += self._released()
        self.held += came
        for record in self._let_go(is_at_end=is_at_end):
            self._window(record, before)
        if self.time != NONE_YET:
            self._hand_on(is_at_end=is_at_end)
        self._close()

    def _released(self) -> list[Held]:
        due = sorted(
            (each for each in self.graced if each.ts <= self.time - self.waits.grace), key=lambda each: (each.ts, each.arrival)
        )
        self.graced = [each for each in self.graced if each not in due]
        return due

    def _reached(self, *, is_at_end: bool) -> int:
        return 10**15 if self.waits.until_caught_up and is_at_end else self.read_to - self.waits.slack

    def _let_go(self, *, is_at_end: bool) -> list[Held]:
        """The longest part of the queue that need not wait, and all before what has waited too long."""
        overdue = [place for place, each in enumerate(self.held) if each.at_ms <= self.now - self.waits.at_most]
        stop = overdue[-1] + 1 if overdue else 0
        while stop < len(self.held) and self.held[stop].ts <= self._reached(is_at_end=is_at_end):
            stop += 1
        gone, self.held = self.held[:stop], self.held[stop:]
        return gone

    def _hand_on(self, *, is_at_end: bool) -> None:
        """T11: what stood there so long ago; or the smaller of T − G and how far the table has been read."""
        joined = self.time - self.waits.grace
        self.moments.append((self.now, joined))
        long_ago = [time for at, time in self.moments if at <= self.now - self.waits.at_most]
        self.behind = max([self.behind, min(joined, self._reached(is_at_end=is_at_end)), *long_ago[-1:]])

    def _window(self, record: Held, time: int) -> None:
        start = record.ts // self.waits.size * self.waits.size
        if start + self.waits.size <= time:
            self.late.append((record.ts, record.key, time))
            return
        self.windows.setdefault((start, record.key), [self._next(), 0])[1] += 1

    def _next(self) -> int:
        self.arrivals += 1
        return self.arrivals

    def _close(self) -> None:
        closed = sorted(
            (start, first, key) for (start, key), (first, _) in self.windows.items() if start + self.waits.size <= self.behind
        )
        for start, _, key in closed:
            self.rows.append((start, key, self.windows.pop((start, key))[1]))


@dataclass
class _Entry:
    due: int
    first: int
    rows: int


@dataclass
class WallSuppressed:
    """S2, T11: counts by key, held back by wall clock; results are (key, rows). What is due goes before a batch's records."""

    limit: int
    is_event_driven: bool
    time: int = NONE_YET
    behind: int = NONE_YET
    counts: dict[str, int] = field(default_factory=dict)
    entries: dict[str, _Entry] = field(default_factory=dict)
    moments: list[tuple[int, int]] = field(default_factory=list)
    arrivals: int = 0
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def batch(self, records: Sequence[tuple[str, str, int]], now: int) -> None:
        own = [(key, ts) for name, key, ts in records if name == "s"]
        if own or not self.is_event_driven:
            due = sorted((each.due, each.first, key) for key, each in self.entries.items() if each.due <= now)
            self.rows += [(key, self.entries.pop(key).rows) for *_, key in due]
        for key, ts in own:
            self.time = max(self.time, ts)
            self.counts[key] = self.counts.get(key, 0) + 1
            self.arrivals += 1
            self.entries.setdefault(key, _Entry(now + self.limit, self.arrivals, 0)).rows = self.counts[key]
        if self.time != NONE_YET:
            self.moments.append((now, self.time))
        if own or not self.is_event_driven:
            self.behind = max([self.behind, *(time for at, time in self.moments if at <= now - self.limit)])

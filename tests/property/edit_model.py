"""Record-by-record models of operators whose grace or limit changes in between: lists and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SIZE = 10
GAP = 5


class Out(NamedTuple):
    """A result: from, to, how many records."""

    start: int
    end: int
    rows: int


@dataclass
class Grace:
    """J3 with a buffer; results are single records (time, time, 1)."""

    grace: int
    clock: int | None = None
    waiting: list[tuple[int, int]] = field(default_factory=list)
    late: int = 0

    def take(self, place: int, ts: int) -> list[Out]:
        if self.clock is not None and ts < self.clock - self.grace:
            self.late += 1
            return self.release()  # what an edit made due goes with any record of the streams (J11)
        self.clock = ts if self.clock is None else max(self.clock, ts)
        self.waiting.append((ts, place))
        return self.release()

    def release(self) -> list[Out]:
        if self.clock is None:
            return []
        due = sorted(each for each in self.waiting if each[0] <= self.clock - self.grace)
        self.waiting = [each for each in self.waiting if each not in due]
        return [Out(ts, ts, 1) for ts, _ in due]


@dataclass
class _Open:
    first: int
    last: int
    rows: int
    arrival: int


@dataclass
class Tumbling:
    """W1, W2, W6 for one group."""

    grace: int
    clock: int | None = None
    first_open: int = 0
    windows: dict[int, _Open] = field(default_factory=dict)
    late: int = 0

    def take(self, place: int, ts: int) -> list[Out]:
        self.clock = ts if self.clock is None else max(self.clock, ts)
        closed = self.release()
        window = ts // SIZE
        if window < self.first_open:
            self.late += 1
            return closed
        found = self.windows.setdefault(window, _Open(window * SIZE, (window + 1) * SIZE, 0, place))
        found.rows += 1
        return closed

    def release(self) -> list[Out]:
        if self.clock is None:
            return []
        self.first_open = max(self.first_open, (self.clock - self.grace) // SIZE)
        closed = sorted(window for window in self.windows if window < self.first_open)
        return [Out(found.first, found.last, found.rows) for found in map(self.windows.pop, closed)]


@dataclass
class Sessions:
    """W1, W3, W6 for one group; the horizon never falls, so what has closed stays closed."""

    grace: int
    clock: int | None = None
    horizon: int = 0
    sessions: list[_Open] = field(default_factory=list)
    late: int = 0

    def take(self, place: int, ts: int) -> list[Out]:
        self.clock = ts if self.clock is None else max(self.clock, ts)
        closed = self.release()
        met = [each for each in self.sessions if each.first - GAP <= ts <= each.last + GAP]
        merged = _Open(
            min([ts, *(each.first for each in met)]),
            max([ts, *(each.last for each in met)]),
            1 + sum(each.rows for each in met),
            min([place, *(each.arrival for each in met)]),
        )
        if merged.last < self.horizon:
            self.late += 1
            return closed
        self.sessions = [each for each in self.sessions if each not in met] + [merged]
        return closed

    def release(self) -> list[Out]:
        if self.clock is None:
            return []
        self.horizon = max(self.horizon, self.clock - GAP - self.grace)
        closed = sorted((s for s in self.sessions if s.last < self.horizon), key=lambda s: (s.last, s.first, s.arrival))
        self.sessions = [each for each in self.sessions if each not in closed]
        return [Out(each.first, each.last, each.rows) for each in closed]


@dataclass
class TimeLimit:
    """S1; a change's key is its time modulo 3, results are (buffer time, time of the change, 1)."""

    grace: int
    clock: int | None = None
    held: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    late: int = 0

    def take(self, place: int, ts: int) -> list[Out]:
        self.clock = ts if self.clock is None else max(self.clock, ts)
        since, first, _ = self.held.get(ts % 3, (ts, place, ts))
        self.held[ts % 3] = (since, first, ts)
        return self.release()

    def release(self) -> list[Out]:
        if self.clock is None:
            return []
        due = sorted((entry[:2], key) for key, entry in self.held.items() if entry[0] <= self.clock - self.grace)
        return [Out(entry[2], entry[2], 1) for entry in (self.held.pop(key) for _, key in due)]


Model = Grace | Tumbling | Sessions | TimeLimit


def outcomes(model: Model, times: Sequence[int], first: int) -> list[Out]:
    return [out for place, ts in enumerate(times, first) for out in model.take(place, ts)]

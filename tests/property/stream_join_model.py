"""A record-by-record model of the stream-stream join: two lists and the text of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Side = Literal["left", "right"]


@dataclass
class Kept:
    """A record that was accepted. ``reach`` is how far behind it a partner may lie."""

    side: Side
    key: str
    value: str
    ts: int
    arrival: int
    reach: int
    has_met: bool = False


@dataclass
class StreamJoinModel:
    """What happens at each place, one after the other (T1b).

    Output: (position, time, offset, left value, right value); of an eager join the state, too.
    """

    type: str
    before_ms: int
    after_ms: int
    grace_ms: int
    is_eager: bool = False
    clock: int | None = None
    kept: list[Kept] = field(default_factory=list)
    output: list[tuple[Any, ...]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    late: list[tuple[int, int, int]] = field(default_factory=list)

    def place(self, pos: int, rows: Sequence[tuple[int, Side, str | None, str | None, int]]) -> None:
        """Judge the rows of a place by the time before it, then let time rise. Rows: offset, side, key, value, time."""
        before = len(self.output)
        for row in rows:
            self._record(pos, *row)
        matches, self.output[before:] = self.output[before:], []
        times = [ts for _, _, key, value, ts in rows if key is not None and value is not None]
        if times:
            self.rise(pos, max(times) if self.clock is None else max(*times, self.clock))
        self.output += matches

    def _record(self, pos: int, offset: int, side: Side, key: str | None, value: str | None, ts: int) -> None:
        if value is None:
            self.counters["null_value"] += 1
        elif key is None:
            self.counters["null_key"] += 1
            if self._comes_with_nulls(side):
                self._emit(pos, ts, offset, {side: value})
        else:
            self._accept(pos, offset, side, key, value, ts)

    def rise(self, pos: int, time: int) -> None:
        """Let time rise at a place, and show what it closes there."""
        self.clock = time
        closed = [each for each in self.kept if self._is_closed(each)]
        for each in sorted(closed, key=lambda each: (each.ts, each.side, each.arrival)):
            self.kept.remove(each)
            if not each.has_met and not self.is_eager and self._comes_with_nulls(each.side):
                self._emit(pos, each.ts, each.arrival, {each.side: each.value})

    def silence(self, first: int, ms: int) -> None:
        """T10: time rises by a millisecond at each place from the first on."""
        if self.clock is not None:
            for place in range(ms):
                self.rise(first + place, self.clock + 1)

    def _accept(self, pos: int, offset: int, side: Side, key: str, value: str, ts: int) -> None:
        new = Kept(side, key, value, ts, offset, self.after_ms if side == "left" else self.before_ms)
        if self._is_closed(new):
            assert self.clock is not None
            self.counters["join_window_closed"] += 1
            self.late.append((ts, self.clock, offset))
            return
        partners = [other for other in self.kept if other.side != side and other.key == key and self._is_near(new, other)]
        if self.is_eager and not partners and self._comes_with_nulls(side):
            self._emit(pos, ts, offset, {side: value}, "preliminary")
        for other in sorted(partners, key=lambda each: (each.ts, each.arrival)):
            new.has_met = other.has_met = True
            self._emit(pos, max(ts, other.ts), offset, {side: value, other.side: other.value})
        self.kept.append(new)

    def _is_near(self, one: Kept, other: Kept) -> bool:
        left, right = (one, other) if one.side == "left" else (other, one)
        return left.ts - self.before_ms <= right.ts <= left.ts + self.after_ms

    def _is_closed(self, record: Kept) -> bool:
        return self.clock is not None and record.ts + record.reach + self.grace_ms < self.clock

    def _comes_with_nulls(self, side: Side) -> bool:
        return self.type in {"outer", side}

    def _emit(self, pos: int, ts: int, offset: int, values: dict[Side, str], state: str = "final") -> None:
        states = (state,) if self.is_eager else ()
        self.output.append((pos, ts, offset, values.get("left"), values.get("right"), *states))

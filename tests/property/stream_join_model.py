"""A record-by-record model of the stream-stream join: two lists and the text of the rules."""

from __future__ import annotations

from collections import Counter
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
    """What each record causes, one after the other. Output: (position, time, offset, left value, right value); eager: the state, too."""

    type: str
    before_ms: int
    after_ms: int
    grace_ms: int
    is_eager: bool = False
    clock: int | None = None
    arrivals: int = 0
    kept: list[Kept] = field(default_factory=list)
    output: list[tuple[Any, ...]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    late: list[tuple[int, int, int]] = field(default_factory=list)

    def record(self, pos: int, side: Side, key: str | None, value: str | None, ts: int) -> None:
        if value is None:
            self.counters["null_value"] += 1
        elif key is None:
            self.counters["null_key"] += 1
            if self._comes_with_nulls(side):
                self._emit(pos, ts, pos, {side: value})
        else:
            self._accept(pos, side, key, value, ts)

    def advance(self, pos: int, advance_ms: int) -> None:
        if self.clock is not None and advance_ms:
            self.clock += advance_ms
            self._close(pos, None)

    def _accept(self, pos: int, side: Side, key: str, value: str, ts: int) -> None:
        self.clock = ts if self.clock is None else max(self.clock, ts)
        new = Kept(side, key, value, ts, pos, self.after_ms if side == "left" else self.before_ms)
        if self._is_closed(new):
            self.counters["join_window_closed"] += 1
            self.late.append((ts, self.clock, pos))
            return
        self._close(pos, pos)
        partners = [other for other in self.kept if other.side != side and other.key == key and self._is_near(new, other)]
        if self.is_eager and not partners and self._comes_with_nulls(side):
            self._emit(pos, ts, pos, {side: value}, "preliminary")
        for other in sorted(partners, key=lambda each: (each.ts, each.arrival)):
            new.has_met = other.has_met = True
            self._emit(pos, max(ts, other.ts), pos, {side: value, other.side: other.value})
        self.kept.append(new)

    def _close(self, pos: int, offset: int | None) -> None:
        closed = [each for each in self.kept if self._is_closed(each)]
        for each in sorted(closed, key=lambda each: (each.ts, each.side, each.arrival)):
            self.kept.remove(each)
            if not each.has_met and not self.is_eager and self._comes_with_nulls(each.side):
                self._emit(pos, each.ts, each.arrival if offset is None else offset, {each.side: each.value})

    def _is_near(self, one: Kept, other: Kept) -> bool:
        left, right = (one, other) if one.side == "left" else (other, one)
        return left.ts - self.before_ms <= right.ts <= left.ts + self.after_ms

    def _is_closed(self, record: Kept) -> bool:
        assert self.clock is not None
        return record.ts + record.reach + self.grace_ms < self.clock

    def _comes_with_nulls(self, side: Side) -> bool:
        return self.type in {"outer", side}

    def _emit(self, pos: int, ts: int, offset: int, values: dict[Side, str], state: str = "final") -> None:
        states = (state,) if self.is_eager else ()
        self.output.append((pos, ts, offset, values.get("left"), values.get("right"), *states))

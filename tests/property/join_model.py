"""Naive, record-by-record models of the versioned table and the stream-table join: dictionaries, lists and the text of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.plan.operators.stream_table_join import Hold


@dataclass
class TableModel:
    """V1–V7. Keeps every version for ever, but for a key whose latest version is a tombstone before the horizon (V4)."""

    retention_ms: int | None
    clock: int | None = None
    versions: dict[str, dict[int, str | None]] = field(default_factory=dict)

    @property
    def horizon(self) -> float:
        return float("-inf") if self.clock is None or self.retention_ms is None else self.clock - self.retention_ms

    def put(self, key: str, value: str | None, ts: int) -> bool:
        if ts < self.horizon:
            return False
        if self.retention_ms is None:
            self.versions[key] = {ts: value}
        else:
            versions = self.versions.setdefault(key, {})
            if versions and max(versions) < self.horizon and versions[max(versions)] is None:
                versions.clear()
            versions[ts] = value
        self.clock = ts if self.clock is None else max(self.clock, ts)
        return True

    def is_out_of_order(self, key: str, ts: int) -> bool:
        """Whether the key's put before this one, by arrival, was later in event time (V7)."""
        return any(ts < before for before in self.versions.get(key, {}))

    def next_ts(self, key: str, ts: int) -> int | None:
        return min((other for other in self.versions.get(key, {}) if other > ts), default=None)

    def as_of(self, key: str, ts: int | None) -> tuple[str, int | None, str | None]:
        """Return (status, time, value)."""
        versions = self.versions.get(key, {})
        latest = max(versions, default=None)
        if latest is None or (versions[latest] is None and latest < self.horizon):
            return "no_version", None, None
        if ts is None or self.retention_ms is None:
            found: int | None = latest
        elif ts < self.horizon:
            if latest > ts:
                return "history_expired", None, None
            found = latest
        else:
            found = max((other for other in versions if other <= ts), default=None)
        if found is None:
            return "no_version", None, None
        return ("matched", found, versions[found]) if versions[found] is not None else ("deleted", None, None)

    def history(self, key: str, start: int, stop: int) -> list[tuple[int, str | None, int | None]]:
        """STRICT 13: the distinct answers of all as-of reads in the range."""
        found: dict[int, tuple[int, str | None, int | None]] = {}
        for ts in range(start, stop + 1):
            status, at, value = self.as_of(key, ts)
            if status == "matched" and at is not None:
                found[at] = (at, value, self.next_ts(key, at))
        return [found[at] for at in sorted(found)]


class Waiting(NamedTuple):
    """A stream record that waits; its order is that of the grace's releases."""

    ts: int
    arrival: int
    key: str
    value: str
    buffered_at: int


@dataclass
class JoinModel:
    """J1–J11 and T10, place after place (T1b). ``now_ms`` is the wall clock of the batch that a record comes with."""

    type: str
    retention_ms: int | None
    grace_ms: int | None
    late: str
    expired: str
    hold: Hold | None = None
    clock: int | None = None
    now_ms: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    held: list[Waiting] = field(default_factory=list)
    output: list[tuple[Any, ...]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    late_rows: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = TableModel(self.retention_ms)

    def put(self, offset: int, key: str | None, value: str | None, ts: int) -> None:
        if key is None:
            self.counters["table_null_key"] += 1
            return
        self.counters["out_of_order"] += self.retention_ms is None and self.table.is_out_of_order(key, ts)
        if not self.table.put(key, value, ts):
            self.counters["table_history_expired"] += 1
            self.late_rows.append(("table_history_expired", ts, offset))

    def place(self, pos: int, rows: Sequence[tuple[int, str | None, str | None, int]]) -> None:
        """Judge the stream's rows of a place by the time before it, then let time rise. Rows: offset, key, value, time."""
        for row in rows:
            self._record(pos, *row)
        times = [ts for _, key, value, ts in rows if key is not None and value is not None]
        self._rise(pos, max([*times, *([] if self.clock is None else [self.clock])], default=None))

    def silence(self, first: int, ms: int) -> None:
        """T10: time rises by a millisecond at each place from the first on."""
        if self.clock is not None:
            for place in range(ms):
                self._rise(first + place, self.clock + 1)

    def _record(self, pos: int, offset: int, key: str | None, value: str | None, ts: int) -> None:
        if value is None:
            self.counters["null_value"] += 1
        elif key is None:
            self.counters["null_key"] += 1
            if self.type == "left":
                self.output.append((pos, ts, key, value, None, "null_key"))
        elif self.grace_ms is None:
            self._release(pos, Waiting(ts, offset, key, value, self.now_ms))
        elif self.clock is not None and ts < self.clock - self.grace_ms:
            reason = {"join": "late_joined", "drop": "late_dropped", "divert": "late_diverted"}[self.late]
            self.counters[reason] += 1
            if self.late == "join":
                self._join(pos, key, value, ts, offset)
            else:
                self.late_rows.append((reason, ts, offset))
        else:
            self.waiting.append(Waiting(ts, offset, key, value, self.now_ms))

    def _rise(self, pos: int, time: int | None) -> None:
        self.clock = time
        if time is not None and self.grace_ms is not None:
            until = time - self.grace_ms
            for entry in sorted(entry for entry in self.waiting if entry.ts <= until):
                self.waiting.remove(entry)
                self._release(pos, entry)

    def end_batch(self, pos: int, reached_ms: int) -> None:
        """J9, with the table read so far that rows up to ``reached_ms`` need not wait."""
        while self.held and self.hold is not None:
            head = self.held[0]
            is_capped = len(self.held) > self.hold.max_rows or any(
                each.buffered_at + self.hold.at_most_ms <= self.now_ms for each in self.held
            )
            if head.ts > reached_ms and not is_capped:
                return
            self.counters["hold_expired"] += head.ts > reached_ms
            self.held.pop(0)
            self._join(pos, head.key, head.value, head.ts, head.arrival)

    def _release(self, pos: int, entry: Waiting) -> None:
        if self.hold is not None:
            self.held.append(entry)
        else:
            self._join(pos, entry.key, entry.value, entry.ts, entry.arrival)

    def _join(self, pos: int, key: str, value: str, ts: int, arrival: int) -> None:
        status, _, found = self.table.as_of(key, ts)
        if status == "matched":
            self.output.append((pos, ts, key, value, found, status))
            return
        self.counters[status] += 1
        if self.type == "inner":
            return
        if status == "history_expired" and self.expired != "null":
            self.late_rows.append((f"expired_{'dropped' if self.expired == 'drop' else 'diverted'}", ts, arrival))
            return
        self.output.append((pos, ts, key, value, None, status))

"""A record-by-record model of the foreign-key join: dicts and loops over FK1-FK3, to hold the three operators against."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Change(NamedTuple):
    """One input record of either side.

    Attributes:
        side: left or right.
        key: of its table.
        foreign_key: of a left row.
        value: payload.
    """

    side: str
    ts: int
    key: str | None
    foreign_key: str | None
    value: str | None
    is_delete: bool = False


class Output(NamedTuple):
    """One change of the result; ``right`` is the right row's payload."""

    pos: int
    ts: int
    is_delete: bool
    key: str
    foreign_key: str | None
    left: str | None
    right: str | None


@dataclass
class Table:
    """The latest change per key: by event time where ``retention_ms`` is given, else by arrival."""

    retention_ms: int | None
    clock: int | None = None
    latest: dict[str, Change] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)

    def row(self, key: str | None) -> Change | None:
        found = None if key is None else self.latest.get(key)
        return None if found is None or found.is_delete else found

    def put(self, change: Change) -> bool:
        """Take a change over; False: it does not count (T6, V1, TT2)."""
        if change.key is None:
            self.counters["null_key"] += 1
            return False
        if self.retention_ms is not None and self.clock is not None and change.ts < self.clock - self.retention_ms:
            self.counters["table_history_expired"] += 1
            return False
        self.clock = change.ts if self.clock is None else max(self.clock, change.ts)
        old = self.latest.get(change.key)
        if self.retention_ms is not None and old is not None and change.ts < old.ts:
            self.counters["not_latest"] += 1
            return False
        if self.retention_ms is None and old is not None and not old.is_delete and change.ts < old.ts:
            self.counters["out_of_order"] += 1
        self.latest[change.key] = change
        return True


class ForeignKeyModel:
    """Both tables, and which results are shown."""

    def __init__(self, type_: str, left_retention_ms: int | None, right_retention_ms: int | None) -> None:
        self.type = type_
        self.left = Table(left_retention_ms)
        self.right = Table(right_retention_ms)
        self.shown: dict[str, Output] = {}
        self.output: list[Output] = []

    def handle(self, pos: int, change: Change) -> None:
        (self._left if change.side == "left" else self._right)(pos, change)

    def _left(self, pos: int, change: Change) -> None:
        old = self.left.row(change.key)
        if not self.left.put(change) or change.key is None:
            return
        is_gone = change.is_delete or (self.type == "inner" and change.foreign_key is None)
        pointed = old.foreign_key if is_gone and old is not None else change.foreign_key
        right = self.right.row(pointed)
        ts = change.ts if right is None else max(change.ts, right.ts)
        self._show(pos, ts, change.key, None if is_gone else change, right)

    def _right(self, pos: int, change: Change) -> None:
        if not self.right.put(change):
            return
        for key in sorted(self.left.latest, key=str.encode):
            row = self.left.row(key)
            if row is not None and row.foreign_key == change.key:
                self._show(pos, max(change.ts, row.ts), key, row, self.right.row(change.key))

    def _show(self, pos: int, ts: int, key: str, left: Change | None, right: Change | None) -> None:
        if left is not None and (right is not None or self.type == "left"):
            row = Output(pos, ts, False, key, left.foreign_key, left.value, None if right is None else right.value)
            self.shown[key] = row
            self.output.append(row)
        elif self.shown.pop(key, None) is not None:
            self.output.append(Output(pos, ts, True, key, None, None, None))

"""Naive, record-by-record models of table-table joins and table filters: dictionaries, loops and the text of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.places import apart, ordinals
from engine.operators.rows.table_filter import LATE_END
from engine.plan.operators.table_table_join import TableTableJoin
from tests.batch_times import unranked

LEFT = Schema((("l.key", STRING), ("l.value", STRING)))
RIGHT = Schema((("r.key", STRING), ("r.value", STRING)))


class Step(NamedTuple):
    """A change of one side; a value of None is a tombstone. ``is_joined``: it has the position of the left change before it."""

    side: str
    key: str | None
    value: str | None
    ts: int
    is_joined: bool = False


class Told(NamedTuple):
    """One emission."""

    pos: int
    ts: int
    op: int
    key: str
    left: str | None
    right: str | None


def positions(steps: Sequence[Step]) -> list[int]:
    """Ten apart, but rows of the running table may share one; those then differ in their times or keys."""
    places: list[int] = []
    shared: set[tuple[str | None, int]] = set()
    for i, step in enumerate(steps):
        is_shared = i > 0 and step.is_joined and step.side == steps[i - 1].side == "left" and (step.key, step.ts) not in shared
        places.append(places[-1] if is_shared else (places[-1] + 10 if places else 0))
        shared = {*(shared if is_shared else ()), (step.key, step.ts)}
    return places


def starts(places: Sequence[int], cuts: set[int]) -> list[int]:
    """Where batches begin, and the end: never between rows of one position."""
    inner = {cut for cut in cuts if 0 < cut < len(places) and places[cut] != places[cut - 1]}
    return sorted({0, len(places), *inner})


def frame(steps: Sequence[tuple[int, Step]], prefix: str) -> pl.DataFrame:
    """Steps at their positions as the engine's frame; offsets count from 1000. Further rows of a record have places of their own."""
    rows = pl.DataFrame(
        {
            "_pos": [pos for pos, _ in steps],
            "_ts": [step.ts for _, step in steps],
            "_op": [int(step.value is None) for _, step in steps],
            "_key_hash": [None if step.key is None else 3 for _, step in steps],
            "_offset": [pos + 1000 for pos, _ in steps],
            f"{prefix}.key": [step.key for _, step in steps],
            f"{prefix}.value": [step.value for _, step in steps],
        },
        schema={
            "_pos": pl.Int64,
            "_ts": pl.Int64,
            "_op": pl.Int8,
            "_key_hash": pl.UInt64,
            "_offset": pl.Int64,
            f"{prefix}.key": pl.String,
            f"{prefix}.value": pl.String,
        },
    )
    return apart(unranked(rows), ordinals(rows.get_column("_pos").to_numpy()))


def movers(rows: pl.DataFrame) -> pl.DataFrame:
    """The records that rows are made of: those that move time. What else stands at their positions are further rows of them."""
    return rows.filter(ordinals(rows.get_column("_pos").to_numpy()) == 0)


def key_column(type_: str) -> str:
    """The column that holds a result row's key: that of the side which is always there."""
    return {"right": "r.key", "outer": "r.$key0"}.get(type_, "l.key")


def spec(
    type_: str, left_ms: int | None, right_ms: int | None, history: str = "latest", *, is_result_versioned: bool = False
) -> TableTableJoin:
    keys: tuple[Any, ...] = (("l.key",), ("r.key",), (key_column(type_),), left_ms, right_ms, history)
    columns = (("l.key", "l.value"), ("r.key", "r.value"))
    return TableTableJoin("r", type_, 0, *keys, *columns, is_result_versioned)  # type: ignore[arg-type]


@dataclass
class Side:
    """Every version of one table, by key and time; of an unversioned one the latest by arrival."""

    retention_ms: int | None
    clock: int | None = None
    versions: dict[str, dict[int, str | None]] = field(default_factory=dict)

    @property
    def horizon(self) -> float:
        return float("-inf") if self.clock is None or self.retention_ms is None else self.clock - self.retention_ms

    def put(self, key: str, value: str | None, ts: int, *, moves: bool = True) -> None:
        if self.retention_ms is None:
            self.versions[key] = {ts: value}
        else:
            self.versions.setdefault(key, {})[ts] = value
        if moves:
            self.clock = ts if self.clock is None else max(self.clock, ts)

    def latest(self, key: str) -> tuple[int | None, str | None]:
        versions = self.versions.get(key, {})
        return (max(versions), versions[max(versions)]) if versions else (None, None)

    def as_of(self, key: str, ts: float) -> str | None:
        versions = self.versions.get(key, {})
        found = max((other for other in versions if other <= ts), default=None)
        return None if found is None else versions[found]


@dataclass
class JoinModel:
    """TT1–TT6 over one record after the other."""

    type: str
    left_ms: int | None
    right_ms: int | None
    is_complete: bool = False
    is_result_versioned: bool = False
    told: list[Told] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    late: list[tuple[int, int]] = field(default_factory=list)
    position: int | None = None

    def __post_init__(self) -> None:
        self.sides = {"left": Side(self.left_ms), "right": Side(self.right_ms)}

    @property
    def horizon(self) -> float:
        return max(side.horizon for side in self.sides.values())

    @property
    def remembered_from(self) -> float:
        """From when on tombstones are remembered for the time of a versioned result (TT3)."""
        return min(side.horizon for side in self.sides.values() if side.retention_ms is not None)

    def change(self, pos: int, step: Step) -> None:
        own = self.sides[step.side]
        other = self.sides["right" if step.side == "left" else "left"]
        moves, self.position = pos != self.position, pos
        if step.key is None:
            self.counters["null_key"] += 1
        elif step.ts < own.horizon:
            self.counters["table_history_expired"] += 1
            self.late.append((step.ts, pos + 1000))
        elif self.is_complete:
            self._complete(pos, step, step.key, own, other, moves=moves)
        else:
            self._latest(pos, step, step.key, own, other, moves=moves)

    def result(self, left: str | None, right: str | None) -> bool:
        """Whether the join has a row."""
        needs = {"inner": left and right, "left": left, "right": right, "outer": left or right}
        return needs[self.type] is not None

    def as_of(self, key: str, ts: float) -> tuple[str | None, str | None] | None:
        """The join of the histories."""
        left, right = self.sides["left"].as_of(key, ts), self.sides["right"].as_of(key, ts)
        return (left, right) if self.result(left, right) else None

    def _latest(self, pos: int, step: Step, key: str, own: Side, other: Side, *, moves: bool) -> None:
        old_ts, old = own.latest(key)
        is_older = old_ts is not None and step.ts < old_ts
        own.put(key, step.value, step.ts, moves=moves)
        if is_older and own.retention_ms is not None:
            self.counters["not_latest"] += 1
            return
        self.counters["out_of_order"] += is_older and old is not None
        other_ts, met = other.latest(key)
        counts = other_ts is not None and (met is not None or (self.is_result_versioned and other_ts >= self.remembered_from))
        ts = max(step.ts, other_ts) if counts and other_ts is not None else step.ts
        had = self.result(*_sides(step, old, met))
        pair = _sides(step, step.value, met)
        if self.result(*pair):
            self.told.append(Told(pos, ts, 0, key, *pair))
        elif had:
            self.told.append(Told(pos, ts, 1, key, None, None))

    def _complete(self, pos: int, step: Step, key: str, own: Side, other: Side, *, moves: bool) -> None:
        end = min((ts for ts in own.versions.get(key, {}) if ts > step.ts), default=float("inf"))
        starts = sorted({step.ts, *(ts for ts in other.versions.get(key, {}) if step.ts < ts < end)})
        before = [self.as_of(key, ts) for ts in starts]
        old = own.as_of(key, step.ts)
        own.put(key, step.value, step.ts, moves=moves)
        begun = False
        for i, ts in enumerate(starts):
            now, was = self.as_of(key, ts), before[i]
            is_touched = i == 0 or old is not None or step.value is not None
            is_told = is_touched if now else (was is not None or begun)
            begun = False
            if (starts[i + 1] if i + 1 < len(starts) else end) <= self.horizon:
                self.counters["result_history_expired"] += bool(is_touched if now else was)
            elif is_told:
                self.told.append(Told(pos, ts, 0, key, *now) if now else Told(pos, ts, 1, key, None, None))
                begun = now is not None and was is None
        if begun and self.as_of(key, end) is None:
            self.told.append(Told(pos, int(end), 1, key, None, None))


def _sides(step: Step, own: str | None, other: str | None) -> tuple[str | None, str | None]:
    return (own, other) if step.side == "left" else (other, own)


@dataclass
class FilterModel:
    """F1, STRICT 6 and 7: values that begin with ``x`` fail."""

    retention_ms: int | None
    is_result_versioned: bool
    told: list[tuple[int, int, int, str, str | None]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    position: int | None = None

    def __post_init__(self) -> None:
        self.table = Side(self.retention_ms)
        self.result = Side(self.retention_ms if self.is_result_versioned else None)

    def change(self, pos: int, key: str | None, value: str | None, ts: int) -> None:
        moves, self.position = pos != self.position, pos
        if key is None:
            self.counters["null_key"] += 1
            return
        if ts < self.table.horizon:
            self.counters["table_history_expired"] += 1
            return
        self.table.put(key, value, ts, moves=moves)
        passed = None if value is None or value.startswith("x") else value
        before_ts, before = self.result.latest(key)
        end = None
        if self.result.retention_ms is not None:
            before = self.result.as_of(key, ts)
            end = min((other for other in self.result.versions.get(key, {}) if other > ts), default=None)
        elif before_ts is not None and before is not None:
            self.counters["out_of_order"] += ts < before_ts
        self.result.put(key, passed, ts)
        if passed is not None or before is not None:
            self.told.append((pos, ts, int(passed is None), key, passed))
        if passed is not None and before is None and end is not None and self.result.as_of(key, end) is None:
            self.told.append((pos, end, LATE_END, key, None))  # the delete was not worth telling when it came

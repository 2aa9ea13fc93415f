"""The join of a stream with a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from engine.frames.clocks import Wait
from engine.plan.operators.answers import ClockWait, Gauge, LatenessClock, RowBound, Setting, TimeBound
from engine.plan.operators.operator import StatefulOperator


@dataclass(frozen=True, slots=True)
class Hold:
    """J9: a released record waits on for the table's progress.

    Attributes:
        until: ``table_time``: every partition of the table was read up to the record's event time + slack; ``caught_up``: or to
            its end.
        at_most_ms: longest wait, by wall clock, since the record was buffered.
        max_rows: more than this are not held: the oldest are released.
    """

    until: Literal["table_time", "caught_up"]
    slack_ms: int
    at_most_ms: int
    max_rows: int


@dataclass(frozen=True, slots=True)
class StreamTableJoin(StatefulOperator):
    """J1–J9, J11. Reads the stage's running stream and the table input ``table_index``; ``name`` is the table's alias.

    Attributes:
        type: inner or left.
        table_index: ``Input.index`` of the table.
        stream_key: qualified columns of the stream side that equal the table's key, in the key's order.
        table_key: qualified key columns of the table.
        history_retention_ms: R, or None for an unversioned table.
        grace_ms: None = looked up on arrival (J2); 0 and more = J3.
        late: what happens to a late stream record; only judged when ``grace_ms`` is not None.
        expired: what a left join does when it meets expired history.
        table_columns: qualified table columns carried to the output. Joining also adds ``<name>.$match`` (string).
        hold: the further wait on the table's progress, or None.
    """

    keeps_offset = True
    keeps_hash = True
    takes_replays = True
    part = "joins"

    type: Literal["inner", "left"]
    table_index: int
    stream_key: tuple[str, ...]
    table_key: tuple[str, ...]
    history_retention_ms: int | None
    grace_ms: int | None
    late: Literal["join", "drop", "divert"]
    expired: Literal["null", "drop", "divert"]
    table_columns: tuple[str, ...]
    hold: Hold | None = None

    def state_part(self) -> Self:
        """See ``Operator``: whether there is a grace, and a hold, decides what is kept."""
        grace_ms = None if self.grace_ms is None else 0
        hold = None if self.hold is None else Hold("table_time", 0, 0, 0)
        return replace(self, grace_ms=grace_ms, late="join", expired="null", hold=hold)

    def renumbered(self, index_of: Mapping[int, int]) -> Self:
        return replace(self, table_index=index_of[self.table_index])

    @property
    def waits(self) -> tuple[Wait, ...]:
        return (Wait(self.grace_ms),) if self.grace_ms else ()

    @property
    def clock_wait(self) -> ClockWait | None:
        """See ``Operator``: of the hold."""
        if self.hold is None:
            return None
        slack_ms, until_caught_up = self.hold.slack_ms, self.hold.until == "caught_up"
        return ClockWait(
            self.hold.at_most_ms, False, awaited_table=self.table_index, slack_ms=slack_ms, until_caught_up=until_caught_up
        )

    @property
    def looked_up_table(self) -> int:
        return self.table_index

    @property
    def awaited_table(self) -> int | None:
        return None if self.hold is None else self.table_index

    def gauge(self, stage: int) -> Gauge | None:
        """See ``Operator``; without a grace nothing is judged."""
        if self.grace_ms is None:
            return None
        return Gauge(f"{self.name}.grace", stage, None, self.name, self.name, self.stream_key, grace_ms=self.grace_ms)

    def setting(self, source: str | None, gauge: str) -> Setting:
        return Setting("join_grace", self.name, source, gauge, self.grace_ms, "J3")

    @property
    def entry_clock(self) -> LatenessClock | None:
        return None if self.grace_ms is None else LatenessClock(self.name, self.grace_ms)

    def side_clock(self, input_index: int) -> LatenessClock | None:
        return LatenessClock(f"{self.name}.table", self.history_retention_ms) if input_index == self.table_index else None

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.stream_key, self.table_key, strict=True))

    @property
    def always_equal(self) -> tuple[tuple[str, str], ...]:
        return self.equalities if self.type == "inner" else ()

    @property
    def time_bounds(self) -> tuple[TimeBound, ...]:
        grace = () if self.grace_ms is None else (TimeBound("/grace", "records_let_go", self.name, self.name, self.grace_ms),)
        if self.hold is None:
            return grace
        return (*grace, TimeBound("/hold/at_most", "records_let_go", f"{self.name}.hold", None, self.hold.at_most_ms))

    @property
    def row_bounds(self) -> tuple[RowBound, ...]:
        if self.hold is None:
            return ()
        return (RowBound("/hold/max_rows", "records_let_go", f"{self.name}.hold", self.hold.max_rows),)

"""What operators answer: where lateness is measured, what an edit in place does at once, which window holds a time. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a record may be behind before a grace counts.

    Attributes:
        slack_ms: of every record; of a stream-stream join that of the left side.
        right_slack_ms: of the right side of a stream-stream join, else None.
        size_ms: the record's first window lasts so long and counts from its end (W2), else None.
        advance_ms: the windows' distance.
    """

    slack_ms: int = 0
    right_slack_ms: int | None = None
    size_ms: int | None = None
    advance_ms: int = 1


@dataclass(frozen=True, slots=True)
class Gauge:
    """One measure of how late records come.

    Attributes:
        name: the input's alias; ``<operator>.grace`` of what is measured before an operator.
        stage: where.
        input_index: the input whose records are measured as they enter the stage, else None.
        operator: the operator before which they are measured, else None.
        clock: the clock of an operator that runs with this input and can be ahead of it after a silence (T10), else None.
        columns: qualified columns that must not be null: such records move no clock (T6, J7).
        allowance: see there.
        grace_ms: a value the answer must be exact for beside the usual ones, None for no such.
        counts_deletes: a table's deletes are judged like its rows; a stream's are dropped (T6).
    """

    name: str
    stage: int
    input_index: int | None
    operator: str | None
    clock: str | None
    columns: tuple[str, ...] = ()
    allowance: Allowance = Allowance()
    grace_ms: int | None = None
    counts_deletes: bool = False


SettingKind = Literal["join_grace", "window_grace", "history_retention"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that a gauge advises on.

    Attributes:
        kind: which one.
        operator: the join's or the aggregation's name, where the setting is the query's.
        input: alias of the input whose records it concerns; None: of no input directly, an operator stands between.
        gauge: name of the gauge.
        current_ms: its value, None where it is not set.
        rule: rule of semantics.md that judges.
        is_exact: False: some of the records that count as late may still find an open session.
    """

    kind: SettingKind
    operator: str | None
    input: str | None
    gauge: str
    current_ms: int | None
    rule: str
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class LatenessClock:
    """A clock that may be ahead of the records that enter a stage.

    Attributes:
        name: of the clock.
        setting_ms: the setting that judges by it, None where it is not set.
    """

    name: str
    setting_ms: int | None


WaitingKind = Literal["records_let_go", "windows_closed", "updates_let_go", "buffer_overrun"]
"""What becomes of what waits when an edit moves a bound: it is emitted, it closes, or the buffer is too full for its new bound."""


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A setting that says until when an operator waits: what is at or before ``clock - delay_ms`` goes.

    Attributes:
        setting: its pointer inside the operator's part of the definition.
        kind: what becomes of what waits.
        waiting: under which name the operator reports what waits.
        clock: None: the wall clock.
        delay_ms: by how much the clock must be behind.
    """

    setting: str
    kind: WaitingKind
    waiting: str
    clock: str | None
    delay_ms: int


@dataclass(frozen=True, slots=True)
class ClockWait:
    """A wait by the wall clock: it hands on the time that stood there so long ago (T11).

    Attributes:
        limit_ms: how long a row waits at most.
        is_fixed_at_start: an edit of the limit leaves what waits as it is; else the new limit counts for it, too.
        needs_records: it looks at the clock only in batches with records of the sources.
        awaited_table: ``Input.index`` of the table that lets a row go as soon as it has been read so far (J9); None: only the clock does.
        slack_ms: the table must have been read so much further.
        until_caught_up: the end of the table's partitions counts as far enough.
    """

    limit_ms: int
    is_fixed_at_start: bool
    needs_records: bool = False
    awaited_table: int | None = None
    slack_ms: int = 0
    until_caught_up: bool = False


@dataclass(frozen=True, slots=True)
class RowBound:
    """A setting that says how many rows may wait in a task; see ``TimeBound``. ``max_rows`` None: any number."""

    setting: str
    kind: WaitingKind
    waiting: str
    max_rows: int | None


@dataclass(frozen=True, slots=True)
class Span:
    """The window of a time, as far as it follows from the time.

    Attributes:
        start_ms: begin; of windows that depend on other records the earliest there can be.
        end_ms: end, the latest there can be.
        closes_at_ms: the stream time from which the first window of the time is closed.
        is_certain: start and end are those of one window.
        can_grow: records that come may move its end.
    """

    start_ms: int
    end_ms: int
    closes_at_ms: int
    is_certain: bool = True
    can_grow: bool = False

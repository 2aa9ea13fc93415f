"""Suppression: holding a table's changes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from engine.frames.clocks import Wait
from engine.plan.operators.answers import ClockWait, RowBound, TimeBound
from engine.plan.operators.operator import StatefulOperator


@dataclass(frozen=True, slots=True)
class SuppressBuffer:
    """S4: bounds of a suppress buffer, and what happens when one is passed.

    Attributes:
        max_rows: entries, None: no bound.
        max_bytes: Arrow-encoded key and value bytes, None: no bound.
    """

    max_rows: int | None
    max_bytes: int | None
    when_full: Literal["emit_early", "stop"]


@dataclass(frozen=True, slots=True)
class WindowClosing:
    """When a window's row can no longer change (W5): the stream time that made its changes is at its end plus ``delay_ms``.

    Attributes:
        end: the key column (timestamp) that holds the window's end.
    """

    end: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Suppression(StatefulOperator):
    """What every suppression has. Columns pass unchanged.

    Attributes:
        key: columns of the table's key, window bounds included.
        limit_ms: d.
        buffer: None: no bound.
    """

    part = "suppress"

    key: tuple[str, ...]
    limit_ms: int
    buffer: SuppressBuffer | None

    @property
    def stops_when_full(self) -> bool:
        """Whether it waits, without taking records, for the query for the command to go on (S4)."""
        return self.buffer is not None and self.buffer.when_full == "stop"

    @property
    def needs_ticks(self) -> bool:
        return self.stops_when_full

    @property
    def row_bounds(self) -> tuple[RowBound, ...]:
        is_early = self.buffer is not None and self.buffer.when_full == "emit_early"
        max_rows = None if self.buffer is None else self.buffer.max_rows
        return (RowBound("/buffer", "updates_let_go" if is_early else "buffer_overrun", self.name, max_rows),)


@dataclass(frozen=True, slots=True)
class TimeLimitSuppression(Suppression):
    """S1: holds a table's changes back by event time.

    Attributes:
        closing: of a windowed table: when a key may be forgotten; None: no key closes.
    """

    edited_in_place: ClassVar[Mapping[str, Any]] = {"limit_ms": 0, "buffer": None, "closing": None}

    closing: WindowClosing | None = None

    @property
    def waits(self) -> tuple[Wait, ...]:
        return (Wait(self.limit_ms),) if self.limit_ms else ()

    @property
    def time_bounds(self) -> tuple[TimeBound, ...]:
        return (TimeBound("/limit", "updates_let_go", self.name, self.name, self.limit_ms),)


@dataclass(frozen=True, slots=True)
class WallClockSuppression(Suppression):
    """S2 (KIP-424): holds a table's changes back by wall clock. See ``TimeLimitSuppression``.

    Attributes:
        is_event_driven: the KIP to the letter: looks at the clock only when records arrive.
    """

    edited_in_place: ClassVar[Mapping[str, Any]] = {"limit_ms": 0, "buffer": None, "is_event_driven": False, "closing": None}

    is_event_driven: bool
    closing: WindowClosing | None = None

    @property
    def clock_wait(self) -> ClockWait | None:
        return ClockWait(self.limit_ms, is_fixed_at_start=True, needs_records=self.is_event_driven) if self.limit_ms else None

    @property
    def needs_ticks(self) -> bool:
        return not self.is_event_driven or self.stops_when_full

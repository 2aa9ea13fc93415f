"""Aggregations in windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from engine.frames.clocks import Wait
from engine.plan.operators.aggregation import AggregateColumn, Aggregation
from engine.plan.operators.answers import Allowance, Gauge, Setting, Span, TimeBound

Emit = Literal["changes", "final", "corrections"]
"""Every change; each closed window once; or S6: a first result at the window's end, then corrections, then the final one."""


class WindowedAggregation(Aggregation):
    """W1, W5–W7: what every aggregation in windows has.

    Attributes:
        emit: when results are shown.
        rule: which rule judges late records.
        is_late_surely: False: some records that count as late may still find an open window.

    Output columns: the group's, ``window_start`` and ``window_end`` (timestamp), the aggregates', and with ``corrections`` also ``$state``
    (string: preliminary, correction, final).
    """

    __slots__ = ()

    part = "window"
    edited_in_place: ClassVar[Mapping[str, Any]] = {"is_folded": False, "grace_ms": 0}
    rule: ClassVar[str]
    is_late_surely: ClassVar[bool] = True

    grace_ms: int
    emit: Emit

    @property
    def is_final(self) -> bool:
        return self.emit == "final"

    def folded(self, *, is_read: bool) -> Self:
        return super().folded(is_read=is_read) if self.emit == "changes" else self

    def showing_changes(self) -> Self:
        """Return the same windows so that they show every change; of a batch the last one may stand for all."""
        return replace(self, emit="changes", is_folded=True)  # type: ignore[call-arg]  # fields of every such aggregation

    @property
    def closing_delay_ms(self) -> int:
        """From which stream time on a window is closed (W2), or behind which one (W3, W4): so long after its end."""
        raise NotImplementedError

    @property
    def closes_behind_ms(self) -> int:
        return self.grace_ms

    @property
    def allowance(self) -> Allowance:
        """What a record may be behind before the grace counts."""
        raise NotImplementedError

    def span_of(self, at_ms: int) -> Span:
        raise NotImplementedError

    def is_late(self, at_ms: int, now_ms: int) -> bool:
        """Whether a record of this time is late for every window at a stream time (W2–W4)."""
        raise NotImplementedError

    def gauge(self, stage: int) -> Gauge:
        return Gauge(f"{self.name}.grace", stage, None, self.name, self.name, self.stored_by, self.allowance, self.grace_ms)

    def setting(self, source: str | None, gauge: str) -> Setting:
        return Setting("window_grace", self.name, source, gauge, self.grace_ms, self.rule, self.is_late_surely)

    @property
    def time_bounds(self) -> tuple[TimeBound, ...]:
        return (TimeBound("/grace", "windows_closed", self.name, self.name, self.closing_delay_ms),)


@dataclass(frozen=True, slots=True)
class WindowAggregation(WindowedAggregation):
    """W2: hopping windows; tumbling is hopping with ``advance_ms == size_ms``."""

    rule = "W2"

    group: tuple[tuple[str, str], ...]
    size_ms: int
    advance_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Emit
    having: str | None = None
    is_folded: bool = False

    @property
    def closing_delay_ms(self) -> int:
        return self.grace_ms

    @property
    def allowance(self) -> Allowance:
        return Allowance(size_ms=self.size_ms, advance_ms=self.advance_ms)

    def span_of(self, at_ms: int) -> Span:
        start = max((at_ms - self.size_ms) // self.advance_ms + 1, 0) * self.advance_ms
        return Span(start, start + self.size_ms, start + self.size_ms + self.grace_ms)

    @property
    def waits(self) -> tuple[Wait, ...]:
        return () if self.emit == "changes" else (Wait(self.size_ms + self.grace_ms, self.advance_ms),)

    def is_late(self, at_ms: int, now_ms: int) -> bool:
        last_end = at_ms // self.advance_ms * self.advance_ms + self.size_ms
        return last_end + self.grace_ms <= now_ms


@dataclass(frozen=True, slots=True)
class SessionAggregation(WindowedAggregation):
    """W3: sessions of records at most ``gap_ms`` apart; bounds are inclusive."""

    rule = "W3"
    is_late_surely = False

    group: tuple[tuple[str, str], ...]
    gap_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Emit
    having: str | None = None
    is_folded: bool = False

    @property
    def closing_delay_ms(self) -> int:
        return self.gap_ms + self.grace_ms + 1

    @property
    def allowance(self) -> Allowance:
        return Allowance(self.gap_ms)

    def span_of(self, at_ms: int) -> Span:
        closes_at_ms = at_ms + self.closing_delay_ms
        return Span(at_ms - self.gap_ms, at_ms + self.gap_ms, closes_at_ms, is_certain=False, can_grow=True)

    @property
    def waits(self) -> tuple[Wait, ...]:
        return (Wait(self.gap_ms if self.emit == "changes" else self.gap_ms + self.grace_ms),)

    def is_late(self, at_ms: int, now_ms: int) -> bool:
        return at_ms + self.closing_delay_ms <= now_ms


@dataclass(frozen=True, slots=True)
class SlidingAggregation(WindowedAggregation):
    """W4: windows of ``difference_ms`` that slide with the records; bounds are inclusive."""

    rule = "W4"

    group: tuple[tuple[str, str], ...]
    difference_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Emit
    having: str | None = None
    is_folded: bool = False

    @property
    def closing_delay_ms(self) -> int:
        return self.grace_ms + 1

    @property
    def allowance(self) -> Allowance:
        return Allowance(self.difference_ms)

    def span_of(self, at_ms: int) -> Span:
        return Span(max(at_ms - self.difference_ms, 0), at_ms, at_ms + self.closing_delay_ms)

    @property
    def waits(self) -> tuple[Wait, ...]:
        return () if self.emit == "changes" else (Wait(self.difference_ms + self.grace_ms),)

    def is_late(self, at_ms: int, now_ms: int) -> bool:
        return at_ms + self.difference_ms + self.closing_delay_ms <= now_ms

"""What windows and suppression say: open until, final, late (W1–W6, S1, S2)."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.explaining.facts import ResultFact, Step
from app.domain.explaining.sentences import shown
from app.domain.explaining.subject import Desk, Subject, Waiting
from engine.core.windows.window_grid import OUT_OF_RANGE
from engine.plan.model import (
    SessionAggregation,
    SlidingAggregation,
    TimeLimitSuppression,
    WallClockSuppression,
    WindowAggregation,
    WindowedAggregation,
)


@dataclass(frozen=True, slots=True)
class Span:
    """The window of a time, as far as it follows from the time.

    Attributes:
        start_ms: begin; of windows that depend on other records the earliest there can be.
        end_ms: end, the latest there can be.
        closes_at_ms: the stream time from which the first window of the time is closed.
        is_certain: start and end are those of one window.
    """

    start_ms: int
    end_ms: int
    closes_at_ms: int
    is_certain: bool


def span_of(spec: WindowedAggregation, at_ms: int) -> Span:
    """Return the first window that holds a time: the one that closes first."""
    if isinstance(spec, WindowAggregation):
        start = max((at_ms - spec.size_ms) // spec.advance_ms + 1, 0) * spec.advance_ms
        return Span(start, start + spec.size_ms, start + spec.size_ms + spec.grace_ms, is_certain=True)
    if isinstance(spec, SessionAggregation):
        return Span(at_ms - spec.gap_ms, at_ms + spec.gap_ms, at_ms + spec.gap_ms + spec.grace_ms + 1, is_certain=False)
    return Span(max(at_ms - spec.difference_ms, 0), at_ms, at_ms + spec.grace_ms + 1, is_certain=True)


def explain_windows(desk: Desk, spec: WindowedAggregation, subject: Subject) -> Step:
    """Say whether the window is open, final, or was closed before the record came."""
    span, now_ms = span_of(spec, subject.at_ms), subject.clock(spec.name, desk.task)
    row = _row(subject, span)
    if row is not None and isinstance(spec, SessionAggregation) and row.window_end_ms is not None:
        end_ms = row.window_end_ms
        span = Span(row.window_start_ms or 0, end_ms, end_ms + spec.gap_ms + spec.grace_ms + 1, is_certain=True)
    clock = Waiting("stream_time", now_ms, span.closes_at_ms)
    window = f"The window from {shown(span.start_ms)} to {shown(span.end_ms)}" if span.is_certain else "The session"
    is_closed = now_ms is not None and now_ms >= span.closes_at_ms
    if (beyond := subject.late_at(spec.name, (OUT_OF_RANGE,))) is not None and row is None:
        sentence = "A window of this time would end later than the year 9999, so it takes no record (T8)."
        return desk.step("late", sentence, is_blocking=True, reason=beyond.reason)
    fact = subject.late_at(spec.name, ("window_closed",))
    if fact is not None:
        sentence = (
            f"{window} had closed when the record came: stream time was {shown(fact.stream_time_ms)}, and it closes at "
            f"{shown(span.closes_at_ms)}."
        )
        return desk.step(
            "late", sentence, is_blocking=True, clock=Waiting("stream_time", fact.stream_time_ms, None), reason=fact.reason
        )
    if is_closed and row is not None:
        bounds = (row.event_time_ms, None)
        sentence = f"{window} is final: it closed when stream time reached {shown(span.closes_at_ms)}."
        return desk.step("final", sentence, clock=clock, version=bounds)
    if is_closed and _is_refused(spec, subject.at_ms, now_ms or 0) and not subject.exists:
        sentence = f"{window} is closed, and no record of this key was in it: one that came now would be late, stream time is {shown(now_ms)}."
        return desk.step("late", sentence, is_blocking=True, clock=clock, reason="window_closed")
    if is_closed:
        having = ", or it does not fulfil `having`" if spec.having is not None else ""
        sentence = f"{window} is closed and has no row: it was removed by its retention, what was in it has a null key or was late{having}."
        return desk.step("unknown", sentence, is_blocking=True, clock=clock)
    return _open(desk, spec, subject, span, row)


def _open(desk: Desk, spec: WindowedAggregation, subject: Subject, span: Span, row: ResultFact | None) -> Step:
    now_ms = subject.clock(spec.name, desk.task)
    least = "" if span.is_certain and not isinstance(spec, SessionAggregation) else "at least "
    until = f"{least}until stream time reaches {shown(span.closes_at_ms)}; it is at {shown(now_ms)}"
    clock = Waiting("stream_time", now_ms, span.closes_at_ms)
    if row is not None:
        sentence = f"The row is that of {shown(row.event_time_ms)}; its window is open and may change {until}."
        return desk.step("window_open_until", sentence, clock=clock, version=(row.event_time_ms, None))
    if spec.emit == "final" or not subject.exists:
        return desk.step("window_open_until", f"The window is open {until}.", is_blocking=True, clock=clock)
    if spec.emit == "corrections" and (now_ms is None or now_ms < span.end_ms):
        sentence = (
            f"The first result comes when stream time reaches the window's end {shown(span.end_ms)}; it is at {shown(now_ms)}."
        )
        return desk.step("window_open_until", sentence, is_blocking=True, clock=Waiting("stream_time", now_ms, span.end_ms))
    having = spec.having is not None
    sentence = f"The window is open {until}; it has no row{' that fulfils `having`' if having else ''} yet."
    return desk.step("window_open_until", sentence, is_blocking=having, clock=clock, reason="having" if having else None)


def _row(subject: Subject, span: Span) -> ResultFact | None:
    """Return the row of the window; where it is not certain which window, that of the one that ends last."""
    rows = [row for row in subject.results if row.window_start_ms is not None and row.window_end_ms is not None]
    if not span.is_certain:
        return max(rows, key=lambda row: row.window_end_ms or 0, default=None)
    return next((row for row in rows if (row.window_start_ms, row.window_end_ms) == (span.start_ms, span.end_ms)), None)


def _is_refused(spec: WindowedAggregation, at_ms: int, now_ms: int) -> bool:
    """Whether a record of this time is late for every window (W2–W4)."""
    if isinstance(spec, SlidingAggregation):
        return at_ms + spec.difference_ms < now_ms - spec.grace_ms
    if isinstance(spec, SessionAggregation):
        return at_ms + spec.gap_ms + spec.grace_ms < now_ms
    last_end = at_ms // spec.advance_ms * spec.advance_ms + spec.size_ms
    return last_end + spec.grace_ms <= now_ms


def explain_suppression(desk: Desk, spec: TimeLimitSuppression | WallClockSuppression, subject: Subject) -> Step:
    """Say how long an update is held back (S1, S2)."""
    if isinstance(spec, TimeLimitSuppression):
        # An earlier update of the key that still waits has fixed the time for all of them (S1): this one is the latest it can be.
        now_ms, until_ms = subject.clock(spec.name, desk.task), subject.at_ms + spec.limit_ms
        if now_ms is not None and now_ms >= until_ms:
            return desk.step("passed", f"Its wait had ended when stream time reached {shown(until_ms)}.")
        sentence = f"Updates wait until stream time reaches {shown(until_ms)} at the latest; it is at {shown(now_ms)}."
        clock = Waiting("stream_time", now_ms, until_ms)
        return desk.step("buffered_until", sentence, is_blocking=not subject.results, clock=clock, reason="suppress")
    buffered = subject.facts.committed.buffered.get(spec.name, {})
    waiting = buffered.get(str(desk.task), 0) if desk.task is not None else sum(buffered.values())
    if not waiting:
        return desk.step("passed", "Nothing waits for the wall clock.")
    wakes = [ms for task, ms in subject.facts.committed.wakes.items() if _is_of(task, desk)]
    due_ms = min(wakes, default=None)
    sentence = f"{waiting} updates of its task wait for the wall clock; the first is due at {shown(due_ms)}."
    clock = Waiting("wall_clock", None, due_ms)
    return desk.step("buffered_until", sentence, is_blocking=not subject.results, clock=clock, reason="suppress")


def _is_of(task: str, desk: Desk) -> bool:
    stage, _, ordinal = task.partition(":")
    return stage == str(desk.stage.index) and (desk.task is None or ordinal == str(desk.task))

"""Explains windows and suppression: open until, final, late (W1–W6, S1, S2)."""

from __future__ import annotations

from dataclasses import replace

from app.explain.rules.facts import ResultFact, Step
from app.explain.rules.subject import Desk, Subject, Waiting
from app.http.values import shown
from engine.operators.windows.window_grid import OUT_OF_RANGE
from engine.plan.operators.answers import Span
from engine.plan.operators.suppression import TimeLimitSuppression, WallClockSuppression
from engine.plan.operators.windows import WindowedAggregation


def explain_windows(desk: Desk, spec: WindowedAggregation, subject: Subject) -> Step:
    """Explain whether the window is open, final, or was closed before the record arrived."""
    span, now_ms = spec.span_of(subject.at_ms), subject.clock(spec.name)
    row = _row(subject, span)
    if row is not None and not span.is_certain and row.window_end_ms is not None:
        end_ms = row.window_end_ms
        span = replace(
            span, start_ms=row.window_start_ms or 0, end_ms=end_ms, closes_at_ms=end_ms + spec.closing_delay_ms, is_certain=True
        )
    clock = Waiting("stream_time", now_ms, span.closes_at_ms)
    window = f"The window from {shown(span.start_ms)} to {shown(span.end_ms)}" if span.is_certain else "The session"
    is_closed = now_ms is not None and now_ms >= span.closes_at_ms
    if (out_of_range := subject.late_at(spec.name, (OUT_OF_RANGE,))) is not None and row is None:
        sentence = "A window of this time would end later than the year 9999, so it accepts no record (T8)."
        return desk.step("late", sentence, is_blocking=True, reason=out_of_range.reason)
    fact = subject.late_at(spec.name, ("window_closed",))
    if fact is not None:
        sentence = (
            f"{window} had closed when the record arrived: stream time was {shown(fact.stream_time_ms)}, and it closes at "
            f"{shown(span.closes_at_ms)}."
        )
        return desk.step(
            "late", sentence, is_blocking=True, clock=Waiting("stream_time", fact.stream_time_ms, None), reason=fact.reason
        )
    if is_closed and row is not None:
        version = (row.event_time_ms, None)
        sentence = f"{window} is final: it closed when stream time reached {shown(span.closes_at_ms)}."
        return desk.step("final", sentence, clock=clock, version=version)
    if is_closed and spec.is_late(subject.at_ms, now_ms or 0) and not subject.exists:
        sentence = f"{window} is closed, and had no record of this key. A record that arrived now would be late: stream time is {shown(now_ms)}."
        return desk.step("late", sentence, is_blocking=True, clock=clock, reason="window_closed")
    if is_closed and not subject.is_recognised:
        sentence = f"{window} is closed. Whether it has a row is not known, because the row's key is not known completely."
        return desk.step("unknown", sentence, clock=clock)
    if is_closed:
        having = ", or it does not fulfil `having`" if spec.having is not None else ""
        sentence = (
            f"{window} is closed and has no row: its retention removed the row, its records have a null key or were late{having}."
        )
        return desk.step("unknown", sentence, is_blocking=True, clock=clock)
    return _open(desk, spec, subject, span, row)


def _open(desk: Desk, spec: WindowedAggregation, subject: Subject, span: Span, row: ResultFact | None) -> Step:
    now_ms = subject.clock(spec.name)
    least = "at least " if span.can_grow else ""
    until = f"{least}until stream time reaches {shown(span.closes_at_ms)}; it is at {shown(now_ms)}"
    clock = Waiting("stream_time", now_ms, span.closes_at_ms)
    if row is not None:
        sentence = f"The row is from {shown(row.event_time_ms)}; its window is open and may change {until}."
        return desk.step("window_open_until", sentence, clock=clock, version=(row.event_time_ms, None))
    if spec.emit == "final" or not subject.exists:
        return desk.step("window_open_until", f"The window is open {until}.", is_blocking=True, clock=clock)
    if spec.emit == "corrections" and (now_ms is None or now_ms < span.end_ms):
        sentence = (
            f"The first result comes when stream time reaches the window's end {shown(span.end_ms)}; it is at {shown(now_ms)}."
        )
        return desk.step("window_open_until", sentence, is_blocking=True, clock=Waiting("stream_time", now_ms, span.end_ms))
    if not subject.is_recognised:
        return desk.step("window_open_until", f"The window is open {until}.", clock=clock)
    having = spec.having is not None
    sentence = f"The window is open {until}; it has no row{' that fulfils `having`' if having else ''} yet."
    return desk.step("window_open_until", sentence, is_blocking=having, clock=clock, reason="having" if having else None)


def _row(subject: Subject, span: Span) -> ResultFact | None:
    """Return the row of the window; if the window is uncertain, the row of the one that ends last."""
    rows = [row for row in subject.results if row.window_start_ms is not None and row.window_end_ms is not None]
    if not span.is_certain:
        return max(rows, key=lambda row: row.window_end_ms or 0, default=None)
    return next((row for row in rows if (row.window_start_ms, row.window_end_ms) == (span.start_ms, span.end_ms)), None)


def explain_time_limit(desk: Desk, spec: TimeLimitSuppression, subject: Subject) -> Step:
    """Explain until which stream time an update is held back (S1)."""
    # An earlier update of the key that still waits has set the time for all of them (S1): this is the latest possible one.
    now_ms, until_ms = subject.clock(spec.name), subject.at_ms + spec.limit_ms
    if now_ms is not None and now_ms >= until_ms:
        return desk.step("passed", f"Its wait had ended when stream time reached {shown(until_ms)}.")
    sentence = f"Updates wait until stream time reaches {shown(until_ms)} at the latest; it is at {shown(now_ms)}."
    clock = Waiting("stream_time", now_ms, until_ms)
    return desk.step("buffered_until", sentence, is_blocking=not subject.results, clock=clock, reason="suppress")


def explain_wall_clock(desk: Desk, spec: WallClockSuppression, subject: Subject) -> Step:
    """Explain until when the wall clock holds updates back (S2)."""
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

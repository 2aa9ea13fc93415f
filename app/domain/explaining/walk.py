"""Walking a plan: one verdict per operator, in the order of T9; the first that blocks is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.domain.explaining import columns
from app.domain.explaining.conditions import holds
from app.domain.explaining.explainers import EXPLAINERS
from app.domain.explaining.facts import Explanation, Facts, Question, Record, Step
from app.domain.explaining.sentences import shown
from app.domain.explaining.subject import Desk, Subject
from engine.definition.types import Schema
from engine.plan.model import Input, Plan

# What says the most of a row that is there, or will be; "shown" and "passed" only say that nothing is wrong.
_TELLING = ("joined_version", "no_version", "expired", "final", "window_open_until", "late", "buffered_until")


def explain(plan: Plan, question: Question, facts: Facts) -> Explanation:
    """Say why there is no row yet for a key and a time, or why this one."""
    question = replace(question, values=columns.entering(plan, question.values))
    source = columns.first_input(plan)
    found, record = _read(plan, source, question, facts)
    steps = [found] if found.is_blocking else [found, *_steps(plan, question, record, facts)]
    blocking = next((step for step in steps if step.is_blocking), None)
    if blocking is not None:
        return Explanation(blocking, steps[: steps.index(blocking) + 1], record)
    last = steps[-1]
    telling = [step for step in steps if step.code in _TELLING]
    return Explanation(last if last.code == "unknown" or not telling else telling[-1], steps, record)


def _steps(plan: Plan, question: Question, record: Record | None, facts: Facts) -> Iterator[Step]:
    source = columns.first_input(plan)
    at_ms = question.at_ms if record is None else record.event_time_ms
    values, asked = columns.with_time(source, question.values, at_ms), question.values
    if record is not None:
        values |= {f"{source.alias}.{name}": value for name, value in record.values.items()}
        # Of a place no values are asked for; another key's late record of the same time must not answer for this one.
        asked = asked or {name: values[name] for name in columns.hashed_by(source) if name in values}
    low, high = _range(plan, at_ms)
    shown_values = columns.result_values(plan, values)
    # Without a value one record of a stream is as good as any other of that time.
    is_recognised = bool(shown_values) or plan.output.kind == "table"
    late, results = facts.late(asked, low, high), facts.results(shown_values, low, high) if is_recognised else ()
    subject = Subject(plan, facts, at_ms, columns.entering(plan, values), record, late, results)
    for stage in plan.stages:
        task = subject.task(stage)
        for operator in stage.operators:
            verdict = EXPLAINERS[type(operator)](Desk(stage, operator, task), operator, subject)
            yield from verdict.steps
            subject = replace(subject, values=columns.after(plan, operator, {**subject.values, **verdict.values}))
    yield _result(plan, subject)


def _read(plan: Plan, source: Input, question: Question, facts: Facts) -> tuple[Step, Record | None]:
    """Say whether the record is in the feed, has been read, and is the query's; the record goes along where there is one."""
    own = {
        name.removeprefix(f"{source.alias}."): value
        for name, value in question.values.items()
        if name.startswith(f"{source.alias}.")
    }
    if question.place is not None:
        found = facts.record_at(source, question.place)
        candidates = [] if found is None else [found]
        is_complete = True
    else:
        searched = facts.records(source, own, *_range(plan, question.at_ms))
        candidates, is_complete = _nearest(searched.records, question.at_ms), searched.is_complete
    name, record = source.relation.name, next((each for each in candidates if each.is_read), None)
    if record is not None and not _belongs(source, record):
        return Step(
            "filtered",
            is_blocking=True,
            sentence=f"The record of {_of(name, record)} does not fulfil `from.where`.",
            kind="source",
            place=record.place,
        ), record
    if record is not None and isinstance(source.start, int) and record.event_time_ms < source.start:
        sentence = (
            f"The record of {_of(name, record)} from {shown(record.event_time_ms)} was left out: the query starts at "
            f"{shown(source.start)}."
        )
        return Step("filtered", is_blocking=True, sentence=sentence, kind="source", reason="start", place=record.place), record
    if record is not None:
        sentence = f"The record of {_of(name, record)} from {shown(record.event_time_ms)} has been read."
        return Step("passed", is_blocking=False, sentence=sentence, kind="source", place=record.place), record
    if candidates:
        nearest = candidates[0]
        sentence = f"The record of {_of(name, nearest)} from {shown(nearest.event_time_ms)} is in the feed and not read yet."
        return Step("not_read_yet", is_blocking=True, sentence=sentence, kind="source", place=candidates[0].place), candidates[0]
    rejects = facts.rejects(source, own, question.place)
    if rejects:
        sentence = f"The record was rejected when {name} took it: {rejects[0].detail}."
        return Step(
            "rejected", is_blocking=True, sentence=sentence, kind="source", reason=rejects[0].reason, place=rejects[0].place
        ), None
    if question.place is not None:
        owner = name if question.place.part is None else question.place.part
        sentence = f"{owner} has no record at partition {question.place.partition}, offset {question.place.offset}, or not yet."
        return Step("unknown", is_blocking=True, sentence=sentence, kind="source", place=question.place), None
    return _not_found(plan, source, facts, is_complete=is_complete), None


def _not_found(plan: Plan, source: Input, facts: Facts, *, is_complete: bool) -> Step:
    name, lag = source.relation.name, sum(facts.committed.lag(lane.feed.name) for lane in plan.lanes_of(source))
    if not is_complete and lag:
        sentence = f"{lag} records of {name} are not read yet; whether one of them is meant is not known."
        return Step("not_read_yet", is_blocking=True, sentence=sentence, kind="source")
    parts = [lane.source_name for lane in plan.lanes_of(source)[1:]]
    whole = f"{name} with its parts {', '.join(parts)}" if parts else name
    where = f"The feed of {whole} cannot be searched that far" if not is_complete else f"{whole} has no such record"
    return Step(
        "unknown", is_blocking=False, sentence=f"{where}; what follows is what would become of one that came now.", kind="source"
    )


def _of(name: str, record: Record) -> str:
    return name if record.place.part is None else f"{name}, in its part {record.place.part},"


def _belongs(source: Input, record: Record) -> bool:
    own = Schema(source.relation.columns.items())
    return source.where is None or holds(source.where, own, record.values) is not False


def _result(plan: Plan, subject: Subject) -> Step:
    output = plan.output
    if subject.results:
        latest = max(subject.results, key=lambda row: row.event_time_ms)
        what = "row" if output.kind == "table" else "record"
        sentence = f"{output.name} has the {what}, from {shown(latest.event_time_ms)}."
        return Step("shown", is_blocking=False, sentence=sentence, kind="result", version_ms=latest.event_time_ms)
    if not subject.exists:
        return Step(
            "unknown",
            is_blocking=False,
            sentence=f"Nothing is known of such a record, and {output.name} has nothing of it.",
            kind="result",
        )
    sentence = (
        f"Nothing holds it back any more; {output.name} shows nothing of this key and time that its select lets one recognise."
    )
    return Step("passed", is_blocking=False, sentence=sentence, kind="result")


def _range(plan: Plan, at_ms: int) -> tuple[int, int]:
    """Return the event times of the records that a question about a time is about: those of its window."""
    for stage in plan.stages:
        for operator in stage.operators:
            span = operator.span_of(at_ms)
            if span is not None:
                return min(span.start_ms, at_ms), max(span.end_ms - 1, at_ms)
    return at_ms, at_ms


def _nearest(records: Sequence[Record], at_ms: int) -> list[Record]:
    def place(record: Record) -> tuple[int, str, int, int]:
        return abs(record.event_time_ms - at_ms), record.place.part or "", record.place.partition, record.place.offset

    return sorted(records, key=place)

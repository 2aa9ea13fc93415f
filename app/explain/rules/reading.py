"""Explains the feed of the first input: the record was read, waits, was rejected, was left out, or does not exist with this key and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.catalog.queries import columns
from app.explain.rules.facts import Code, Facts, FoundRecords, Place, Question, Record, RejectFact, Step
from app.explain.rules.subject import holds
from app.http.values import shown
from engine.expressions.types.types import Schema
from engine.plan.model import Input, Plan

_WHAT_FOLLOWS = "the next steps say what would happen to one that arrived now."


class Reading(NamedTuple):
    """The facts before the first operator: the step that says them, the record, and others around its time."""

    step: Step
    record: Record | None = None
    nearest: Sequence[Record] = ()


def read(plan: Plan, question: Question, facts: Facts) -> Reading:
    """Explain whether the record is in the feed, has been read, and belongs to the query."""
    source = columns.first_input(plan)
    if question.place is not None:
        return _at_place(source, question.place, facts)
    values = _own(source, question)
    span = range_of(plan, question.at_ms)
    first_records = facts.records(source, values, *span)
    if first_records.records:
        return _read_record(source, _likeliest(source, first_records.records, question.at_ms))
    rejects = _rejects_within(source, values, span, question.at_ms, facts)
    if rejects:
        return _rejected(source, rejects[0])
    return _not_found(plan, question, first_records, facts)


def range_of(plan: Plan, at_ms: int) -> tuple[int, int]:
    """Return the range of event times of a question about a time: those of its window."""
    for stage in plan.stages:
        for operator in stage.operators:
            span = operator.span_of(at_ms)
            if span is not None:
                return min(span.start_ms, at_ms), max(span.end_ms - 1, at_ms)
    return at_ms, at_ms


def _own(source: Input, question: Question) -> dict[str, object]:
    """Return the values of the question, by the names of the input's own columns."""
    prefix = f"{source.alias}."
    return {name.removeprefix(prefix): value for name, value in question.values.items() if name.startswith(prefix)}


def _at_place(source: Input, place: Place, facts: Facts) -> Reading:
    record = facts.record_at(source, place)
    if record is not None:
        return _read_record(source, record)
    rejects = facts.rejects(source, {}, place)
    if rejects:
        return _rejected(source, rejects[0])
    owner = source.relation.name if place.part is None else place.part
    sentence = f"{owner} has no record at partition {place.partition}, offset {place.offset}, or not yet."
    return Reading(_step("unknown", sentence, place, is_blocking=True))


def _read_record(source: Input, record: Record) -> Reading:
    name, time = _name(source, record), shown(record.event_time_ms)
    if not record.is_read:
        sentence = f"The record of {name} from {time} is in the feed and not read yet."
        return Reading(_step("not_read_yet", sentence, record.place, is_blocking=True), record)
    if not _belongs(source, record):
        sentence = f"The record of {name} does not fulfil `from.where`."
        return Reading(_step("filtered", sentence, record.place, is_blocking=True), record)
    if _is_before_start(source, record) and isinstance(source.start, int):
        sentence = f"The record of {name} from {time} was left out: the query starts at {shown(source.start)}."
        return Reading(_step("filtered", sentence, record.place, is_blocking=True, reason="start"), record)
    return Reading(_step("passed", f"The record of {name} from {time} has been read.", record.place), record)


def _rejected(source: Input, reject: RejectFact) -> Reading:
    sentence = f"The record was rejected when it came to {source.relation.name}: {reject.detail}."
    return Reading(_step("rejected", sentence, reject.place, is_blocking=True, reason=reject.reason))


def _rejects_within(
    source: Input, values: dict[str, object], span: tuple[int, int], at_ms: int, facts: Facts
) -> Sequence[RejectFact]:
    """Return the rejects with these values and an event time in the span, the nearest first: only these can explain the missing record."""
    stored = {name: value for name, value in values.items() if name in source.relation.columns}
    low, high = span
    timed = [(each.event_time_ms, each) for each in facts.rejects(source, stored, None) if each.event_time_ms is not None]
    within = [(abs(ms - at_ms), each) for ms, each in timed if low <= ms <= high]
    return [each for _, each in sorted(within, key=lambda item: item[0])]


def _not_found(plan: Plan, question: Question, searched: FoundRecords, facts: Facts) -> Reading:
    source = columns.first_input(plan)
    lanes = plan.lanes_of(source)
    name, lag = source.relation.name, sum(facts.committed.lag(lane.feed.name) for lane in lanes)
    parts = [lane.source_name for lane in lanes[1:]]
    all_parts = f"{name} with its parts {', '.join(parts)}" if parts else name
    if not searched.is_complete and lag:
        sentence = f"{lag} records of {name} are not read yet; the record may be one of them."
        return Reading(_step("not_read_yet", sentence, is_blocking=True))
    if not searched.is_complete:
        return Reading(_step("unknown", f"The feed of {all_parts} cannot be searched that far; {_WHAT_FOLLOWS}"))
    nearest = facts.nearest(source, _own(source, question), question.at_ms)
    sentences = [f"No record with this key and time was read: {all_parts} has no such record."]
    if searched.is_trimmed:
        removed = "Its oldest records were removed by its retention; one of them may have been this record."
        sentences = [f"No record with this key and time is in {all_parts}.", removed]
    sentences.append(_around(nearest))
    if source.feed.is_derived:
        sentences.append(f"A query writes {name}: an explanation of that query says why the record is missing there.")
    sentences.append(_WHAT_FOLLOWS[0].upper() + _WHAT_FOLLOWS[1:])
    reason = "removed" if searched.is_trimmed else None
    return Reading(_step("no_record", " ".join(sentences), reason=reason), nearest=nearest)


def _around(nearest: Sequence[Record]) -> str:
    if not nearest:
        return "None with this key was found at another time."
    places = [
        f"{shown(record.event_time_ms)} ({_place(record)}{'' if record.is_read else ', not read yet'})" for record in nearest
    ]
    return f"The nearest with this key {'is' if len(places) == 1 else 'are'} from {' and '.join(places)}."


def _place(record: Record) -> str:
    part = "" if record.place.part is None else f"part {record.place.part}, "
    return f"{part}partition {record.place.partition}, offset {record.place.offset}"


def _step(code: Code, sentence: str, place: Place | None = None, *, is_blocking: bool = False, reason: str | None = None) -> Step:
    return Step(code, is_blocking, sentence, kind="source", reason=reason, place=place)


def _name(source: Input, record: Record) -> str:
    name, part = source.relation.name, record.place.part
    return name if part is None else f"{name}, in its part {part},"


def _belongs(source: Input, record: Record) -> bool:
    schema = Schema(source.relation.columns.items())
    return source.where is None or holds(source.where, schema, record.values) is not False


def _is_before_start(source: Input, record: Record) -> bool:
    return isinstance(source.start, int) and record.event_time_ms < source.start


def _likeliest(source: Input, records: Sequence[Record], at_ms: int) -> Record:
    """Return the most likely record of the question: read ones before unread ones, accepted ones before those that the query leaves out."""

    def rank(record: Record) -> tuple[bool, bool, int, str, int, int]:
        is_left_out = not _belongs(source, record) or _is_before_start(source, record)
        place = record.place
        return not record.is_read, is_left_out, abs(record.event_time_ms - at_ms), place.part or "", place.partition, place.offset

    return min(records, key=rank)

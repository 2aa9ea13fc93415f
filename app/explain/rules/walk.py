"""Walks a plan and explains each operator, in the order of T9; the first step that blocks is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from app.catalog.queries import columns
from app.explain.rules.explainers import EXPLAINERS
from app.explain.rules.facts import Explanation, Facts, LateFact, Question, Record, Step
from app.explain.rules.reading import range_of, read
from app.explain.rules.subject import Desk, Subject
from app.http.values import shown
from engine.plan.model import Plan

# The most useful codes for a row that is there, or will be; "shown" and "passed" only say that nothing is wrong.
_TELLING = ("joined_version", "no_version", "expired", "final", "window_open_until", "late", "buffered_until")


def explain(plan: Plan, question: Question, facts: Facts) -> Explanation:
    """Explain why there is no row yet for a key and a time, or why it is this one."""
    question = replace(question, values=columns.entering(plan, question.values))
    first, record, nearest = read(plan, question, facts)
    if first.is_blocking:
        return Explanation(first, [first], record)
    subject = _subject(plan, question, record, facts)
    steps = [first, *_steps(subject)]
    blocking = next((step for step in steps if step.is_blocking), None)
    if blocking is not None:
        steps = steps[: steps.index(blocking) + 1]
    if first.code == "no_record" and not subject.is_known_of:
        return Explanation(first, steps, None, nearest)
    if blocking is not None:
        return Explanation(blocking, steps, record, nearest)
    last = steps[-1]
    informative = [step for step in steps if step.code in _TELLING]
    return Explanation(last if last.code == "unknown" or not informative else informative[-1], steps, record, nearest)


def _subject(plan: Plan, question: Question, record: Record | None, facts: Facts) -> Subject:
    source = columns.first_input(plan)
    at_ms = question.at_ms if record is None else record.event_time_ms
    values, known = columns.with_time(source, question.values, at_ms), question.values
    if record is not None:
        values |= {f"{source.alias}.{name}": value for name, value in record.values.items()}
        # A question about a place has no values. A late record of another key with the same time must not be used for this one.
        known = known or {name: values[name] for name in columns.hashed_by(source) if name in values}
    low, high = range_of(plan, at_ms)
    late_facts = [fact for fact in facts.late(known, low, high) if _is_late_fact_of(plan, question, fact)]
    shown_values = columns.result_values(plan, values)
    is_recognised = _is_recognised(plan, shown_values, at_ms)
    results = facts.results(shown_values, low, high) if is_recognised else ()
    return Subject(plan, facts, at_ms, columns.entering(plan, values), record, late_facts, results, is_recognised)


def _is_late_fact_of(plan: Plan, question: Question, fact: LateFact) -> bool:
    """Whether a late record can be of this question: of the first input, and of the same place."""
    if question.place is not None and fact.offset not in (None, question.place.offset):
        return False
    source = columns.first_input(plan)
    others = {item.alias for item in plan.whole_inputs if item.relation.kind == "stream" and item.index != source.index}
    aliases = {name.rpartition(".")[0] for name in fact.columns}
    return source.alias in aliases or not aliases & others


def _is_recognised(plan: Plan, values: Mapping[str, object], at_ms: int) -> bool:
    """Whether the known values of a result distinguish its rows from those of other keys.

    For a table these are the whole key; for a stream's records, one value that does not follow from the time alone.
    """
    output = plan.output
    if output.kind == "table":
        key = output.key[:-2] if output.is_windowed else output.key
        return values.keys() >= set(key)
    by_time_alone = columns.result_values(plan, columns.with_time(columns.first_input(plan), {}, at_ms))
    return bool(values.keys() - by_time_alone.keys())


def _steps(subject: Subject) -> Iterator[Step]:
    plan = subject.plan
    for stage in plan.stages:
        task = subject.task(stage)
        for operator in stage.operators:
            explanation = EXPLAINERS[type(operator)](Desk(stage, operator, task), operator, subject)
            yield from explanation.steps
            subject = replace(subject, values=columns.after(plan, operator, {**subject.values, **explanation.values}))
    yield _result(plan, subject)


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
            sentence=f"The query has not read such a record, and {output.name} has no row of it.",
            kind="result",
        )
    sentence = (
        f"Nothing blocks the record; {output.name} shows nothing with this key and time that its select makes recognisable."
    )
    return Step("passed", is_blocking=False, sentence=sentence, kind="result")

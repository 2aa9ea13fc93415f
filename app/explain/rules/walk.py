"""Walking a plan: one verdict per operator, in the order of T9; the first that blocks is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from app.catalog.queries import columns
from app.explain.rules.explainers import EXPLAINERS
from app.explain.rules.facts import Explanation, Facts, LateFact, Question, Record, Step
from app.explain.rules.reading import range_of, read
from app.explain.rules.subject import Desk, Subject
from app.http.sentences import shown
from engine.plan.model import Plan

# What says the most of a row that is there, or will be; "shown" and "passed" only say that nothing is wrong.
_TELLING = ("joined_version", "no_version", "expired", "final", "window_open_until", "late", "buffered_until")


def explain(plan: Plan, question: Question, facts: Facts) -> Explanation:
    """Say why there is no row yet for a key and a time, or why this one."""
    question = replace(question, values=columns.entering(plan, question.values))
    found, record, nearest = read(plan, question, facts)
    if found.is_blocking:
        return Explanation(found, [found], record)
    subject = _subject(plan, question, record, facts)
    steps = [found, *_steps(subject)]
    blocking = next((step for step in steps if step.is_blocking), None)
    if blocking is not None:
        steps = steps[: steps.index(blocking) + 1]
    if found.code == "no_record" and not subject.is_known_of:
        return Explanation(found, steps, None, nearest)
    if blocking is not None:
        return Explanation(blocking, steps, record, nearest)
    last = steps[-1]
    telling = [step for step in steps if step.code in _TELLING]
    return Explanation(last if last.code == "unknown" or not telling else telling[-1], steps, record, nearest)


def _subject(plan: Plan, question: Question, record: Record | None, facts: Facts) -> Subject:
    source = columns.first_input(plan)
    at_ms = question.at_ms if record is None else record.event_time_ms
    values, asked = columns.with_time(source, question.values, at_ms), question.values
    if record is not None:
        values |= {f"{source.alias}.{name}": value for name, value in record.values.items()}
        # Of a place no values are asked for; another key's late record of the same time must not answer for this one.
        asked = asked or {name: values[name] for name in columns.hashed_by(source) if name in values}
    low, high = range_of(plan, at_ms)
    late = [fact for fact in facts.late(asked, low, high) if _is_late_fact_of(plan, question, fact)]
    shown_values = columns.result_values(plan, values)
    is_recognised = _is_recognised(plan, shown_values, at_ms)
    results = facts.results(shown_values, low, high) if is_recognised else ()
    return Subject(plan, facts, at_ms, columns.entering(plan, values), record, late, results, is_recognised)


def _is_late_fact_of(plan: Plan, question: Question, fact: LateFact) -> bool:
    """Whether a late record can be the one that is meant: not one of a stream that is joined, nor one from another place."""
    if question.place is not None and fact.offset not in (None, question.place.offset):
        return False
    source = columns.first_input(plan)
    others = {item.alias for item in plan.whole_inputs if item.relation.kind == "stream" and item.index != source.index}
    aliases = {name.rpartition(".")[0] for name in fact.columns}
    return source.alias in aliases or not aliases & others


def _is_recognised(plan: Plan, known: Mapping[str, object], at_ms: int) -> bool:
    """Whether what is known of a result tells its rows from those of other keys.

    A table's needs the whole key; of a stream's records one value that does not follow from the time alone.
    """
    output = plan.output
    if output.kind == "table":
        key = output.key[:-2] if output.is_windowed else output.key
        return known.keys() >= set(key)
    by_time_alone = columns.result_values(plan, columns.with_time(columns.first_input(plan), {}, at_ms))
    return bool(known.keys() - by_time_alone.keys())


def _steps(subject: Subject) -> Iterator[Step]:
    plan = subject.plan
    for stage in plan.stages:
        task = subject.task(stage)
        for operator in stage.operators:
            verdict = EXPLAINERS[type(operator)](Desk(stage, operator, task), operator, subject)
            yield from verdict.steps
            subject = replace(subject, values=columns.after(plan, operator, {**subject.values, **verdict.values}))
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
            sentence=f"Nothing is known of such a record, and {output.name} has nothing of it.",
            kind="result",
        )
    sentence = (
        f"Nothing holds it back any more; {output.name} shows nothing of this key and time that its select lets one recognise."
    )
    return Step("passed", is_blocking=False, sentence=sentence, kind="result")

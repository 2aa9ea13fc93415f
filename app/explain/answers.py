"""Explanations: the bodies of answers, and how a question about a key and a time, or about one record, is answered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import Field

from app.appends.validation import EARLY_MS
from app.catalog.queries.columns import first_input, result_columns, typed
from app.catalog.queries.plans import PlannedQuery, get_planned
from app.explain.rules.facts import Code, Place, Question, Step
from app.explain.rules.walk import explain
from app.explain.sql import StoredFacts
from app.http.parameters import ParameterFaults, bad_parameter, unknown_parameter
from app.http.schemas import Answer, Position
from app.http.values import parse_instant_ms, parse_stored, shown
from engine.plan.model import Plan

KEY_PREFIX = "key."


class RecordPlace(Answer):
    """Place of a record in the feed of its relation."""

    partition: int = Field(description="Number of the partition, from 0.")
    offset: int = Field(description="Offset in it.")
    part: str | None = Field(
        default=None,
        description="The part of the stream that has it, if queries append to the stream; null: the relation's own log. `partition` and "
        "`offset` are of the part: give its name as `part=`.",
    )


class ExplainStep(Answer):
    """The explanation of one part of the query."""

    code: Code = Field(
        description="`no_record`: no record with this key and time was read, or it was removed. `not_read_yet`: in the feed, after the "
        "query's position. `rejected`: refused by its relation. `filtered`: fails a condition. `late`: arrived too late, or would now. "
        "`buffered_until`, `window_open_until`: waits until the clock reaches `until_ms`. `expired`, `no_version`, `joined_version`: result of "
        "the join. `final`: the window's result does not change. `shown`: the row exists. `passed`: nothing blocks. `unknown`: see the sentence."
    )
    blocking: bool = Field(description="The record does not pass this step, or not yet.")
    sentence: str = Field(description="The same as a sentence.")
    kind: str = Field(description="`source`, `result`, or the operator's kind.", examples=["stream_table_join"])
    stage: int = Field(description="Stage of the plan.")
    operator: str | None = Field(description="The operator's name in clocks and counters.", examples=["w"])
    task: int | None = Field(description="The task that has the key; null: not known.")
    clock: Literal["stream_time", "table_time", "wall_clock"] | None = Field(
        description="The clock that the record waits for: stream time, the table's time, or the wall clock; null: none."
    )
    now_ms: int | None = Field(description="Present value of that clock.")
    until_ms: int | None = Field(description="Value that the clock must reach.")
    version_ms: int | None = Field(description="Time of the version or row that is used.")
    next_version_ms: int | None = Field(description="When that version ends; null: it is the latest, or there is none.")
    reason: str | None = Field(description="A finer code: `grace`, `hold`, `late_dropped`, `deleted`, a reject's reason.")
    place: RecordPlace | None = Field(description="The record of this step.")


class NearRecord(Answer):
    """A record of the same key with another time."""

    event_time_ms: int = Field(description="Its event time, in milliseconds since 1970.")
    place: RecordPlace = Field(description="Place of the record.")
    is_read: bool = Field(description="Whether the query has read it.")


class ExplainAnswer(Answer):
    """Why there is no row yet for a key and a time, or why it is this one."""

    query: str = Field(description="Name of the query.")
    key: dict[str, str] = Field(description="The values of the question, by the columns' names in the query.")
    key_columns: list[str] = Field(
        description="The columns of the query's key, which `key=` gives. For a composite key use `key.<column>=`.",
        examples=[["departures.origin"]],
    )
    at_ms: int = Field(description="The event time of the question, in milliseconds since 1970.")
    answer: ExplainStep = Field(
        description="The step `no_record` if nothing is known about this key and time; else the first step that blocks, else the most "
        "informative one."
    )
    steps: list[ExplainStep] = Field(description="In the order of the query, up to the first that blocks.")
    nearest: list[NearRecord] = Field(
        description="If the first input has no record with this key and time: the last one before it and the first one after it. Otherwise, and "
        "if its feed cannot be searched, empty."
    )
    position: Position = Field(description="The query's position at its last commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit, in milliseconds since 1970; null before the first record."
    )
    committed_at: datetime | None = Field(description="When the query last committed; null before the first commit.")
    stale: bool = Field(description="True while the query does not run.")


_STEP: dict[str, Any] = {
    "code": "passed",
    "blocking": False,
    "sentence": "The record of departures from 2013-01-01T12:00:00Z has been read.",
    "kind": "source",
    "stage": 0,
    "operator": None,
    "task": None,
    "clock": None,
    "now_ms": None,
    "until_ms": None,
    "version_ms": None,
    "next_version_ms": None,
    "reason": None,
    "place": {"partition": 3, "offset": 1041, "part": None},
}
_WAITING: dict[str, Any] = {
    **_STEP,
    "code": "buffered_until",
    "blocking": True,
    "sentence": "It waits for the grace 1h until stream time reaches 2013-01-01T13:00:00Z; it is at 2013-01-01T12:40:00Z.",
    "kind": "stream_table_join",
    "operator": "w",
    "task": 2,
    "clock": "stream_time",
    "now_ms": 1357044000000,
    "until_ms": 1357045200000,
    "reason": "grace",
    "place": None,
}
EXPLANATION: dict[str, Any] = {
    "query": "departures_with_weather",
    "key": {"departures.origin": "JFK"},
    "key_columns": ["departures.origin"],
    "at_ms": 1357041600000,
    "answer": _WAITING,
    "steps": [_STEP, _WAITING],
    "nearest": [],
    "position": {"log:departures": {"3": 1042}, "log:weather": {"0": 2209}},
    "stream_time_ms": 1357044000000,
    "committed_at": "2025-11-21T08:00:00Z",
    "stale": False,
}


def answer_why(connection: sa.Connection, name: str, key: Sequence[str], at: str | None) -> ExplainAnswer:
    """Explain a row, or its absence, for the values of the query's key, in the order of its columns.

    Raises:
        NotFound: ``query_not_found``.
        BadRequest: ``bad_parameter``: the key has another number of columns, or a value is not of its column's type.
    """
    planned = get_planned(connection, name)
    columns = key_columns(planned.plan)
    if len(key) != len(columns):
        raise bad_parameter("key", f"the key has {len(columns)} values ({', '.join(columns)}), not {len(key)}")
    key_texts = list(zip(columns, key, strict=True))
    return answer_question(connection, planned, key_texts, question_of(planned.plan, key_texts, at, None, ParameterFaults()))


def question_of(
    plan: Plan, key_texts: list[tuple[str, str]], at: str | None, place: Place | None, faults: ParameterFaults
) -> Question:
    """Return the question of a request.

    Raises:
        BadRequest: with every fault.
    """
    values: dict[str, object] = {}
    at_ms = 0
    with faults.part():
        values = _values(plan, key_texts)
    if at is not None or not faults.listed:  # no fault for a missing time if another parameter is wrong
        with faults.part():
            at_ms = _at(at, place)
    faults.raise_all()
    if place is not None and (values or at is not None):
        raise bad_parameter(
            "offset", "`partition` and `offset` name one record, which has its own key and time: leave `key` and `at` out"
        )
    if not values and place is None:
        raise bad_parameter(
            "key",
            f"the key is missing: {way_to_ask(plan)}; or ask by one of {', '.join(KEY_PREFIX + name for name in _allowed(plan))}",
        )
    return Question(values, at_ms, place)


def answer_question(
    connection: sa.Connection, planned: PlannedQuery, key_texts: list[tuple[str, str]], question: Question
) -> ExplainAnswer:
    facts, place = StoredFacts(connection, planned), question.place
    _check_partition(planned.plan, place, facts)
    explanation = explain(planned.plan, question, facts)
    return ExplainAnswer(
        query=planned.row.name,
        key={_allowed(planned.plan)[column]: text for column, text in key_texts},
        key_columns=[f"{first_input(planned.plan).alias}.{name}" for name in key_columns(planned.plan)],
        at_ms=question.at_ms if place is None or explanation.record is None else explanation.record.event_time_ms,
        answer=_step(explanation.answer),
        nearest=[
            NearRecord(event_time_ms=record.event_time_ms, place=_record_place(record.place), is_read=record.is_read)
            for record in explanation.nearest
        ],
        steps=[_step(step) for step in explanation.steps],
        position=planned.committed.position,
        stream_time_ms=planned.committed.stream_time_ms,
        committed_at=planned.committed.committed_at,
        stale=planned.row.state != "running",
    )


def _record_place(place: Place) -> RecordPlace:
    return RecordPlace(partition=place.partition, offset=place.offset, part=place.part)


def _step(step: Step) -> ExplainStep:
    place = None if step.place is None else _record_place(step.place)
    return ExplainStep(
        code=step.code, blocking=step.is_blocking, sentence=step.sentence, kind=step.kind, stage=step.stage, operator=step.operator,
        task=step.task, clock=step.clock, now_ms=step.now_ms, until_ms=step.until_ms, version_ms=step.version_ms,
        next_version_ms=step.next_version_ms, reason=step.reason, place=place,
    )  # fmt: skip


def _allowed(plan: Plan) -> dict[str, str]:
    """Return the column names that a question may use, each with its qualified name."""
    source = first_input(plan)
    return {**result_columns(plan), **{name: f"{source.alias}.{name}" for name in source.relation.columns.names}}


def key_columns(plan: Plan) -> tuple[str, ...]:
    """Return the columns of the first input that the query's first step hashes by; else its relation's key."""
    source = first_input(plan)
    hashed = tuple(name for name in source.hash_key if name in source.relation.columns)
    return next((columns for columns in (hashed, source.relation.key) if len(columns) == 1), hashed) or (
        source.relation.key or source.relation.columns.names
    )


def way_to_ask(plan: Plan) -> str:
    columns = key_columns(plan)
    alias = first_input(plan).alias
    if len(columns) == 1:
        return f"`key=…` is a value of {alias}.{columns[0]}"
    return f"ask with {'&'.join(f'{KEY_PREFIX}{name}=…' for name in columns)} (columns of {alias})"


def _values(plan: Plan, key_texts: list[tuple[str, str]]) -> dict[str, object]:
    allowed, types = _allowed(plan), typed(plan)
    values: dict[str, object] = {}
    faults = ParameterFaults()
    unknown = [f"{KEY_PREFIX}{name}" for name, _ in key_texts if name not in allowed]
    if unknown:
        faults.add(unknown_parameter(unknown, [f"{KEY_PREFIX}{name}" for name in allowed]))
    for name, text in key_texts:
        if name not in allowed:
            continue
        try:
            if allowed[name] in values:
                raise ValueError("is there twice")
            values[allowed[name]] = parse_stored(text, types[allowed[name]])
        except ValueError as error:
            faults.add(bad_parameter(f"{KEY_PREFIX}{name}", str(error)))
    faults.raise_all()
    return values


def _at(at: str | None, place: Place | None) -> int:
    if at is None and place is not None:
        return 0  # the record's own time counts
    try:
        if at is None:
            raise ValueError("add the event time: at=2013-01-01T12:00:00Z")
        ms = parse_instant_ms(at)
        if at.isdigit() and ms < EARLY_MS:  # most likely seconds, or a year
            raise ValueError(
                f"the number counts milliseconds and would be {shown(ms)}; if that is intended, write it in this form"
            )
    except ValueError as error:
        raise bad_parameter("at", str(error)) from error
    return ms


def _check_partition(plan: Plan, place: Place | None, facts: StoredFacts) -> None:
    if place is None:
        return
    source = first_input(plan)
    parts = {lane.source_name: lane for lane in plan.lanes_of(source) if lane.part_of is not None}
    if place.part is not None and place.part not in parts:
        available = f"its parts are {', '.join(parts)}" if parts else "no query appends to it"
        raise bad_parameter("part", f"{source.relation.name} has no part {place.part}; {available}")
    lane = source if place.part is None else parts[place.part]
    known = facts.committed.ends.get(lane.feed.name)
    if known and place.partition not in known:
        available_partitions = ", ".join(str(number) for number in sorted(known))
        raise bad_parameter("partition", f"{lane.source_name} has no partition {place.partition}; it has {available_partitions}")

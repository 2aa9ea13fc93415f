"""GET …/explain: why there is no row yet for a key and a time, or why it is this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request

from app.appends.validation import EARLY_MS
from app.catalog.queries.columns import first_input, result_columns, typed
from app.catalog.queries.plans import PlannedQuery, get_planned
from app.errors.app_errors import BadRequest, Fault
from app.explain.models import EXPLANATION, ExplainAnswer, ExplainStep, NearRecord, RecordPlace
from app.explain.rules.facts import Place, Question, Record, Step
from app.explain.rules.walk import explain
from app.explain.sql import StoredFacts
from app.http.answers.documented import answered, problems
from app.http.parameters import (
    MAX_NAME_LENGTH,
    LongInspection,
    Name,
    ParameterFaults,
    bad_parameter,
    known_parameters,
    unknown_parameter,
)
from app.http.values import parse_instant_ms, parse_stored, shown
from engine.plan.model import Plan

KEY_PREFIX = "key."
router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[known_parameters((KEY_PREFIX,))])

Key = Annotated[
    str | None,
    Query(
        description="A value of the query's key, if the key is one column; else use `key.<column>=`. The answer's `key_columns` lists the "
        "columns.",
        max_length=4096,
        examples=["JFK"],
    ),
]
At = Annotated[
    str | None,
    Query(description="The event time: RFC 3339, or milliseconds since 1970.", max_length=64, examples=["2013-01-01T12:00:00Z"]),
]
PartitionOf = Annotated[
    int | None, Query(ge=0, le=100_000, description="With `offset`: place of one record of the query's first input.")
]
PartOf = Annotated[
    str | None,
    Query(
        max_length=MAX_NAME_LENGTH,
        pattern=r"^[^\x00]+$",
        description="With `offset`, if queries append to the first input: the part that has the record, as in `place.part`. Absent: "
        "the stream's own log.",
    ),
]
OffsetOf = Annotated[int | None, Query(ge=0, le=2**62, description="See `partition`.")]


@router.get(
    "/{name}/explain",
    summary="Explain a row, or its absence",
    response_model=ExplainAnswer,
    responses={200: answered(EXPLANATION, "The answer, and the steps to it."), **problems(400, 404)},
)
def get_explanation(
    name: Name,
    request: Request,
    transaction: LongInspection,
    key: Key = None,
    at: At = None,
    partition: PartitionOf = None,
    offset: OffsetOf = None,
    part: PartOf = None,
) -> ExplainAnswer:
    """Why there is no row yet for a key and an event time, or why it is this version: read or not, rejected, late, waiting, version, final.

    Ask by `key` and `at`, or by `partition` and `offset` for one record of the query's first input. For composite keys use `key.<column>=`, with
    a column of the first input, or one of the result that is just a column of an input.
    The query's operators are explained in order; the first one that blocks the record is the answer. The explanation uses only committed facts:
    clocks of the key's own task, positions, late records, rejects, and the feeds in the built-in log, which are searched within bounds. For a
    stream to which queries append, its parts are searched as well. State inside operators is not read. The answer is `no_record`, with the
    nearest records of the key, if no record with this key and time was read and no other fact about them is stored. The further steps then say
    what would happen to such a record now.
    """
    planned = get_planned(transaction, name)
    faults = ParameterFaults()
    key_texts: list[tuple[str, str]] = []
    place = None
    with faults.part():
        key_texts = _given(planned.plan, key, request)
    with faults.part():
        place = _place(partition, offset, part)
    return _answer(transaction, planned, key_texts, _question(planned.plan, key_texts, at, place, faults))


def answer_why(connection: sa.Connection, name: str, key: Sequence[str], at: str | None) -> ExplainAnswer:
    """Explain a row, or its absence, for the values of the query's key, in the order of its columns.

    Raises:
        NotFound: ``query_not_found``.
        BadRequest: ``bad_parameter``: the key has another number of columns, or a value is not of its column's type.
    """
    planned = get_planned(connection, name)
    columns = _key_columns(planned.plan)
    if len(key) != len(columns):
        raise bad_parameter("key", f"the key has {len(columns)} values ({', '.join(columns)}), not {len(key)}")
    key_texts = list(zip(columns, key, strict=True))
    return _answer(connection, planned, key_texts, _question(planned.plan, key_texts, at, None, ParameterFaults()))


def _question(
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
        raise bad_parameter("key", f"the key is missing: {_way_to_ask(plan)}; or ask by one of {', '.join(_choices(plan))}")
    return Question(values, at_ms, place)


def _answer(
    connection: sa.Connection, planned: PlannedQuery, key_texts: list[tuple[str, str]], question: Question
) -> ExplainAnswer:
    facts, place = StoredFacts(connection, planned), question.place
    _check_partition(planned.plan, place, facts)
    explanation = explain(planned.plan, question, facts)
    return ExplainAnswer(
        query=planned.row.name,
        key={_allowed(planned.plan)[column]: text for column, text in key_texts},
        key_columns=[f"{first_input(planned.plan).alias}.{name}" for name in _key_columns(planned.plan)],
        at_ms=question.at_ms if place is None or explanation.record is None else explanation.record.event_time_ms,
        answer=_step(explanation.answer),
        nearest=[_near(record) for record in explanation.nearest],
        steps=[_step(step) for step in explanation.steps],
        position=planned.committed.position,
        stream_time_ms=planned.committed.stream_time_ms,
        committed_at=planned.committed.committed_at,
        stale=planned.row.state != "running",
    )


def _near(record: Record) -> NearRecord:
    return NearRecord(event_time_ms=record.event_time_ms, place=_record_place(record.place), is_read=record.is_read)


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


def _given(plan: Plan, key: str | None, request: Request) -> list[tuple[str, str]]:
    key_texts = [
        (name.removeprefix(KEY_PREFIX), value)
        for name, value in request.query_params.multi_items()
        if name.startswith(KEY_PREFIX)
    ]
    if key is None:
        return key_texts
    columns = _key_columns(plan)
    if len(columns) == 1:
        return [(columns[0], key), *key_texts]
    detail = f"the key of this query is not one column; {_way_to_ask(plan)}"
    raise BadRequest("composite_key", detail, [Fault("?key", "composite_key", detail)])


def _key_columns(plan: Plan) -> tuple[str, ...]:
    """Return the columns of the first input that the query's first step hashes by; else its relation's key."""
    source = first_input(plan)
    hashed = tuple(name for name in source.hash_key if name in source.relation.columns)
    return next((columns for columns in (hashed, source.relation.key) if len(columns) == 1), hashed) or (
        source.relation.key or source.relation.columns.names
    )


def _way_to_ask(plan: Plan) -> str:
    columns = _key_columns(plan)
    alias = first_input(plan).alias
    if len(columns) == 1:
        return f"`key=…` is a value of {alias}.{columns[0]}"
    return f"ask with {'&'.join(f'{KEY_PREFIX}{name}=…' for name in columns)} (columns of {alias})"


def _choices(plan: Plan) -> list[str]:
    return [KEY_PREFIX + each for each in _allowed(plan)]


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


def _place(partition: int | None, offset: int | None, part: str | None) -> Place | None:
    if (partition is None) != (offset is None):
        missing = "partition" if partition is None else "offset"
        raise bad_parameter(missing, "`partition` and `offset` go together")
    if partition is None or offset is None:
        if part is not None:
            raise bad_parameter("part", "it belongs to `partition` and `offset`: add them, or leave it out")
        return None
    return Place(partition, offset, part)


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

"""GET …/explain: why there is no row yet for a key and a time, or why it is this one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from app.catalog.queries.plans import get_planned
from app.errors.app_errors import BadRequest, Fault
from app.explain.answers import EXPLANATION, KEY_PREFIX, ExplainAnswer, answer_question, key_columns, question_of, way_to_ask
from app.explain.rules.facts import Place
from app.http.answers.documented import answered, problems
from app.http.parameters import (
    MAX_NAME_LENGTH,
    LongInspection,
    Name,
    ParameterFaults,
    bad_parameter,
    known_parameters,
    parameters_below,
)
from engine.plan.model import Plan

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
    the times of the query, positions, late records, rejects, and the feeds in the built-in log, which are searched within bounds. For a
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
    return answer_question(transaction, planned, key_texts, question_of(planned.plan, key_texts, at, place, faults))


def _given(plan: Plan, key: str | None, request: Request) -> list[tuple[str, str]]:
    key_texts = parameters_below(request, KEY_PREFIX)
    if key is None:
        return key_texts
    columns = key_columns(plan)
    if len(columns) == 1:
        return [(columns[0], key), *key_texts]
    detail = f"the key of this query is not one column; {way_to_ask(plan)}"
    raise BadRequest("composite_key", detail, [Fault("?key", "composite_key", detail)])


def _place(partition: int | None, offset: int | None, part: str | None) -> Place | None:
    if (partition is None) != (offset is None):
        missing = "partition" if partition is None else "offset"
        raise bad_parameter(missing, "`partition` and `offset` go together")
    if partition is None or offset is None:
        if part is not None:
            raise bad_parameter("part", "it belongs to `partition` and `offset`: add them, or leave it out")
        return None
    return Place(partition, offset, part)

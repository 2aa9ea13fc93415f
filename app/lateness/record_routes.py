"""…/late-records: records that came too late, and their replay through the query."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from app.catalog.queries.columns import typed
from app.catalog.queries.plans import get_planned
from app.db.page_bounds import Most
from app.errors.app_errors import BadRequest, Conflict, Fault, NotFound
from app.http.answers.documented import answered, body_examples, problems
from app.http.parameters import (
    DEFAULT_LIMIT,
    Limit,
    LongInspection,
    Name,
    ParameterFaults,
    ServicesOf,
    Transaction,
    bad_parameter,
    known_parameters,
    parameters_below,
    unknown_parameter,
)
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import Answer, Counter, Position
from app.http.values import parse_instant_ms, parse_stored
from app.lateness.records import LateFilter, PageOf, Replay, counted_for, key_tokens, late_records_of, replay
from engine.expressions.limits import FewFields
from engine.expressions.types.types import Schema
from engine.plan.model import Plan

MAX_IDS = 10_000


class LateRecord(Answer):
    """A record that came too late, or whose table history had expired."""

    id: int = Field(description="Rises with every late record; replays use it.")
    input: str = Field(description="The operator that found it late.", examples=["w"])
    reason: str = Field(description="Why it is here, as a code.", examples=["late_diverted"])
    event_time_ms: int = Field(description="Its event time, in milliseconds since 1970.")
    stream_time_ms: int | None = Field(description="Stream time when it came.")
    offset: int | None = Field(description="Its offset, if it is a record of an input.")
    record: Any = Field(description="The record as the operator saw it, or an excerpt of it as text.")
    at: datetime = Field(description="Time when it was stored.")
    replayed_at: datetime | None = Field(description="Time of its last replay; null: never.")
    replay_id: UUID | None = Field(description="Its last replay; null: none.")


class LateRecordPage(Answer):
    """Late records, and their counts."""

    items: list[LateRecord] = Field(description="Stored late records, in the requested order.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    counters: list[Counter] = Field(description="All counts of the query, by input and reason, of stored and other records.")


def _readable(value: str | int | None) -> str | int | None:
    if value is not None:
        parse_instant_ms(str(value))
    return value


Instant = Annotated[str | int | None, AfterValidator(_readable)]


class LateRecordFilter(FewFields):
    """A filter of late records: they match every field that is set; without a field all match."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    reason: str | None = Field(
        default=None, max_length=100, pattern="^[a-z_]+$", description="Only of this reason.", examples=["late_diverted"]
    )
    input: str | None = Field(default=None, max_length=255, pattern=r"^[^\x00]+$", description="Only records of this operator.")
    from_: Instant = Field(default=None, alias="from", description="First event time.", examples=["2013-01-01T00:00:00Z"])
    to: Instant = Field(default=None, description="Up to, not including, this event time.")
    key: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Column → value of the record.", examples=[{"origin": "JFK"}]
    )


LateRecordId = Annotated[int, Field(gt=0, lt=2**63)]


class ReplayBody(FewFields):
    """The late records to replay: by id, or by a filter. The filter `{}` matches all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: list[LateRecordId] | None = Field(
        default=None, min_length=1, max_length=MAX_IDS, description="Ids of `…/late-records`.", examples=[[12, 13]]
    )
    filter: LateRecordFilter | None = Field(default=None, description="Instead of `ids`: a filter. `{}`: all.")
    again: bool = Field(default=False, description="Include records that were replayed before.")

    @model_validator(mode="after")
    def _names_one(self) -> ReplayBody:
        if (self.ids is None) == (self.filter is None):
            is_neither = self.ids is None
            raise ValueError(
                'say which late records: `ids` ({"ids": [12, 13]}) or `filter` ({"filter": {"reason": "late_dropped"}}; all of them: '
                '{"filter": {}})'
                if is_neither
                else "send `ids` or `filter`, not both"
            )
        return self


class RefusedReplay(Answer):
    """A late record that cannot be replayed."""

    id: int = Field(description="Id of the late record.")
    code: Literal["replay_not_possible", "record_cut"] = Field(
        description="Why it cannot be replayed, as a code; `GET /v1/errors/{code}` explains it."
    )
    detail: str = Field(description="Why it cannot be replayed.")


class ReplayAnswer(Answer):
    """A replay that was accepted; the query's next batch includes it."""

    replay_id: UUID | None = Field(description="Null if all records were replayed before.")
    accepted: int = Field(description="Records that go through the query again.", examples=[2])
    already_replayed: int = Field(description="Records left out because they were replayed before.")
    refused_count: int = Field(description="Number of records that cannot be replayed.")
    refused: list[RefusedReplay] = Field(description="The first hundred records that cannot be replayed.")
    position: Position = Field(description="The query's position when these records are in its result; usable as `min_position`.")
    more: bool = Field(description="More records match the filter: repeat the request.")


_RECORD: dict[str, Any] = {
    "id": 12,
    "input": "w",
    "reason": "late_diverted",
    "event_time_ms": 1357036800000,
    "stream_time_ms": 1357045200000,
    "offset": 511,
    "record": {"departures.origin": "JFK", "departures.dep_delay": 170},
    "at": "2025-11-21T08:00:00Z",
    "replayed_at": None,
    "replay_id": None,
}
LATE_RECORDS: dict[str, Any] = {
    "items": [_RECORD],
    "next": "WzEyXQ",
    "counters": [{"input": "w", "reason": "late_diverted", "count": 42}],
}
REPLAY_BY_ID: dict[str, Any] = {"ids": [12]}
REPLAY_BY_FILTER: dict[str, Any] = {
    "filter": {"reason": "late_diverted", "from": "2013-01-01T00:00:00Z", "to": "2013-01-02T00:00:00Z", "key": {"origin": "JFK"}}
}
REPLAYED: dict[str, Any] = {
    "replay_id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11",
    "accepted": 1,
    "already_replayed": 0,
    "refused_count": 0,
    "refused": [],
    "position": {"replay:0193f1d2-7c1e-7000-8000-0f0c7c9d2b12": {"0": 1}},
    "more": False,
}


KEY_PREFIX = "key."
SHOWN_REFUSALS = 100
# Keys that a join computes are stored with a late record, because a replay needs them. They are not columns of a user.
_PLANS_OWN = re.compile(r"\.\$(on|key)\d+$")
router = APIRouter(prefix="/v1/queries", tags=["queries"])

Reason = Annotated[str | None, Query(max_length=100, pattern="^[a-z_]+$", description="Only records with this reason.")]
InputOf = Annotated[
    str | None, Query(alias="input", max_length=255, pattern=r"^[^\x00]+$", description="Only records of this operator.")
]
FromTime = Annotated[
    str | None, Query(alias="from", max_length=64, description="First event time: RFC 3339, or milliseconds since 1970.")
]
ToTime = Annotated[str | None, Query(alias="to", max_length=64, description="Up to, not including, this event time.")]
Order = Annotated[Literal["desc", "asc"], Query(description="Newest first, or oldest first.")]


@router.get(
    "/{name}/late-records",
    summary="List late records",
    response_model=LateRecordPage,
    responses={200: answered(LATE_RECORDS, "Stored late records, and the counts of all."), **problems(400, 404)},
    dependencies=[known_parameters((KEY_PREFIX,))],
)
def get_late_records(
    name: Name,
    request: Request,
    services: ServicesOf,
    transaction: LongInspection,
    reason: Reason = None,
    judged_by: InputOf = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    order: Order = "desc",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> LateRecordPage:
    """Records that came too late or whose table history had expired, if the definition stores them (`late_records`).

    Filter by `reason`, by `input`, by event time, and by columns of the record as `key.<column>=` (`key.origin=JFK`, or in full
    `key.departures.origin=JFK`). `counters` counts all records of this reason and input, also those that are only counted (`late: join`)
    or were dropped because the store was full.
    """
    query = get_planned(transaction, name)
    key_parameters = parameters_below(request, KEY_PREFIX)
    conditions, faults = LateFilter(reason, judged_by), ParameterFaults()
    with faults.part():
        conditions = replace(conditions, from_ms=_instant("from", from_time))
    with faults.part():
        conditions = replace(conditions, to_ms=_instant("to", to_time))
    with faults.part():
        conditions = replace(conditions, key=_key(query.plan, key_parameters, KEY_PREFIX))
    faults.raise_all()
    beyond = decode_cursor(cursor, [int])
    most = Most(limit + 1, services.settings.limits.page_bytes)
    numbered = PageOf(most, None if beyond is None else int(beyond[0]), is_ascending=order == "asc")
    rows, following = page(late_records_of(transaction, query.row.id, conditions, numbered), limit, lambda row: [row.id])
    items = [
        LateRecord(
            id=row.id, input=row.input, reason=row.reason, event_time_ms=row.event_time_ms, stream_time_ms=row.stream_time_ms,
            offset=row.offset, record=_parsed(row.record), at=row.at, replayed_at=row.replayed_at, replay_id=row.replay_id,
        )
        for row in rows
    ]  # fmt: skip
    counts = [
        Counter(input=where, reason=why, count=number)
        for where, why, number in counted_for(transaction, query.row.id)
        if reason in (None, why) and judged_by in (None, where)
    ]
    return LateRecordPage(items=items, next=following, counters=counts)


@router.post(
    "/{name}/late-records/replay",
    summary="Replay late records",
    status_code=202,
    response_model=ReplayAnswer,
    responses={
        202: answered(REPLAYED, "Recorded; the query's next batch includes the records."),
        **problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra=request_body(
        "ReplayBody",
        body_examples(
            ids=("Records by id", REPLAY_BY_ID),
            filter=("Records of a key and a day", REPLAY_BY_FILTER),
            all=("All records that were not replayed before", {"filter": {}}),
        ),
    ),
    dependencies=[known_parameters()],
)
def post_replay(name: Name, body: JsonBody, transaction: Transaction) -> ReplayAnswer:
    """Send late records through the query again: exactly once each, also across crashes, unless `again` is set.

    A replayed record is joined **now, as of its own event time**, by the definition that the query runs then: as the late policy
    `join` would have done. The join does not test its lateness, does not let it wait, and does not move its clock. Results go through the
    rest of the query like any other row (a closed window behind the join refuses them, and they are late there). They are marked: the
    result's records and changes have `"$replayed": true`; the late record has `replayed_at` and `replay_id`; `replayed` is counted.

    The filter `{}` matches all late records that were not replayed before. One request replays up to ten thousand: if `more` is true,
    repeat the request.

    Only records that a join of a stream with a table dropped, diverted, or found without history can be replayed (`late_dropped`,
    `late_diverted`, `expired_dropped`, `expired_diverted`). Others are refused with `replay_not_possible`: to accept records that a closed
    window or a table's expired history refused would change results that were final. A filter skips them and counts them; if it matches
    no other record, or one of them is named by its id, the answer is 409.
    """
    request = validated(ReplayBody, body)
    query = get_planned(transaction, name, is_locking=True)
    chosen = LateFilter() if request.filter is None else _filter(query.plan, request.filter)
    done = replay(transaction, query, chosen, request.ids, is_again=request.again)
    _check(name, request, done)
    return ReplayAnswer(
        replay_id=done.id,
        accepted=len(done.accepted),
        already_replayed=len(done.already),
        refused_count=len(done.refused),
        refused=[RefusedReplay(id=number, code=why.code, detail=why.detail) for number, why in done.refused[:SHOWN_REFUSALS]],
        position={feed: dict(partitions) for feed, partitions in done.position.items()},
        more=done.has_more,
    )


def _check(name: str, request: ReplayBody, done: Replay) -> None:
    """Raise if the request cannot be done in full; the transaction is then rolled back."""
    if done.missing:
        places = {number: place for place, number in enumerate(request.ids or ())}
        faults = [
            Fault(f"/ids/{places[number]}", "late_record_not_found", f"there is no late record {number}")
            for number in done.missing
        ]
        raise NotFound(
            "late_record_not_found", f"query '{name}' stores no late record {done.missing[0]}", faults[:SHOWN_REFUSALS]
        )
    if done.refused and (request.ids is not None or not done.accepted):
        faults = [Fault(_pointer(request, number), why.code, why.detail) for number, why in done.refused[:SHOWN_REFUSALS]]
        raise Conflict("replay_not_possible", f"{len(done.refused)} cannot be replayed: {done.refused[0][1].detail}", faults)


def _pointer(request: ReplayBody, number: int) -> str:
    return "/filter" if request.ids is None else f"/ids/{request.ids.index(number)}"


def _filter(plan: Plan, requested: LateRecordFilter) -> LateFilter:
    first, end = (None if bound is None else parse_instant_ms(str(bound)) for bound in (requested.from_, requested.to))
    values = [(name, json.dumps(value) if isinstance(value, bool) else str(value)) for name, value in requested.key.items()]
    return LateFilter(requested.reason, requested.input, first, end, _key(plan, values, "/filter/key/"))


def _key(plan: Plan, given: Iterable[tuple[str, str]], prefix: str) -> list[dict[str, str]]:
    """Return for each column asked for what it may be in a record: a bare name stands for the column of any input."""
    types, faults = typed(plan), ParameterFaults()
    found = []
    for name, text in given:
        with faults.part():
            found.append(_tokens(types, name, text, prefix))
    faults.raise_all()
    return found


def _tokens(types: Schema, name: str, text: str, prefix: str) -> dict[str, str]:
    columns = [each for each in types.names if name in (each, each.partition(".")[2])]
    if not columns:
        known = sorted({each.partition(".")[2] for each in types.names})
        if prefix == KEY_PREFIX:
            raise unknown_parameter([f"{prefix}{name}"], [f"{prefix}{each}" for each in known])
        detail = f"no input has a column '{name}'; there are {', '.join(known)}"
        raise BadRequest("unknown_column", detail, [Fault(f"{prefix}{name}", "unknown_column", detail)])
    try:
        return key_tokens({each: parse_stored(text, types[each]) for each in columns}, types)
    except ValueError as error:
        pointer = f"?{prefix}{name}" if prefix == KEY_PREFIX else f"{prefix}{name}"
        raise BadRequest("bad_parameter", f"{name}: {error}", [Fault(pointer, "bad_parameter", str(error))]) from error


def _instant(parameter: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_instant_ms(text)
    except ValueError as error:
        raise bad_parameter(parameter, str(error)) from error


def _parsed(record: str) -> Any:
    """Return the record as JSON without the plan's own columns; a truncated excerpt stays text."""
    try:
        read = json.loads(record)
    except ValueError:
        return record
    return {name: value for name, value in read.items() if not _PLANS_OWN.search(name)}

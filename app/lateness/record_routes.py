"""…/late-records: what came too late, and handing it to the query again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

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
    unknown_parameter,
)
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import Counter
from app.http.values import parse_instant_ms, parse_stored
from app.lateness.record_models import (
    LATE_RECORDS,
    REPLAY_BY_FILTER,
    REPLAY_BY_ID,
    REPLAYED,
    LateRecord,
    LateRecordFilter,
    LateRecordPage,
    RefusedReplay,
    ReplayAnswer,
    ReplayBody,
)
from app.lateness.records import LateFilter, PageOf, Replay, counted_for, key_tokens, late_records_of, replay
from engine.expressions.types.types import Schema
from engine.plan.model import Plan

KEY_PREFIX = "key."
SHOWN_REFUSALS = 100
# Keys that a join computes are kept with a late record: a replay needs them. No user has named them.
_PLANS_OWN = re.compile(r"\.\$(on|key)\d+$")
router = APIRouter(prefix="/v1/queries", tags=["queries"])

Reason = Annotated[str | None, Query(max_length=100, pattern="^[a-z_]+$", description="Only those of this reason.")]
InputOf = Annotated[
    str | None, Query(alias="input", max_length=255, pattern=r"^[^\x00]+$", description="Only those that this operator judged.")
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
    responses={200: answered(LATE_RECORDS, "Kept late records, and the counts of all."), **problems(400, 404)},
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
    """Records that came too late or met expired history, as far as the definition keeps them (`late_records`).

    Filter by `reason`, by `input`, by event time, and by columns of the record as `key.<column>=` (`key.origin=JFK`, or in full
    `key.departures.origin=JFK`). `counters` counts all of this reason and input, also those that are only counted (`late: join`) or that
    were dropped for want of room.
    """
    found = get_planned(transaction, name)
    given = [
        (key.removeprefix(KEY_PREFIX), value) for key, value in request.query_params.multi_items() if key.startswith(KEY_PREFIX)
    ]
    wanted, faults = LateFilter(reason, judged_by), ParameterFaults()
    with faults.part():
        wanted = replace(wanted, from_ms=_instant("from", from_time))
    with faults.part():
        wanted = replace(wanted, to_ms=_instant("to", to_time))
    with faults.part():
        wanted = replace(wanted, key=_key(found.plan, given, KEY_PREFIX))
    faults.raise_all()
    beyond = decode_cursor(cursor, [int])
    most = Most(limit + 1, services.settings.limits.page_bytes)
    numbered = PageOf(most, None if beyond is None else int(beyond[0]), is_ascending=order == "asc")
    rows, following = page(late_records_of(transaction, found.row.id, wanted, numbered), limit, lambda row: [row.id])
    items = [
        LateRecord(
            id=row.id, input=row.input, reason=row.reason, event_time_ms=row.event_time_ms, stream_time_ms=row.stream_time_ms,
            offset=row.offset, record=_parsed(row.record), at=row.at, replayed_at=row.replayed_at, replay_id=row.replay_id,
        )
        for row in rows
    ]  # fmt: skip
    counts = [
        Counter(input=where, reason=why, count=number)
        for where, why, number in counted_for(transaction, found.row.id)
        if reason in (None, why) and judged_by in (None, where)
    ]
    return LateRecordPage(items=items, next=following, counters=counts)


@router.post(
    "/{name}/late-records/replay",
    summary="Replay late records",
    status_code=202,
    response_model=ReplayAnswer,
    responses={
        202: answered(REPLAYED, "Noted; the query's next batch brings them."),
        **problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra=request_body(
        "ReplayBody",
        body_examples(
            ids=("Chosen ones", REPLAY_BY_ID),
            filter=("Those of a key and a day", REPLAY_BY_FILTER),
            all=("All that were not replayed before", {"filter": {}}),
        ),
    ),
    dependencies=[known_parameters()],
)
def post_replay(name: Name, body: JsonBody, transaction: Transaction) -> ReplayAnswer:
    """Hand late records to the query again: exactly once each, also across crashes, unless `again` is asked for.

    A replayed record is joined **now, as of its own event time**, by the definition in force when the query takes it: as the late policy
    `join` would have done. It is not judged again, does not wait, and moves no clock of the join. What comes of it goes through the rest
    of the query like any other row (a window behind the join that has closed refuses it, and it is late there) and is marked: the result's
    records and changes have `"$replayed": true`; the late record has `replayed_at` and `replay_id`; `replayed` is counted.

    The filter `{}` means all late records that were not replayed before. Ten thousand go at once: where `more` is true, repeat the request.

    It is for records that a join of a stream with a table dropped, diverted, or found without history (`late_dropped`, `late_diverted`,
    `expired_dropped`, `expired_diverted`). Others are refused with `replay_not_possible`: what closed windows or a table's expired history
    refused could only be taken in by changing what was told as final. A filter passes over them and says how many they are; where
    nothing else is left, or one is named by its id, the answer is 409.
    """
    wanted = validated(ReplayBody, body)
    found = get_planned(transaction, name, is_locking=True)
    chosen = LateFilter() if wanted.filter is None else _filter(found.plan, wanted.filter)
    done = replay(transaction, found, chosen, wanted.ids, is_again=wanted.again)
    _check(name, wanted, done)
    return ReplayAnswer(
        replay_id=done.id,
        accepted=len(done.accepted),
        already_replayed=len(done.already),
        refused_count=len(done.refused),
        refused=[RefusedReplay(id=number, code=why.code, detail=why.detail) for number, why in done.refused[:SHOWN_REFUSALS]],
        position={feed: dict(partitions) for feed, partitions in done.position.items()},
        more=done.has_more,
    )


def _check(name: str, wanted: ReplayBody, done: Replay) -> None:
    """Refuse what cannot be done as it was asked; the transaction is rolled back."""
    if done.missing:
        places = {number: place for place, number in enumerate(wanted.ids or ())}
        faults = [
            Fault(f"/ids/{places[number]}", "late_record_not_found", f"there is no late record {number}")
            for number in done.missing
        ]
        raise NotFound("late_record_not_found", f"query '{name}' keeps no late record {done.missing[0]}", faults[:SHOWN_REFUSALS])
    if done.refused and (wanted.ids is not None or not done.accepted):
        faults = [Fault(_pointer(wanted, number), why.code, why.detail) for number, why in done.refused[:SHOWN_REFUSALS]]
        raise Conflict("replay_not_possible", f"{len(done.refused)} cannot be replayed: {done.refused[0][1].detail}", faults)


def _pointer(wanted: ReplayBody, number: int) -> str:
    return "/filter" if wanted.ids is None else f"/ids/{wanted.ids.index(number)}"


def _filter(plan: Plan, wanted: LateRecordFilter) -> LateFilter:
    first, end = (None if bound is None else parse_instant_ms(str(bound)) for bound in (wanted.from_, wanted.to))
    given = [(name, json.dumps(value) if isinstance(value, bool) else str(value)) for name, value in wanted.key.items()]
    return LateFilter(wanted.reason, wanted.input, first, end, _key(plan, given, "/filter/key/"))


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
    """Return the record as JSON without the plan's own columns; an excerpt that was cut stays text."""
    try:
        read = json.loads(record)
    except ValueError:
        return record
    return {name: value for name, value in read.items() if not _PLANS_OWN.search(name)}

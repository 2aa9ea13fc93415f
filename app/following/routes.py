"""GET …/changes: push reads of tables and streams, as an event stream or page by page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.catalog.stored.relations import Kind
from app.errors.app_errors import BadRequest, Fault
from app.following.changes import ChangeFollower, ChangeSource, Start, begin
from app.following.cursors import MAX_CURSOR_CHARS, ChangeCursor
from app.following.followed import Followables
from app.following.given_cursors import read_cursor
from app.following.push import PushEvent, event_stream, events_documented, refuse_of_pages, wants_events
from app.following.tails.tails import Tails
from app.http.answers.documented import answered, problems
from app.http.answers.negotiation import JSON_TYPE
from app.http.parameters import DEFAULT_LIMIT, MAX_LIMIT, Name, OnlyKnownParameters, Services, ServicesOf
from app.http.schemas import Answer


class Change(Answer):
    """One change, or one row of a snapshot. A change that comes from a replayed late record also has ``$replayed``: true."""

    kind: Literal["change", "snapshot"] = Field(
        description="`snapshot`: a row as of the snapshot; `change`: a change of a row, or a record."
    )
    op: Literal["upsert", "delete", "append"] = Field(description="`append` in a stream.")
    partition: int | None = Field(description="Partition of the log; null for a row of a snapshot.")
    sequence: int | None = Field(
        default=None, description="Number of the change over all partitions of a derived relation; absent for sources."
    )
    part: str | None = Field(
        default=None,
        description="The part of the stream that has the record, if a query appends it; absent: the stream's own log.",
    )
    offset: int | None = Field(description="Offset in the partition; null for a row of a snapshot.")
    event_time_ms: int = Field(description="Result time. For a versioned table, keep the greatest of a key, deletes included.")
    key: dict[str, Any] = Field(description="The key, as columns by name; empty if a stream has no key.")
    row: dict[str, Any] | None = Field(description="Null for a delete.")


class ChangesAnswer(Answer):
    """A page of changes. There is always a next page."""

    name: str = Field(description="Name of the relation.")
    phase: Literal["snapshot", "changes"] = Field(description="`snapshot` until all rows of the snapshot are sent.")
    changes: list[Change] = Field(description="Rows of the snapshot, or changes; empty if there is nothing new.")
    next: str = Field(description="Cursor to continue with, now or later; the same as an event's id.")
    caught_up: bool = Field(description="The page reached the end of the log when it was read.")


MAX_WAIT_SECONDS = 60
streams = APIRouter(prefix="/v1/streams", tags=["reads"], dependencies=[OnlyKnownParameters])
tables = APIRouter(prefix="/v1/tables", tags=["reads"], dependencies=[OnlyKnownParameters])

_TABLE_PAGE = {
    "name": "delays_by_airport",
    "phase": "changes",
    "changes": [
        {
            "kind": "change",
            "op": "upsert",
            "partition": 0,
            "offset": 4711,
            "event_time_ms": 1357038000000,
            "key": {"origin": "JFK", "window_start": "2013-01-01T10:00:00Z", "window_end": "2013-01-01T11:00:00Z"},
            "row": {"origin": "JFK", "window_start": "2013-01-01T10:00:00Z", "window_end": "2013-01-01T11:00:00Z", "flights": 17},
        }
    ],
    "next": "5d41402abc4b2a76.4712",
    "caught_up": True,
}
_STREAM_PAGE = {
    "name": "departures",
    "phase": "changes",
    "changes": [
        {
            "kind": "change",
            "op": "append",
            "partition": 0,
            "offset": 9000,
            "event_time_ms": 1357035420000,
            "key": {"origin": "EWR"},
            "row": {"origin": "EWR", "flight": 1545},
        }
    ],
    "next": "7215ee9c7d9dc229.9001_0",
    "caught_up": True,
}
_EVENTS = (
    'retry: 1000\nevent: position\ndata: {}\nid: 5d41402abc4b2a76.4711\n\nevent: change\ndata: {"op":"upsert","partition":0,"offset":4711,'
    '"event_time_ms":1357038000000,"key":{"origin":"JFK"},"row":{"origin":"JFK","flights":17}}\nid: 5d41402abc4b2a76.4712\n\n'
)
_ERRORS = problems(400, 404, 406, 409, 410, 429)


def _ok(page: object) -> dict[str, object]:
    documented = answered(page, "A page, or with `Accept: text/event-stream` everything from here on.")
    documented["content"] |= events_documented(_EVENTS)
    return documented


class FollowParameters(BaseModel):
    """Parameters of a page or an event stream of a table's changes."""

    model_config = ConfigDict(frozen=True)

    from_: Start | None = Field(
        None,
        alias="from",
        description="Where to begin without a cursor. `snapshot`: the current rows, then changes. `earliest` (default): the oldest change "
        "in the log. `latest`: only new changes.",
    )
    cursor: str | None = Field(
        None,
        max_length=MAX_CURSOR_CHARS,
        description="`next` of a page, or the id of an event: continue behind it. Not with `from`.",
    )
    bigints: Literal["number", "string"] = Field(
        "number", description="How bigint and decimal values are written: many clients lose digits of numbers beyond 2^53."
    )
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Changes in a page, at most; fewer if they are large.")
    wait: float = Field(0.0, ge=0, le=MAX_WAIT_SECONDS, description="Pages only: seconds to wait for the first change.")


class FollowStreamParameters(FollowParameters):
    """The same parameters for a stream. A stream has no rows to begin with."""

    from_: Literal["earliest", "latest"] | None = Field(
        None,
        alias="from",
        description="Where to begin without a cursor. `earliest` (default): the oldest record in the log. `latest`: only new records.",
    )


LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=MAX_CURSOR_CHARS,
        description="Id of the last event; clients send it when they reconnect. It overrides `cursor` and `from`.",
    ),
]


@tables.get(
    "/{name}/changes", summary="Follow a table", response_model=ChangesAnswer, responses={200: _ok(_TABLE_PAGE), **_ERRORS}
)
async def get_table_changes(
    name: Name,
    request: Request,
    services: ServicesOf,
    asked: Annotated[FollowParameters, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Every change of a table, each exactly once, from a snapshot, from the oldest change in the log, or behind a cursor.

    Fold changes by key: an `upsert` sets the row, a `delete` removes it. In a versioned table, ignore a change whose time is older than the
    row's time. Windows that end by retention have no change for it. A client may leave a snapshot at any event and continue it later.
    During a snapshot, changes of rows that the client already has come between the rows.
    """
    requested = await _follow_request(services, "table", name, asked)
    return await _answer(request, services, requested, last_event_id)


@streams.get(
    "/{name}/changes", summary="Follow a stream", response_model=ChangesAnswer, responses={200: _ok(_STREAM_PAGE), **_ERRORS}
)
async def get_stream_changes(
    name: Name,
    request: Request,
    services: ServicesOf,
    asked: Annotated[FollowStreamParameters, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Every record of a stream, each exactly once: in offset order within a partition, in no order across partitions.

    If queries append to the stream (`into.append_to`), their records are included: each query's part in the order of its numbers; `part`
    has its name. A part that is added later is followed from its beginning, behind any cursor.
    """
    requested = await _follow_request(services, "stream", name, asked)
    return await _answer(request, services, requested, last_event_id)


@dataclass(frozen=True, slots=True)
class _FollowRequest:
    """The source and the parameters of a request."""

    source: ChangeSource
    asked: FollowParameters


async def _follow_request(services: Services, kind: Kind, name: str, asked: FollowParameters) -> _FollowRequest:
    if asked.cursor is not None and asked.from_ is not None:
        detail = "`cursor` says where to continue, `from` where to begin: send one of them"
        raise BadRequest("bad_parameter", detail, [Fault("?from", "bad_parameter", detail)])
    followed = await services.of(Followables).find(kind, name)
    return _FollowRequest(ChangeSource(followed, asked.bigints == "string"), asked)


async def _answer(request: Request, services: Services, requested: _FollowRequest, last_event_id: str | None) -> Response:
    source, asked = requested.source, requested.asked
    is_stream = wants_events(request)
    if is_stream:
        refuse_of_pages(request, "limit", "wait")
    # After a reset, a client sends an empty id: it has no cursor.
    cursor = last_event_id or asked.cursor
    start = asked.from_ or "earliest" if cursor is None else read_cursor(source.followed, cursor)
    if not is_stream:
        return await _page(services, source, start, asked)

    @asynccontextmanager
    async def opening() -> AsyncIterator[ChangeFollower]:
        begun = await begin(services.of(Tails), source, start)
        async with services.of(Tails).following(source, begun.news) as tail:
            yield ChangeFollower(services.of(Tails), source, begun, tail)

    return event_stream(request, services, opening)


async def _page(services: Services, source: ChangeSource, start: Start | ChangeCursor, asked: FollowParameters) -> Response:
    begun = await begin(services.of(Tails), source, start)
    most = services.settings.limits.page_bytes
    if asked.wait <= 0:
        follower = ChangeFollower(services.of(Tails), source, begun, most_bytes=most)
        return _page_response(follower, source, await follower.next(asked.limit))
    async with services.of(Tails).following(source, begun.news) as tail:
        follower = ChangeFollower(services.of(Tails), source, begun, tail, most_bytes=most)
        deadline = time.monotonic() + asked.wait
        events = await follower.next(asked.limit)
        while not events and (left := deadline - time.monotonic()) > 0 and not services.of(Tails).is_closing:
            await follower.wait(left)
            events = await follower.next(asked.limit)
    return _page_response(follower, source, events)


def _page_response(follower: ChangeFollower, source: ChangeSource, events: list[PushEvent]) -> Response:
    items = ",".join(f'{{"kind":"{event.kind}",{event.json[1:]}' for event in events if event.kind != "snapshot_end")
    phase = "changes" if follower.cursor.rows_after is None else "snapshot"
    caught_up = "true" if follower.is_caught_up else "false"
    return Response(
        f'{{"name":"{source.followed.name}","phase":"{phase}","changes":[{items}],"next":"{follower.id}","caught_up":{caught_up}}}',
        media_type=JSON_TYPE,
    )

"""Events of a query, page by page or as an event stream."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
from fastapi import APIRouter, Header, Request, Response

from app.catalog.stored.queries import query_not_found
from app.db import log_tables
from app.db.page_bounds import Most
from app.errors.app_errors import BadRequest, Fault, Gone
from app.following.push import event_stream, events_documented, refuse_of_pages, wants_events
from app.following.query_events.event_log import EventFollower, EventSource, mark_of
from app.following.tails.tails import Tails
from app.http.answers.documented import answered, problems
from app.http.examples import EVENTS
from app.http.parameters import DEFAULT_LIMIT, Limit, Name, OnlyKnownParameters, Services, ServicesOf
from app.http.requests.paging import Cursor, decode_cursor, page
from app.status.history import sql as history
from app.status.history.models import Event, EventPage

router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])
_EXAMPLE = (
    'retry: 1000\nevent: position\ndata: {}\nid: 41\n\nevent: event\ndata: {"id":42,"at":"2025-11-21T08:00:00Z","kind":"query_transitioned",'
    '"from_state":"starting","to_state":"running","epoch":3,"actor":"driver","detail":null}\nid: 42\n\n'
)
_OK = answered(EVENTS, "Events, oldest first; or with `Accept: text/event-stream` everything from here on.")
_OK["content"] |= events_documented(_EXAMPLE)
_EVENT_ID = re.compile(r"([0-9]{1,19})(?:-([0-9a-f]{8}))?")
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=30,
        description="The `id` of the last event; clients send it when they reconnect. It overrides `cursor`.",
    ),
]


@router.get(
    "/{name}/events",
    summary="List or follow what happened to a query",
    response_model=EventPage,
    responses={200: _OK, **problems(400, 404, 406, 429)},
)
async def get_events(
    name: Name,
    request: Request,
    services: ServicesOf,
    last_event_id: LastEventId = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Any:
    """Every transition and every edit, also of the desired state. Append-only; an event stream begins with the oldest event and continues."""
    key = decode_cursor(cursor, [int])
    is_stream = wants_events(request)
    if is_stream:
        refuse_of_pages(request, "limit")
    async with services.database.paging() as connection:
        query_id = await history.find_query_id(connection, name)
        if query_id is None:
            raise query_not_found(name)
        incarnation = (await connection.execute(sa.select(log_tables.incarnation.c.id))).scalar_one_or_none()
        after = _last_id(last_event_id, incarnation) or (0 if key is None else int(key[0]))
        if not is_stream:
            most = Most(limit + 1, services.settings.limits.page_bytes)
            events = await history.events_of(connection, query_id, most, after)
            rows, following = page(events, limit, lambda row: [row.id])
            return EventPage(items=[_event(row._asdict()) for row in rows], next=following)
    return _stream(request, services, EventSource(query_id, _encode, incarnation), after)


def _stream(request: Request, services: Services, source: EventSource, after: int) -> Response:
    @asynccontextmanager
    async def opening() -> AsyncIterator[EventFollower]:
        async with services.of(Tails).following(source, await services.of(Tails).look(source)) as tail:
            yield EventFollower(services.of(Tails), source, after, tail)

    return event_stream(request, services, opening)


def _last_id(text: str | None, incarnation: UUID | None) -> int | None:
    if not text:  # after a reset, a client sends an empty id: it has no position
        return None
    match = _EVENT_ID.fullmatch(text)
    if match is None or int(match[1]) >= 2**63:
        detail = "send the id of the last event that you received, or none"
        raise BadRequest("bad_cursor", detail, [Fault("Last-Event-ID", "bad_cursor", detail)])
    if match[2] != (None if incarnation is None else mark_of(incarnation)):
        raise Gone("cursor_expired", "the id is from before the database was restored: start from scratch without an id")
    return int(match[1])


def _event(row: Mapping[str, Any]) -> Event:
    return Event(**{name: row[name] for name in Event.model_fields})


def _encode(row: Mapping[str, Any]) -> str:
    return _event(row).model_dump_json()

"""Pages of launches and rejects. Routes of events are in ``app.following.query_events``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.rules import WITHHELD, may_see_files
from app.access.scopes_sql import find_feed_within_scope
from app.catalog.stored.queries import query_not_found
from app.catalog.stored.relations import Kind, entry_of_row, find_relation_async, of_kind
from app.db.page_bounds import Most, bounded
from app.db.tables import query, query_event, query_run, reject
from app.http.answers.documented import answered, problems
from app.http.examples import REJECTS, RUNS
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import DEFAULT_LIMIT, Limit, Name, OnlyKnownParameters, Services, ServicesOf
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import Answer, QueryError


class Event(Answer):
    """An event of a query."""

    id: int = Field(description="Rises with every event of the service.")
    at: datetime = Field(description="Time of the event.")
    kind: str = Field(description="Kind of event.", examples=["query_transitioned"])
    from_state: str | None = Field(description="State before; null if the state did not change.")
    to_state: str | None = Field(description="State after; null if the state did not change.")
    epoch: int | None = Field(description="Number of its launch; null: it belongs to none.")
    actor: str = Field(description="Who did it: `driver`, a key, `oidc:` and a name, or `api` if the service requires no key.")
    detail: dict[str, Any] | None = Field(description="More about it, by kind; null: nothing more.")


class EventPage(Answer):
    """Events, oldest first; ``next`` resumes behind the last one."""

    items: list[Event] = Field(description="Events, oldest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class Run(Answer):
    """One launch of a query."""

    epoch: int = Field(description="Number of the launch.")
    generation: int = Field(description="Generation of its definition.")
    driver_id: str | None = Field(description="The driver that launched it; null: unknown.")
    started_at: datetime = Field(description="Start of the launch.")
    running_at: datetime | None = Field(description="Time when it was running; null: not yet, or never.")
    ended_at: datetime | None = Field(description="End of the launch; null: it has not ended.")
    end_reason: str | None = Field(description="Why it ended, as a code; null: it has not ended.")
    error: QueryError | None = Field(description="The error that ended it.")


class RunPage(Answer):
    """Launches, newest first."""

    items: list[Run] = Field(description="Launches, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class Reject(Answer):
    """A record that could not be read."""

    id: int = Field(description="Rises with every reject of the service.")
    partition: int | None = Field(description="Its partition in the feed; null if it never entered the feed.")
    offset: int | None = Field(description="Its offset in the feed; null if it never entered the feed.")
    reason: str = Field(description="Why it was rejected, as a code; `GET /v1/errors/{code}` explains it.")
    detail: str = Field(description="What is wrong with it.")
    excerpt: str | None = Field(
        description="Its first characters; null if it is from a file and the key is not an admin's, or from a feed that also has relations "
        "outside of the key's scope."
    )
    at: datetime = Field(description="Time of the rejection.")


class RejectPage(Answer):
    """Rejects, newest first."""

    items: list[Reject] = Field(description="Rejects, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    kept: dict[str, int] = Field(description="Reason to number of stored rejects.", examples=[{"event_time_missing": 8255}])


router = APIRouter(prefix="/v1", dependencies=[OnlyKnownParameters])
Reason = Annotated[str | None, Query(max_length=100, pattern="^[a-z_]+$", description="Only rejects with this reason.")]


@router.get(
    "/queries/{name}/runs",
    summary="List a query's launches",
    tags=["queries"],
    response_model=RunPage,
    responses={200: answered(RUNS, "Launches, newest first."), **problems(400, 404)},
)
@cancel_on_client_disconnect
async def get_runs(
    name: Name,
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> RunPage:
    """Launches of a query. Each has its own epoch; `end_reason` says why it ended."""
    before = _number(cursor)
    async with services.database.paging() as connection:
        query_id = await get_query_id(connection, name)
        runs = await runs_of(connection, query_id, Most(limit + 1, services.settings.limits.page_bytes), before)
    rows, following = page(runs, limit, lambda row: [row.epoch])
    items = [
        Run(
            epoch=row.epoch, generation=row.generation, driver_id=None if row.driver_id is None else str(row.driver_id),
            started_at=row.started_at, running_at=row.running_at, ended_at=row.ended_at, end_reason=row.end_reason, error=row.error,
        )
        for row in rows
    ]  # fmt: skip
    return RunPage(items=items, next=following)


_REJECTS: dict[int | str, dict[str, Any]] = {200: answered(REJECTS, "Stored rejects, newest first."), **problems(400, 404)}


@router.get(
    "/streams/{name}/rejects", summary="List a stream's rejects", tags=["records"], response_model=RejectPage, responses=_REJECTS
)
@cancel_on_client_disconnect
async def get_stream_rejects(
    name: Name,
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
    reason: Reason = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> RejectPage:
    """Records that could not be read, each with its reason, its offset, and an excerpt. They never stop a query.

    Only the role `admin` sees details and excerpts of records from files. If a feed also has relations outside of the key's scope, its
    rejects have no excerpt, because a rejected record may belong to one of those relations.
    """
    return await _rejects("stream", name, services, reason, limit, cursor)


@router.get(
    "/tables/{name}/rejects", summary="List a table's rejects", tags=["records"], response_model=RejectPage, responses=_REJECTS
)
@cancel_on_client_disconnect
async def get_table_rejects(
    name: Name,
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
    reason: Reason = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> RejectPage:
    """Records that could not be read, each with its reason, its offset, and an excerpt. They never stop a query.

    Only the role `admin` sees details and excerpts of records from files. If a feed also has relations outside of the key's scope, its
    rejects have no excerpt, because a rejected record may belong to one of those relations.
    """
    return await _rejects("table", name, services, reason, limit, cursor)


async def _rejects(kind: Kind, name: str, services: Services, reason: str | None, limit: int, cursor: str | None) -> RejectPage:
    before = _number(cursor)
    async with services.database.paging() as connection:
        relation = of_kind(await find_relation_async(connection, name), kind, name)
        most = Most(limit + 1, services.settings.limits.page_bytes)
        rejects = await rejects_of(connection, relation.name, most, before, reason)
        counts = await rejects_by_reason(connection, relation.name)
        is_feed_shown = await find_feed_within_scope(connection, relation.name)
    rows, following = page(rejects, limit, lambda row: [row.id])
    is_shown = may_see_files() or not entry_of_row(relation).feed.traits.is_of_host
    items = [
        Reject(
            id=r.id, partition=r.partition, offset=r.offset, reason=r.reason, detail=r.detail if is_shown else WITHHELD,
            excerpt=r.excerpt if is_shown and (is_feed_shown or r.offset is None) else None, at=r.at,
        )
        for r in rows
    ]  # fmt: skip
    return RejectPage(items=items, next=following, kept=counts)


def _number(cursor: str | None) -> int | None:
    key = decode_cursor(cursor, [int])
    return None if key is None else int(key[0])


async def get_query_id(connection: AsyncConnection, name: str) -> UUID:
    """Return the id of the query of that name.

    Raises:
        NotFound: ``query_not_found``.
    """
    ids = await connection.execute(sa.select(query.c.id).where(query.c.name == name, query.c.deleted_at.is_(None)))
    query_id: UUID | None = ids.scalar_one_or_none()
    if query_id is None:
        raise query_not_found(name)
    return query_id


async def events_of(connection: AsyncConnection, query_id: UUID, most: Most, after: int | None) -> Sequence[sa.Row[Any]]:
    """Return events, oldest first."""
    statement = sa.select(query_event).where(query_event.c.query_id == query_id).order_by(query_event.c.id).limit(most.items)
    if after is not None:
        statement = statement.where(query_event.c.id > after)
    events: sa.CursorResult[Any] = await connection.execute(bounded(statement, ("detail",), most.bytes))
    return events.all()


async def runs_of(connection: AsyncConnection, query_id: UUID, most: Most, before: int | None) -> Sequence[sa.Row[Any]]:
    """Return launches, newest first."""
    statement = sa.select(query_run).where(query_run.c.query_id == query_id).order_by(query_run.c.epoch.desc()).limit(most.items)
    if before is not None:
        statement = statement.where(query_run.c.epoch < before)
    runs: sa.CursorResult[Any] = await connection.execute(bounded(statement, ("error",), most.bytes))
    return runs.all()


async def rejects_of(
    connection: AsyncConnection, owner: str, most: Most, before: int | None, reason: str | None
) -> Sequence[sa.Row[Any]]:
    """Return stored rejects of a relation, newest first."""
    statement = sa.select(reject).where(reject.c.owner == owner).order_by(reject.c.id.desc()).limit(most.items)
    if before is not None:
        statement = statement.where(reject.c.id < before)
    if reason is not None:
        statement = statement.where(reject.c.reason == reason)
    rejects: sa.CursorResult[Any] = await connection.execute(bounded(statement, ("detail", "excerpt"), most.bytes))
    return rejects.all()


async def rejects_by_reason(connection: AsyncConnection, owner: str) -> dict[str, int]:
    """Return the number of stored rejects of a relation by reason."""
    rows = await connection.execute(
        sa.select(reject.c.reason, sa.func.count())
        .where(reject.c.owner == owner)
        .group_by(reject.c.reason)
        .order_by(reject.c.reason)
    )
    return dict(rows.all())

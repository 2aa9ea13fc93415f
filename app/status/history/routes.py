"""Pages of launches and rejects. Events are in ``query_events``."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.rules import WITHHELD, may_see_files
from app.access.scopes_sql import find_feed_within_scope
from app.catalog.stored.queries import query_not_found
from app.catalog.stored.relations import Kind, entry_of_row, find_relation_async, of_kind
from app.db.page_bounds import Most
from app.http.answers.documented import answered, problems
from app.http.examples import REJECTS, RUNS
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import DEFAULT_LIMIT, Limit, Name, OnlyKnownParameters, Services, ServicesOf
from app.http.requests.paging import Cursor, decode_cursor, page
from app.status.history import sql as history
from app.status.history.models import Reject, RejectPage, Run, RunPage

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
        query_id = await _query_id(connection, name)
        runs = await history.runs_of(connection, query_id, Most(limit + 1, services.settings.limits.page_bytes), before)
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
        rejects = await history.rejects_of(connection, relation.name, most, before, reason)
        counts = await history.rejects_by_reason(connection, relation.name)
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


async def _query_id(connection: AsyncConnection, name: str) -> UUID:
    query_id = await history.find_query_id(connection, name)
    if query_id is None:
        raise query_not_found(name)
    return query_id


def _number(cursor: str | None) -> int | None:
    key = decode_cursor(cursor, [int])
    return None if key is None else int(key[0])

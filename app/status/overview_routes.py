"""GET /v1/overview: every query with its state and its numbers in one answer, for screens that show all queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request

from app.access.rules import visible
from app.access.scopes import is_internal
from app.catalog.deliveries.rules import DeliveryFacts
from app.catalog.drivers.placement import reason_for_waiting
from app.catalog.drivers.ready_drivers import find_drivers
from app.catalog.warned import Reason
from app.http.answers.documented import answered, problems
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import MAX_LIMIT, OnlyKnownParameters, Services, ServicesOf
from app.http.requests.paging import Cursor, decode_cursor, page
from app.status.conditions import conditions_of, reason_of
from app.status.overview import QueryAtGlance, look
from app.status.overview_models import OVERVIEW, OverviewAnswer, OverviewDelivery, OverviewQuery, OverviewRead, OverviewRelation
from app.status.routes import delivery_answer
from app.status.sql import Status

DEFAULT_QUERIES = 1_000
router = APIRouter(prefix="/v1", tags=["queries"], dependencies=[OnlyKnownParameters])
Queries = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many queries at most.")]


@router.get(
    "/overview",
    summary="Show all queries at a glance",
    response_model=OverviewAnswer,
    responses={200: answered(OVERVIEW, "Queries with their numbers, as of now."), **problems(400)},
)
@cancel_on_client_disconnect
async def get_overview(
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
    limit: Queries = DEFAULT_QUERIES,
    cursor: Cursor = None,
) -> OverviewAnswer:
    """State, lag, waiting and late records, batch duration, inputs and result of all queries in one answer.

    A few statements read committed facts, whatever the number of queries, so clients may ask every few seconds.
    `GET /v1/queries/{name}/status` says more about one query.
    """
    after = decode_cursor(cursor, [str])
    async with services.database.paging() as connection:
        overview = await look(connection, limit + 1, None if after is None else str(after[0]))
    shown, following = page(overview.queries, limit, lambda each: [each.status.name])
    waits = await _waits(services, [each.status for each in shown if each.status.is_unplaced])
    named = {name for each in shown for name in (*(read.relation for read in each.reads), each.writes)}
    return OverviewAnswer(
        at=datetime.now(UTC),
        queries=[_query(each, waits.get(each.status.name)) for each in shown],
        relations=[
            OverviewRelation(name=each.name, kind=each.kind, origin=each.origin, appended=each.appended)
            for each in overview.relations
            if each.name in named
        ],
        next=following,
    )


async def _waits(services: Services, unplaced: list[Status]) -> dict[str, Reason]:
    """Return why these queries have no driver."""
    if not unplaced:
        return {}
    silent_ms = services.settings.driver.lease_ttl_ms
    reasons: dict[str, Reason] = {}
    async with services.database.reads.connect() as connection:
        # Internal queries do not count against a driver's limit, so the drivers with room differ for them.
        drivers_by_kind = {
            kind: await find_drivers(connection, silent_ms, name)
            for kind, name in {is_internal(s.name): s.name for s in unplaced}.items()
        }
    for each in unplaced:
        drivers, starting = drivers_by_kind[is_internal(each.name)]
        reason = reason_for_waiting(drivers, starting, each.name, each.state_root, has_results=each.batch_id is not None)
        if reason is not None:
            reasons[each.name] = reason
    return reasons


def _query(overview: QueryAtGlance, waits: Reason | None) -> OverviewQuery:
    status, detail = overview.status, overview.status.detail or {}
    phases_ms = detail.get("phases_ms") or {}
    return OverviewQuery(
        name=status.name,
        state=status.state,
        phase=status.phase,
        desired_state=status.desired_state,
        conditions=conditions_of(status, waits),
        reason=reason_of(status, waits),
        state_since=status.state_since,
        internal=is_internal(status.name),
        batch_id=status.batch_id,
        committed_at=status.committed_at,
        stream_time_ms=status.stream_time_ms,
        batch_ms=None if status.batch_id is None else phases_ms.get("process", 0) + phases_ms.get("sink", 0),
        read_rows=sum((detail.get("read_rows") or {}).values()),
        emitted_rows=detail.get("emitted_rows") or 0,
        lag=overview.lag,
        waiting=sum(sum(tasks.values()) for tasks in (detail.get("buffered") or {}).values()),
        late=overview.late,
        reads=[OverviewRead(relation=read.relation, lag=read.lag, read_rows=read.read_rows) for read in overview.reads],
        writes=overview.writes,
        delivery=None if overview.delivery is None else _delivery(overview.delivery),
        fork_of=None if overview.fork_of is None else visible(overview.fork_of),
    )


def _delivery(facts: DeliveryFacts) -> OverviewDelivery:
    state, reason = delivery_answer(facts)
    return OverviewDelivery(state=state, reason=reason, lag_rows=facts.lag_rows)

"""GET /v1/overview: every query with its state and its numbers in one answer, for screens that show all queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from app.access.rules import visible
from app.access.scopes import is_internal
from app.catalog.deliveries.rules import DeliveryFacts, DeliveryState
from app.catalog.drivers.placement import reason_for_waiting
from app.catalog.drivers.sql import find_drivers
from app.catalog.warned import Reason
from app.http.answers.documented import answered, problems
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import MAX_LIMIT, OnlyKnownParameters, Services, ServicesOf
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import Answer, DesiredState, QueryState
from app.status.conditions import conditions_of, reason_of
from app.status.models import DeliveryTrouble
from app.status.models import Reason as ReasonAnswer
from app.status.overview import QueryAtGlance, look
from app.status.routes import delivery_answer
from app.status.sql import Status


class OverviewRead(Answer):
    """A relation that a query reads, and its progress there."""

    relation: str = Field(description="The relation that is read.", examples=["departures"])
    lag: int | None = Field(
        description="Unread records of its feed; null before the query's first commit, and for feeds outside the built-in log."
    )
    read_rows: int | None = Field(
        description="Records of its feed read since the query began with this state; null as `lag`. Relations of one feed share it."
    )


class OverviewDelivery(Answer):
    """The delivery of a query's results (`into.connector`)."""

    state: DeliveryState = Field(description="As in the query's status.")
    reason: DeliveryTrouble | None = Field(description="Why it is not delivering; null: it is.")
    lag_rows: int = Field(description="Rows that are not delivered yet.", examples=[120])


class OverviewQuery(Answer):
    """A query in the overview."""

    name: str = Field(description="Name of the query.", examples=["delays_by_airport"])
    state: QueryState = Field(description="Current state.")
    phase: str | None = Field(description="Step inside its state, as in its status.")
    desired_state: DesiredState = Field(description="The desired state.")
    conditions: list[str] = Field(
        description="`unreachable`, `unplaced`, `stale`, as in its status. The conditions `waits_for_…` are in the status only: they need"
        " its inputs."
    )
    reason: ReasonAnswer | None = Field(description="Its error, or why it has no driver; null: neither.")
    state_since: datetime = Field(description="Start of this state.")
    internal: bool = Field(
        description="It materialises the rows of a source (`materialize`) and follows that table's definition."
    )
    batch_id: int | None = Field(description="Number of the last committed batch; null before the first.")
    committed_at: datetime | None = Field(description="Time of its last commit; null before the first commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit: milliseconds since 1970; null before the first record."
    )
    batch_ms: int | None = Field(
        description="Milliseconds of its last batch: work of its tasks, and the commit; null before the first.", examples=[41]
    )
    read_rows: int = Field(description="Records read since the query began with this state.", examples=[27004])
    emitted_rows: int = Field(description="Records or changes of rows written since then.", examples=[1743])
    lag: int | None = Field(
        description="Unread records; null before its first commit, and if the ends of its feeds are unknown (files)."
    )
    waiting: int = Field(description="Records that wait in all operators and tasks.", examples=[118])
    late: int = Field(
        description="Records that came too late, whatever became of them, since it began with this state.", examples=[42]
    )
    reads: list[OverviewRead] = Field(description="The relations that it reads, by name.")
    writes: str | None = Field(description="The relation that it writes; null if it writes none of its own.")
    fork_of: str | None = Field(
        description="The query that it is a fork of, by its current name; null: it is not a fork, or the original is deleted."
    )
    delivery: OverviewDelivery | None = Field(description="Delivery of its results; null: they are not delivered.")


class OverviewRelation(Answer):
    """A stream or a table that one of the queries reads or writes."""

    name: str = Field(description="Name of the relation.", examples=["departures"])
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
    origin: Literal["source", "derived"] = Field(description="Registered by a user, or produced by a query.")
    appended: int | None = Field(
        description="Records, or changes of rows, ever appended to its feed; null if unknown here (files, topics).",
        examples=[27004],
    )


class OverviewAnswer(Answer):
    """An overview of all queries. The difference between two answers, divided by the time between them, is a rate."""

    at: datetime = Field(description="Time of the answer.")
    queries: list[OverviewQuery] = Field(description="Queries, by name.")
    relations: list[OverviewRelation] = Field(description="What they read and write, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


OVERVIEW: dict[str, Any] = {
    "at": "2025-11-21T08:00:01Z",
    "queries": [
        {
            "name": "delays_by_airport",
            "state": "running",
            "phase": None,
            "desired_state": "running",
            "conditions": [],
            "reason": None,
            "state_since": "2025-11-21T07:00:00Z",
            "internal": False,
            "batch_id": 412,
            "committed_at": "2025-11-21T08:00:00Z",
            "stream_time_ms": 1357041600000,
            "batch_ms": 41,
            "read_rows": 27004,
            "emitted_rows": 1743,
            "lag": 10,
            "waiting": 118,
            "late": 42,
            "reads": [{"relation": "departures", "lag": 10, "read_rows": 27004}],
            "writes": "delays_by_airport",
            "delivery": None,
            "fork_of": None,
        }
    ],
    "relations": [
        {"name": "delays_by_airport", "kind": "table", "origin": "derived", "appended": 1743},
        {"name": "departures", "kind": "stream", "origin": "source", "appended": 27014},
    ],
    "next": None,
}


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

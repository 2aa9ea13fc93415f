"""A query's status, at once or when it is reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.deliveries.rules import DeliveryFacts, DeliveryState, delivery_state
from app.catalog.deliveries.status import delivery_of
from app.catalog.drivers.ready_drivers import find_drivers
from app.catalog.drivers.waiting import reason_for_waiting
from app.catalog.reasons import Reason as Waiting
from app.catalog.stored.feeds_read import FeedEnd, feed_ends, feeds_read
from app.catalog.stored.queries import query_not_found
from app.db.notifications import wait_for_notification
from app.errors.app_errors import AppError
from app.http.answers.documented import answered, problems
from app.http.examples import STATUS
from app.http.parameters import Name, OnlyKnownParameters, Services, ServicesOf
from app.http.schemas import Counter, QueryState
from app.status.limiting import WINDOW_S, Facts, busiest_task_of, functions_of, limit_of, shares_of, slow_function
from app.status.models import (
    Delivery,
    DeliveryTrouble,
    Execution,
    FeedProgress,
    FunctionShare,
    PartitionProgress,
    Reason,
    Shares,
    StatusAnswer,
    TaskStatus,
    WaitingSpan,
)
from app.status.open_transactions import BlockedPartition, wait_for_transaction
from app.status.producers import WAITS_FOR_PRODUCER
from app.status.producers_sql import find_wait
from app.status.sql import Status, counters_of, find_status, find_status_by_id
from engine.plan.model import Feed

MAX_WAIT_SECONDS = 60
router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])

WaitFor = Annotated[
    QueryState | None,
    Query(description="Answer when the query has this state for the definition in force, when it failed, or at the timeout."),
]
WithTasks = Annotated[bool, Query(description="With the clock of each task, and what waits in it.")]
Timeout = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait at most.")]


@router.get(
    "/{name}/status",
    summary="Read a query's status",
    response_model=StatusAnswer,
    responses={
        200: answered(STATUS, "The status; with `wait_for`, compare `state`: the timeout answers 200 too."),
        **problems(400, 404),
    },
)
async def get_status(
    name: Name, services: ServicesOf, wait_for: WaitFor = None, timeout: Timeout = 30.0, tasks: WithTasks = False
) -> StatusAnswer:
    """State, progress per input, clocks, what waits inside, what was counted. Never waits for the driver itself."""
    async with services.database.reads.connect() as connection:
        found = await find_status(connection, name)
    if found is None:
        raise query_not_found(name)
    if wait_for is not None:
        found = await _when_reached(services, found, wait_for, time.monotonic() + timeout)
    return await _answer(services, found, has_tasks=tasks)


async def _when_reached(services: Services, status: Status, wanted: str, deadline: float) -> Status:
    with services.bell.listening(status.query_id, asyncio.Event()) as event:
        while True:
            async with services.database.reads.connect() as connection:
                found = await find_status_by_id(connection, status.query_id)
            if found is None:
                raise _gone(status)
            left = deadline - time.monotonic()
            if found.has_reached(wanted) or found.is_final or left <= 0:
                return found
            await wait_for_notification(event, left)


def _gone(status: Status) -> AppError:
    return query_not_found(status.name)


async def _answer(services: Services, status: Status, *, has_tasks: bool) -> StatusAnswer:
    async with services.database.reads.connect() as connection:
        feeds = await feeds_read(connection, status.query_id)
        ends = await feed_ends(connection, [feed.log_feed for feed in feeds if feed.traits.has_heads])
        counters = await counters_of(connection, status.query_id)
        delivery = await delivery_of(connection, status.query_id)
        waits = await _reason_for_waiting(services, connection, status) if status.is_unplaced else None
        # Only of several feeds one can wait for another; most queries are spared the look at what stands behind theirs.
        if status.state == "running" and not status.is_unreachable and len(feeds) > 1 and any(feed.is_derived for feed in feeds):
            waits = await find_wait(connection, status, [name for names in feeds.values() for name in names])
    if waits is None and status.state == "running" and not status.is_unreachable:
        waits = wait_for_transaction(_blocked_partitions(feeds, ends))
    detail = status.detail or {}
    progress = [_progress(feed, names, status, ends.get(feed.log_feed, {})) for feed, names in feeds.items()]
    facts = Facts(
        state=status.state,
        is_waiting=WAITS_FOR_PRODUCER in conditions_of(status, waits),
        is_merging=len(feeds) > 1 and any(feed.is_derived for feed in feeds),
        unread=sum(partition.lag or 0 for feed in progress for partition in feed.partitions),
        measured=(detail.get("execution") or {}).get("shares"),
        age_s=status.commit_age_s,
    )
    if waits is None and status.state == "running" and not status.is_unreachable:
        waits = slow_function(facts)
    return StatusAnswer(
        name=status.name,
        state=status.state,
        phase=status.phase,
        desired_state=status.desired_state,
        conditions=conditions_of(status, waits),
        reason=reason_of(status, waits),
        state_since=status.state_since,
        generation=status.generation,
        observed_generation=status.observed_generation,
        epoch=status.epoch,
        attempt=status.attempt,
        next_attempt_at=status.next_attempt_at,
        heartbeat_at=status.heartbeat_at,
        error=status.error,
        batch_id=status.batch_id,
        committed_at=status.committed_at,
        stream_time_ms=status.stream_time_ms,
        progress=progress,
        read_rows=sum(detail.get("read_rows", {}).values()),
        emitted_rows=detail.get("emitted_rows", 0),
        clocks={operator: _least(tasks) for operator, tasks in detail.get("clocks", {}).items()},
        buffered={operator: sum(tasks.values()) for operator, tasks in detail.get("buffered", {}).items()},
        tasks=_tasks(detail) if has_tasks else None,
        counters=[Counter(input=name, reason=reason, count=count) for name, reason, count in counters],
        execution=execution_of(detail.get("execution"), status.commit_age_s),
        limited_by=limit_of(facts),
        shares=_shares(facts),
        functions=[FunctionShare(name=name, share=share) for name, share in functions_of(facts).items()],
        delivery=None if delivery is None else _delivery(delivery),
        restorable_since=status.restorable_since,
    )


def execution_of(noted: Mapping[str, Any] | None, age_s: float | None) -> Execution | None:
    """Return what a commit recorded of the slot that ran the query's batch, as answers show it.

    Args:
        noted: None: nothing was committed.
        age_s: of the commit; who has committed nothing for ``WINDOW_S`` has no backlog for which it would wait.
    """
    if noted is None:
        return None
    return Execution(
        mode="shared" if noted["is_shared"] else "isolated" if noted.get("is_trial") else "dedicated",
        is_waiting=noted.get("is_waiting", False) and age_s is not None and age_s < WINDOW_S,
        moves=noted["moves"],
        cpu_share=noted.get("cpu_share"),
        largest_batch=noted.get("largest_batch"),
        max_rows=noted.get("max_rows"),
        deferred=noted.get("deferred", 0),
    )


def delivery_answer(facts: DeliveryFacts) -> tuple[DeliveryState, DeliveryTrouble | None]:
    """Return the state of a delivery and why it is not delivering, as answers show them."""
    state, reason = delivery_state(facts)
    return state, None if reason is None else DeliveryTrouble.model_validate(asdict(reason))


def _delivery(facts: DeliveryFacts) -> Delivery:
    state, reason = delivery_answer(facts)
    return Delivery(
        id=facts.id,
        type=facts.definition["type"],
        state=state,
        since=facts.state_since,
        reason=reason,
        position=facts.position,
        end_position=facts.end,
        lag_rows=facts.lag_rows,
        lag_ms=facts.lag_ms,
        delivered_rows=facts.delivered_rows,
        delivered_at=facts.delivered_at,
        failures=facts.failures,
        attempt=facts.attempt,
        next_attempt_at=facts.next_attempt_at,
    )


def _shares(facts: Facts) -> Shares:
    return Shares(**shares_of(facts), busiest_task=busiest_task_of(facts))


async def _reason_for_waiting(services: Services, connection: AsyncConnection, status: Status) -> Waiting | None:
    fleet, starting = await find_drivers(connection, services.settings.driver.lease_ttl_ms, status.name)
    return reason_for_waiting(fleet, starting, status.name, status.state_root, has_results=status.batch_id is not None)


def _tasks(detail: Mapping[str, Any]) -> list[TaskStatus]:
    """Show what the tasks have reported of each operator."""
    clocks, buffered, waiting = (detail.get(part, {}) for part in ("clocks", "buffered", "waiting"))
    found = {(operator, int(task)) for part in (clocks, buffered, waiting) for operator, tasks in part.items() for task in tasks}
    return [
        TaskStatus(
            operator=operator,
            task=task,
            stream_time_ms=clocks.get(operator, {}).get(str(task)),
            buffered=buffered.get(operator, {}).get(str(task), 0),
            waiting=[
                WaitingSpan(from_ms=low, to_ms=high, at_least=least, at_most=most)
                for low, high, least, most in waiting.get(operator, {}).get(str(task), ())
            ],
        )
        for operator, task in sorted(found)
    ]


def reason_of(status: Status, waits: Waiting | None) -> Reason | None:
    """Say what keeps the query from its desired state: its own error before the want of a driver, or a query that it waits for."""
    # While it is launched again after a failure, too, or the reason would come and go with each attempt.
    if status.error is not None and status.state in ("failed", "backoff", "stopping", "starting"):
        return Reason(code=status.error["code"], detail=status.error["detail"])
    return None if waits is None else Reason(code=waits.code, detail=waits.detail)


def conditions_of(status: Status, waits: Waiting | None) -> list[str]:
    """Return what is to be known beside a query's state."""
    conditions = ["unreachable"] if status.is_unreachable else []
    if status.is_unplaced and not status.is_unreachable:
        conditions.append("unplaced")
    if status.state != "running" or status.is_unreachable:
        return [*conditions, "stale"]
    return [*conditions, waits.code] if waits is not None else conditions


def _blocked_partitions(feeds: Iterable[Feed], ends: Mapping[str, Mapping[int, FeedEnd]]) -> Iterator[BlockedPartition]:
    for feed in feeds:
        for partition, end in ends.get(feed.log_feed, {}).items():
            if end.open_since is not None and end.open_age is not None:
                yield BlockedPartition(feed.name, partition, end.open_records, end.open_since, end.open_age)


def _progress(feed: Feed, relations: list[str], status: Status, ends: Mapping[int, FeedEnd]) -> FeedProgress:
    read = {int(partition): offset for partition, offset in (status.position or {}).get(feed.name, {}).items()}
    skipped = (status.skipped or {}).get(feed.name, {})
    partitions = [
        PartitionProgress(
            partition=partition,
            next_offset=read.get(partition, 0),
            end_offset=None if (end := ends.get(partition)) is None else end.offset,
            lag=None if end is None else max(0, end.offset - read.get(partition, 0)),
            begins_at=skipped[str(partition)][1] if str(partition) in skipped else None,
            open_records=0 if end is None else end.open_records,
            open_since=None if end is None else end.open_since,
        )
        for partition in sorted({*read, *ends})
    ]
    return FeedProgress(
        feed=feed.name, relations=relations, is_discovered=bool(partitions) or feed.is_derived, partitions=partitions
    )


def _least(clocks: Mapping[str, int | None]) -> int | None:
    """Return the smallest of the tasks' stream times that are known."""
    return min((clock for clock in clocks.values() if clock is not None), default=None)

"""The status of a query, at once or when it reaches a state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncConnection

from app.catalog.deliveries.rules import DeliveryFacts, DeliveryState, delivery_state
from app.catalog.deliveries.sql import delivery_of
from app.catalog.drivers.placement import reason_for_waiting
from app.catalog.drivers.sql import find_drivers
from app.catalog.stored.feeds_read import FeedEnd, feed_ends, feeds_read
from app.catalog.stored.queries import query_not_found
from app.catalog.warned import Reason as Waiting
from app.db.notifications import wait_for_notification
from app.http.answers.documented import answered, problems
from app.http.examples import STATUS
from app.http.parameters import Name, OnlyKnownParameters, Services, ServicesOf
from app.http.schemas import Counter, QueryState
from app.status.conditions import BlockedPartition, conditions_of, reason_of, wait_for_transaction
from app.status.limiting import WINDOW_S, Facts, busiest_task_of, functions_of, limit_of, shares_of, slow_function
from app.status.models import (
    Delivery,
    DeliveryTrouble,
    Execution,
    FeedProgress,
    FunctionShare,
    PartitionProgress,
    Shares,
    SlowestPartition,
    StatusAnswer,
    TaskStatus,
    WaitingSpan,
)
from app.status.producers import WAITS_FOR_PRODUCER, find_wait
from app.status.sql import Status, counters_of, find_status, find_status_by_id
from engine.operators.tasks.slowest import PartitionTimes
from engine.plan.model import Feed

MAX_WAIT_SECONDS = 60
router = APIRouter(prefix="/v1/queries", tags=["queries"], dependencies=[OnlyKnownParameters])

WaitFor = Annotated[
    QueryState | None,
    Query(description="Answer when the query has this state with its current definition, when it has failed, or at the timeout."),
]
WithTasks = Annotated[bool, Query(description="Include what waits in each task.")]
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
    """State, progress of inputs, clocks, waiting records, counters. Never waits for the driver itself."""
    async with services.database.reads.connect() as connection:
        status = await find_status(connection, name)
    if status is None:
        raise query_not_found(name)
    if wait_for is not None:
        status = await _when_reached(services, status, wait_for, time.monotonic() + timeout)
    return await _answer(services, status, has_tasks=tasks)


async def _when_reached(services: Services, status: Status, state: str, deadline: float) -> Status:
    with services.bell.listening(status.query_id, asyncio.Event()) as event:
        while True:
            async with services.database.reads.connect() as connection:
                current = await find_status_by_id(connection, status.query_id)
            if current is None:
                raise query_not_found(status.name)
            left = deadline - time.monotonic()
            if current.has_reached(state) or current.is_final or left <= 0:
                return current
            await wait_for_notification(event, left)


async def _answer(services: Services, status: Status, *, has_tasks: bool) -> StatusAnswer:
    async with services.database.reads.connect() as connection:
        feeds = await feeds_read(connection, status.query_id)
        ends = await feed_ends(connection, [feed.log_feed for feed in feeds if feed.traits.has_heads])
        counters = await counters_of(connection, status.query_id)
        delivery = await delivery_of(connection, status.query_id)
        waits = await _reason_for_waiting(services, connection, status) if status.is_unplaced else None
        # A query can wait for a producer only if it reads several feeds; most queries do not need this look-up.
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
        clocks=detail.get("clocks", {}),
        slowest_partition=slowest_partition_of(detail, feeds),
        buffered={operator: sum(tasks.values()) for operator, tasks in detail.get("buffered", {}).items()},
        tasks=_tasks(detail) if has_tasks else None,
        counters=[Counter(input=name, reason=reason, count=count) for name, reason, count in counters],
        execution=execution_of(detail.get("execution"), status.commit_age_s),
        limited_by=limit_of(facts),
        shares=Shares(**shares_of(facts), busiest_task=busiest_task_of(facts)),
        functions=[FunctionShare(name=name, share=share) for name, share in functions_of(facts).items()],
        delivery=None if delivery is None else _delivery(delivery),
        restorable_since=status.restorable_since,
    )


def execution_of(recorded: Mapping[str, Any] | None, age_s: float | None) -> Execution | None:
    """Return the execution that a commit recorded, in the form of answers.

    Args:
        recorded: None: there is no commit.
        age_s: of the commit. A query without a commit for ``WINDOW_S`` has no backlog to wait with.
    """
    if recorded is None:
        return None
    return Execution(
        mode="shared" if recorded["is_shared"] else "isolated" if recorded.get("is_trial") else "dedicated",
        is_waiting=recorded.get("is_waiting", False) and age_s is not None and age_s < WINDOW_S,
        moves=recorded["moves"],
        cpu_share=recorded.get("cpu_share"),
        largest_batch=recorded.get("largest_batch"),
        max_rows=recorded.get("max_rows"),
        deferred=recorded.get("deferred", 0),
    )


def delivery_answer(facts: DeliveryFacts) -> tuple[DeliveryState, DeliveryTrouble | None]:
    """Return the state of a delivery and why it does not deliver, in the form of answers."""
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


async def _reason_for_waiting(services: Services, connection: AsyncConnection, status: Status) -> Waiting | None:
    drivers, starting = await find_drivers(connection, services.settings.driver.lease_ttl_ms, status.name)
    return reason_for_waiting(drivers, starting, status.name, status.state_root, has_results=status.batch_id is not None)


def _tasks(detail: Mapping[str, Any]) -> list[TaskStatus]:
    """Return what the tasks reported of each operator."""
    buffered, waiting = (detail.get(part, {}) for part in ("buffered", "waiting"))
    operators = {(operator, int(task)) for part in (buffered, waiting) for operator, tasks in part.items() for task in tasks}
    return [
        TaskStatus(
            operator=operator,
            task=task,
            buffered=buffered.get(operator, {}).get(str(task), 0),
            waiting=[
                WaitingSpan(from_ms=low, to_ms=high, at_least=least, at_most=most)
                for low, high, least, most in waiting.get(operator, {}).get(str(task), ())
            ],
        )
        for operator, task in sorted(operators)
    ]


def slowest_partition_of(detail: Mapping[str, Any], feeds: Mapping[Feed, list[str]]) -> SlowestPartition | None:
    """Return the partition that holds time back, as the last commit says (T12)."""
    partitions = PartitionTimes.of_snapshot((detail.get("times") or {}).get("partitions"))
    slowest = partitions.slowest
    if slowest is None:
        return None
    reached_ms = partitions.reached[slowest.feed, slowest.partition]
    return SlowestPartition(
        feed=slowest.feed,
        relations=next((names for feed, names in feeds.items() if feed.name == slowest.feed), []),
        partition=slowest.partition,
        stream_time_ms=reached_ms,
        behind_ms=max(partitions.counting.values()) - reached_ms,
        since=datetime.fromtimestamp(slowest.since_ms / 1000, UTC),
    )


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

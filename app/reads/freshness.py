"""Freshness of an answer: ``min_position`` waits for a position, ``max_staleness`` refuses older answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.access.rules import is_visible_feed, visible_position_text
from app.catalog.stored.feeds_read import feeds_read, log_ends
from app.db.notifications import wait_for_notification
from app.errors.app_errors import Fault, NotInTime, TooManyRequests, Unavailable, Unprocessable
from app.http.parameters import ParameterFaults, Services, bad_parameter
from app.http.values import parse_position
from app.reads.readable import HEAD_ONLY, Ask, Head, Readables, ReadableTable, Reading
from engine.expressions.durations import format_duration, parse_duration

MAX_WAIT_SECONDS = 60
DEFAULT_WAIT_SECONDS = 30.0
RETRY_AFTER = {"Retry-After": "1"}

Position = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Freshness:
    """The required freshness of an answer.

    Attributes:
        min_position: the answer must include every record before these offsets; None: do not wait.
        timeout_s: maximum wait for that.
        max_staleness_ms: see ``check_staleness``; None: any.
    """

    min_position: Position | None = None
    timeout_s: float = DEFAULT_WAIT_SECONDS
    max_staleness_ms: int | None = None

    @property
    def is_any(self) -> bool:
        return self.min_position is None and self.max_staleness_ms is None


ANY_FRESHNESS: Final = Freshness()


def parse_freshness(min_position: str | None, timeout: float | None, max_staleness: str | None) -> Freshness:
    """Read the three parameters.

    Raises:
        BadRequest: ``bad_parameter``, also for a ``timeout`` without ``min_position``.
    """
    position, staleness_ms, faults = None, None, ParameterFaults()
    if min_position is None and timeout is not None:
        faults.add(bad_parameter("timeout", "nothing waits without `min_position`; leave it out"))
    try:
        position = None if min_position is None else parse_position(min_position)
    except ValueError as error:
        faults.add(bad_parameter("min_position", str(error)))
    try:
        staleness_ms = None if max_staleness is None else parse_duration(max_staleness)
    except ValueError as error:
        faults.add(bad_parameter("max_staleness", str(error)))
    faults.raise_all()
    return Freshness(position, DEFAULT_WAIT_SECONDS if timeout is None else timeout, staleness_ms)


async def read_fresh(services: Services, name: str, freshness: Freshness, read: Callable[[], Awaitable[Reading]]) -> Reading:
    """Read when the table is fresh enough.

    Raises:
        NotInTime: ``position_not_reached``.
        Unprocessable: ``unknown_feed``, ``unknown_partition``: the query does not read a feed or partition of ``min_position``.
        Unavailable: ``too_stale``.
    """
    reading = await read()
    if freshness.is_any:
        return reading
    min_position = freshness.min_position or {}
    # Also do not reveal whether a feed outside of the caller's scope has reached an offset.
    if min_position and not (all(map(is_visible_feed, min_position)) and _includes(reading.head, min_position)):
        await _check_feeds(services, reading.table, min_position)
        reading = await _when_reached(services, name, reading, freshness, read)
    if freshness.max_staleness_ms is not None:
        await check_staleness(services, reading, freshness.max_staleness_ms)
    return reading


async def check_staleness(services: Services, reading: Reading, max_staleness_ms: int) -> None:
    """Refuse an answer that may be staler than ``max_staleness_ms``.

    Staleness is the time since the last commit by the database's clock. It is 0 while the query runs and has read every record in its
    feeds, if all are in the built-in log: then the last commit is old because no record came after it.

    Raises:
        Unavailable: ``too_stale``.
    """
    age_s = reading.head.age_s
    if age_s is not None and age_s * 1000 <= max_staleness_ms:
        return
    if not reading.head.is_stale and await _has_read_everything(services, reading):
        return
    last_commit = "nothing was committed yet" if age_s is None else f"the last commit was {age_s:.3f} s ago"
    raise Unavailable(
        "too_stale",
        f"{last_commit}, and not everything is read; at most {format_duration(max_staleness_ms)} was asked for "
        f"(the query {_doing(reading.head)})",
        headers=RETRY_AFTER,
    )


async def _when_reached(
    services: Services, name: str, reading: Reading, freshness: Freshness, read: Callable[[], Awaitable[Reading]]
) -> Reading:
    deadline = time.monotonic() + freshness.timeout_s
    min_position = freshness.min_position or {}
    if reading.table.query_id is None:
        raise _not_reached(reading.head, 0.0)
    head = reading.head
    with services.bell.listening(reading.table.query_id, asyncio.Event()) as event:
        while True:
            left = deadline - time.monotonic()
            try:
                head = (await services.of(Readables).read(name, lambda _: Ask(HEAD_ONLY, {}))).head
                if _includes(head, min_position):
                    reading_now = await read()
                    if _includes(reading_now.head, min_position):  # otherwise the query started from scratch in between
                        return reading_now
            except TooManyRequests:
                if left <= 0 and _includes(head, min_position):
                    raise
                # The request was admitted once; if the limit is reached at the moment, it tries again.
            if left <= 0:
                raise _not_reached(head, freshness.timeout_s)
            await wait_for_notification(event, left)


def _includes(head: Head, min_position: Position) -> bool:
    position: Position = json.loads(head.position)
    return all(
        position.get(feed, {}).get(partition, 0) >= offset
        for feed, partitions in min_position.items()
        for partition, offset in partitions.items()
    )


async def _check_feeds(services: Services, table: ReadableTable, min_position: Position) -> None:
    if table.query_id is None:
        return
    async with services.database.reads.connect() as connection:
        feeds = await feeds_read(connection, table.query_id)
        ends = await log_ends(connection, [feed.log_feed for feed in feeds if feed.traits.has_heads])
    known = sorted(feed.name for feed in feeds if is_visible_feed(feed.name))
    if unknown := [name for name in min_position if name not in known]:
        raise _never_read(
            "unknown_feed", f"'{table.output.name}' never reads {unknown[0][:200]!r}; its position is made of {', '.join(known)}"
        )
    for feed in feeds:
        partitions = sorted(ends.get(feed.log_feed, {})) if feed.traits.has_heads else []
        stray = [each for each in min_position.get(feed.name, {}) if each not in map(str, partitions)]
        if partitions and stray:
            raise _never_read("unknown_partition", f"{feed.name!r} has the partitions {partitions}, not {stray[0][:200]!r}")


def _never_read(code: str, detail: str) -> Unprocessable:
    return Unprocessable(code, detail, [Fault("?min_position", code, detail)])


async def _has_read_everything(services: Services, reading: Reading) -> bool:
    if reading.table.query_id is None:
        return False
    position: Position = json.loads(reading.head.position)
    async with services.database.reads.connect() as connection:
        feeds = await feeds_read(connection, reading.table.query_id)
        ends = await log_ends(connection, [feed.log_feed for feed in feeds])
    return all(
        feed.traits.is_kept_here
        and all(position.get(feed.name, {}).get(str(part), 0) >= end for part, end in ends.get(feed.log_feed, {}).items())
        for feed in feeds
    )


def _not_reached(head: Head, seconds: float) -> NotInTime:
    return NotInTime(
        "position_not_reached",
        f"after {seconds:g} s the table includes {visible_position_text(head.position)}, not yet what was asked for (the query {_doing(head)})",
        headers=RETRY_AFTER,
    )


def _doing(head: Head) -> str:
    return "was deleted, its result kept" if head.state is None else f"is {head.state}"

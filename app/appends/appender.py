"""Appends records of HTTP requests: it parses and validates them, and commits in groups.

Requests for one feed queue up while its writer's transaction runs. The writer then packs all of them into the next transaction. Small appends
of several writers are committed together (``SharedAppends``). So requests share the cost of a commit (an fsync), offsets have no gaps, and the
records of a client that waits for its answers stay in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import anyio.to_thread
import psycopg
import psycopg_pool
from polars.exceptions import PanicException

from app.access.idempotency import digest_of
from app.appends.append_targets import Target, TargetCache
from app.appends.append_transaction import Appended, AppendItem, Outcome, StaleTarget, append_group, append_small
from app.appends.shared_appends import Gathering, SharedAppends
from app.appends.validation import (
    SMALL_BYTES,
    SmallBody,
    ValidatedBody,
    small_body,
    validate_body,
    validate_format_body,
    validate_together,
)
from app.db.admission import MOST_REGISTRY_LOOKUPS
from app.db.database import AWAY
from app.errors.app_errors import Unavailable
from app.telemetry.setup import Metrics
from engine.errors import InvariantBroken
from engine.formats.bodies.body_formats import BodyOptions
from engine.formats.port import NO_REGISTRY
from engine.formats.registry.client import Registry

# Most rows of one transaction: a reader's batch stays small enough to send, and a client does not wait long for its answer.
GROUP_ROWS = 65_536
# A relation edited between parsing and writing is parsed again. More than a few edits within one request are no accident.
STALE_RETRIES = 3
# Bodies parsed at the same time: more would only compete for the cores and use memory.
PARSING_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Posted:
    """Format and registry of a body, as its request names them.

    Attributes:
        asked: the format and its options.
        registry: the schema registry that it names, or None.
    """

    asked: BodyOptions
    registry: Registry | None


@dataclass(slots=True)
class _Waiting:
    """A request in a writer's queue."""

    target: Target
    content: SmallBody | ValidatedBody
    key: str | None
    digest: bytes
    answer: asyncio.Future[Appended]

    @property
    def rows(self) -> int:
        """Number of records, good or bad."""
        return self.content.count if isinstance(self.content, SmallBody) else self.content.accepted.height


class Appender:
    """Appends records of requests. An async context: its exit waits for every running append.

    Args:
        pool: its own connections, so that appends never wait for reads.
    """

    def __init__(
        self,
        pool: psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection],
        metrics: Metrics,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._now_ms = now_ms
        self._targets = TargetCache(pool)
        self._waiting: dict[int, list[_Waiting]] = {}
        self._writers: dict[int, asyncio.Task[None]] = {}
        self._tasks = asyncio.TaskGroup()
        self._gathering = Gathering()
        self._shared = SharedAppends(pool, self._tasks)
        self._is_open = False
        self._running = 0
        self._all_ended = asyncio.Event()
        self._parsing: anyio.CapacityLimiter | None = None
        self._registry_lookups: anyio.CapacityLimiter | None = None

    async def __aenter__(self) -> Self:
        self._parsing = anyio.CapacityLimiter(PARSING_AT_ONCE)
        self._registry_lookups = anyio.CapacityLimiter(MOST_REGISTRY_LOOKUPS)
        await self._tasks.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_open = False
        if self._running:
            await self._all_ended.wait()
        await self._tasks.__aexit__(kind, error, trace)

    async def append(
        self, kind: str, name: str, body: bytes, media_type: str, idempotency_key: str | None, posted: Posted | None = None
    ) -> Appended:
        """Append the records of one body; they are durable when this returns.

        Args:
            kind: ``stream`` or ``table``.
            name: of the relation.
            body: the records.
            media_type: of the body.
            idempotency_key: repeated requests with this key and body get the first answer and append nothing.
            posted: the format that the request names; None: the media type says all.

        Raises:
            FormatInvalid, RegistryUnavailable, RegistryRefused: see ``validate_format_body``.
            NotFound: ``relation_not_found``.
            Conflict: ``not_appendable``: it is derived, or not in the built-in log; ``read_only``: another program fills it.
            BodyMalformed: the body cannot be split into records.
            Unprocessable: ``idempotency_key_reused``.
            Unavailable: ``stopping``, ``relation_changing``, or the database is unreachable.
        """
        if not self._is_open:
            raise Unavailable("stopping", "the service is stopping", headers={"Retry-After": "5"})
        self._running += 1
        try:
            return await self._append(kind, name, body, media_type, idempotency_key, posted)
        finally:
            self._running -= 1
            if not self._running and not self._is_open:
                self._all_ended.set()

    async def _append(
        self, kind: str, name: str, body: bytes, media_type: str, idempotency_key: str | None, posted: Posted | None
    ) -> Appended:
        about = (
            [kind, name, media_type] if posted is None else [kind, name, media_type, posted.asked.format, *posted.asked.options]
        )
        digest = digest_of(about, body) if idempotency_key is not None else b""
        for _ in range(STALE_RETRIES):
            target = await self._targets.get(kind, name)
            content: SmallBody | ValidatedBody | None
            if posted is not None:
                content = await self._validate_format(body, posted, target)
            else:
                content = small_body(body, media_type, target.schema)
            if content is None:
                content = await anyio.to_thread.run_sync(
                    validate_body, body, media_type, target.schema, self._now_ms(), limiter=self._parsing
                )
            try:
                appended = await self._submit(target, content, idempotency_key, digest)
            except StaleTarget:
                self._targets.forget(name)
                continue
            self._count(name, appended)
            return appended
        raise Unavailable("relation_changing", f"'{name}' is changing; try again", headers={"Retry-After": "1"})

    async def _validate_format(self, body: bytes, posted: Posted, target: Target) -> ValidatedBody:
        # A request that waits for a registry does not delay the parsing of other bodies.
        limiter = self._parsing if posted.registry is None else self._registry_lookups
        store = NO_REGISTRY if posted.registry is None else posted.registry
        validate = partial(validate_format_body, body, posted.asked, target.schema, self._now_ms(), store)
        return await anyio.to_thread.run_sync(validate, limiter=limiter)

    async def _submit(self, target: Target, content: SmallBody | ValidatedBody, key: str | None, digest: bytes) -> Appended:
        waiting = _Waiting(target, content, key, digest, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(target.feed_id, []).append(waiting)
        if target.feed_id not in self._writers:
            self._writers[target.feed_id] = self._tasks.create_task(self._write(target.feed_id))
        return await waiting.answer

    async def _write(self, feed_id: int) -> None:
        """Write groups until the queue is empty. No await follows the last check of the queue, so no request is forgotten."""
        try:
            while queue := self._waiting[feed_id]:
                await self._gathering.turn(feed_id)
                await self._write_group(_take(queue))
        finally:
            del self._writers[feed_id]
            for waiting in self._waiting.pop(feed_id):
                waiting.answer.cancel()

    async def _write_group(self, group: list[_Waiting]) -> None:
        present = [waiting for waiting in group if not waiting.answer.cancelled()]
        if not present:
            return
        try:
            items = await self._validated(present)
            answers = await append_small(self._shared, items)
            if answers is None:
                async with self._pool.connection() as connection:
                    answers = await append_group(connection, items)
        except (*AWAY, StaleTarget) as error:
            for waiting in present:
                _resolve(waiting, error)
        except (Exception, PanicException) as error:  # noqa: BLE001 - no error may end the writer of all requests
            await self._write_apart(present, error)
        else:
            self._metrics.append_groups.inc()
            for waiting, answer in zip(present, answers, strict=True):
                _resolve(waiting, answer)

    async def _write_apart(self, group: list[_Waiting], error: BaseException) -> None:
        """Write each request separately, so that only the request that cannot be written fails."""
        if len(group) == 1:
            _resolve(group[0], error if isinstance(error, Exception) else InvariantBroken(str(error)))
            return
        for waiting in group:
            await self._write_group([waiting])

    async def _validated(self, group: list[_Waiting]) -> list[AppendItem]:
        """Validate the contents that are not validated yet: the small bodies of one relation together."""
        now_ms = self._now_ms()
        contents = {id(waiting): waiting.content for waiting in group}
        small: dict[Target, list[_Waiting]] = {}
        for waiting in group:
            if isinstance(waiting.content, SmallBody):
                small.setdefault(waiting.target, []).append(waiting)
        for target, together in small.items():
            bodies = [waiting.content for waiting in together if isinstance(waiting.content, SmallBody)]
            if sum(len(body.text) for body in bodies) <= SMALL_BYTES:
                validated = validate_together(bodies, target.schema, now_ms)
            else:
                validated = await anyio.to_thread.run_sync(
                    validate_together, bodies, target.schema, now_ms, limiter=self._parsing
                )
            contents |= {id(waiting): part for waiting, part in zip(together, validated, strict=True)}
        return [
            AppendItem(waiting.target, content.accepted, content.rejects, waiting.key, waiting.digest, now_ms, content.changes)
            for waiting in group
            if isinstance(content := contents[id(waiting)], ValidatedBody)
        ]

    def _count(self, name: str, appended: Appended) -> None:
        if appended.is_repeated:
            return
        self._metrics.appended.labels(name).inc(appended.count)
        for reason, number in appended.reasons.items():
            self._metrics.rejected.labels(name, reason).inc(number)


def _take(queue: list[_Waiting]) -> list[_Waiting]:
    """Remove and return the longest prefix that fits into one transaction, at least one request."""
    rows = 0
    for count, waiting in enumerate(queue):
        rows += waiting.rows
        if rows > GROUP_ROWS and count > 0:
            group = queue[:count]
            del queue[:count]
            return group
    group = queue[:]
    queue.clear()
    return group


def _resolve(waiting: _Waiting, result: Outcome | Exception) -> None:
    if waiting.answer.done():
        return
    if isinstance(result, Exception):
        waiting.answer.set_exception(result)
    else:
        waiting.answer.set_result(result)

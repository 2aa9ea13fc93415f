"""Admission control: limits for concurrent work. Work beyond a limit is refused at once, because an endless queue would delay every request.

Waits that cost nothing (long polls, event streams) have no limit.

``Turns`` are the permits for a pool of connections: as many as the pool has, and at most half of them for slow work. A request without a permit
does not wait for a connection. So a worker thread never waits for a connection while the owners of all connections need a thread to continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self

from prometheus_client import Counter

from app.errors.app_errors import TooManyRequests, Unavailable
from app.settings.limit_settings import LimitSettings

RETRY_AFTER = {"Retry-After": "1"}
MOST_CHECKS = 4
MOST_REGISTRY_LOOKUPS = 8
"""Bodies whose schemas are in a registry: each may hold a thread for seconds while the registry is unreachable."""


class AdmissionLimit:
    """A limit for an amount of work.

    Args:
        limit: largest amount at once; work above the limit is admitted only alone.
        refused: counts refused work.
    """

    def __init__(self, limit: int, refused: Counter, detail: str) -> None:
        self._limit = limit
        self._refused = refused
        self._detail = detail
        self.under_way = 0

    def enter(self, amount: int = 1) -> None:
        """Admit work; ``leave`` must follow.

        Raises:
            TooManyRequests: ``too_many_requests``.
        """
        if self.under_way and self.under_way + amount > self._limit:
            self._refused.inc()
            raise TooManyRequests("too_many_requests", self._detail, headers=RETRY_AFTER)
        self.under_way += amount

    def leave(self, amount: int = 1) -> None:
        """End work that ``enter`` admitted."""
        self.under_way -= amount

    @contextmanager
    def passed(self, amount: int = 1) -> Iterator[Passing]:
        """Admit work for the duration of the block.

        Raises:
            TooManyRequests: ``too_many_requests``.
        """
        self.enter(amount)
        passing = Passing(self, amount)
        try:
            yield passing
        finally:
            self.leave(passing.amount)


@dataclass(slots=True)
class Passing:
    """Admitted work. Its amount may grow beyond the declared one."""

    gate: AdmissionLimit
    amount: int

    def grow(self, amount: int) -> None:
        """Raise the amount to at least ``amount``.

        Raises:
            TooManyRequests: ``too_many_requests``.
        """
        more = amount - self.amount
        if more > 0:
            self.gate.leave(self.amount)
            try:
                self.gate.enter(amount)
            except TooManyRequests:
                self.gate.under_way += self.amount
                raise
            self.amount = amount


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The admission limits of one process.

    Attributes:
        rows: reads of tables' rows by key.
        scans: other reads of tables' rows.
        pages: other reads that may be large: records, late records, history, lateness, explanations.
        append_bytes: bodies of appends, from their arrival to their commit.
        registries: bodies whose schemas are read from a registry.
        checks: of connections. Each uses a thread for some seconds, and contacts another system.
    """

    rows: AdmissionLimit
    scans: AdmissionLimit
    pages: AdmissionLimit
    append_bytes: AdmissionLimit
    checks: AdmissionLimit
    registries: AdmissionLimit

    @classmethod
    def of(cls, limits: LimitSettings, refused: Counter) -> Self:
        return cls(
            AdmissionLimit(
                limits.row_reads,
                refused.labels("row_reads"),
                f"{limits.row_reads} reads of rows by key are running; try again, or look many keys up at once with POST …/rows:lookup "
                "(SLACKWATER_LIMITS__ROW_READS)",
            ),
            AdmissionLimit(
                limits.scan_reads,
                refused.labels("scan_reads"),
                f"{limits.scan_reads} reads of many rows are running; try again (SLACKWATER_LIMITS__SCAN_READS)",
            ),
            AdmissionLimit(
                limits.page_reads,
                refused.labels("page_reads"),
                f"{limits.page_reads} reads of this kind are running; try again (SLACKWATER_LIMITS__PAGE_READS)",
            ),
            AdmissionLimit(
                limits.append_bytes,
                refused.labels("append_bytes"),
                f"{limits.append_bytes} bytes of records wait to be written; try again at a lower rate (SLACKWATER_LIMITS__APPEND_BYTES)",
            ),
            AdmissionLimit(MOST_CHECKS, refused.labels("checks"), f"{MOST_CHECKS} checks of connections are running; try again"),
            AdmissionLimit(
                MOST_REGISTRY_LOOKUPS,
                refused.labels("registries"),
                f"{MOST_REGISTRY_LOOKUPS} bodies wait for schemas of a registry; try again at a lower rate",
            ),
        )


PATIENCE_SECONDS = 10.0
"""Longer than a hundred simultaneous edits take. While the database is unreachable, requests must not wait for each other's timeouts."""


class Turns:
    """Permits of one event loop."""

    def __init__(self, size: int) -> None:
        self._all = asyncio.Semaphore(size)
        self._long = asyncio.Semaphore(max(1, size // 2))

    @asynccontextmanager
    async def taken(self, *, is_long: bool = False) -> AsyncIterator[None]:
        """Hold a permit for the duration of the block.

        Raises:
            Unavailable: ``database_busy``: no permit was free for ``PATIENCE_SECONDS``.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if is_long:
                    await self._long.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    if is_long:
                        self._long.release()
                    raise
        except TimeoutError as error:
            raise database_busy() from error
        try:
            yield
        finally:
            self._all.release()
            if is_long:
                self._long.release()


def database_busy() -> Unavailable:
    """Return the error for a request without a free connection, as opposed to an unreachable database."""
    return Unavailable(
        "database_busy",
        "other requests use every connection of this process that this request may use; try again in a moment, with fewer requests at once "
        "(SLACKWATER_POOL_SIZE)",
        headers={"Retry-After": "1"},
    )

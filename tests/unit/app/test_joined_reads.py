"""Reads of the same thing that wait for a connection together, on connections that are lent when told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.following.tails.tails import JoinedReads


class Pool:
    """Lends numbers instead of connections, as many as there are permits."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(0)
        self.lent = 0
        self.fault: Exception | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        await self.permits.acquire()
        if self.fault is not None:
            raise self.fault
        self.lent += 1
        yield self.lent


async def identity(connection: Any) -> int:
    return int(connection)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_wants_the_same_before_it_has_begun_gets_it_too() -> None:
    pool = Pool()
    reads = JoinedReads(pool.connection)
    waiting = [asyncio.create_task(reads.read(wanted, identity)) for wanted in "aab"]
    await settled()
    pool.permits.release()
    pool.permits.release()
    assert await asyncio.gather(*waiting) == [1, 1, 2]


async def test_a_read_that_has_begun_is_not_joined() -> None:
    pool, goes_on = Pool(), asyncio.Event()
    reads = JoinedReads(pool.connection)

    async def slow(connection: Any) -> int:
        await goes_on.wait()
        return int(connection)

    pool.permits.release()
    first = asyncio.create_task(reads.read("a", slow))
    await settled()
    second = asyncio.create_task(reads.read("a", identity))
    pool.permits.release()
    assert await second == 2
    goes_on.set()
    assert await first == 1


async def test_a_reader_that_leaves_takes_nothing_from_the_others() -> None:
    pool = Pool()
    reads = JoinedReads(pool.connection)
    leaving, staying = (asyncio.create_task(reads.read("a", identity)) for _ in range(2))
    await settled()
    leaving.cancel()
    pool.permits.release()
    assert await staying == 1
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_fault_reaches_every_reader_and_the_next_one_reads_anew() -> None:
    pool = Pool()
    reads = JoinedReads(pool.connection)
    pool.fault = OSError("away")
    waiting = [asyncio.create_task(reads.read("a", identity)) for _ in range(2)]
    pool.permits.release()
    assert [str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == ["away", "away"]
    pool.fault = None
    pool.permits.release()
    assert await reads.read("a", identity) == 1

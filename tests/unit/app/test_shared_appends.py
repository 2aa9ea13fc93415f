"""Appends that are committed together: what is refused for one of them is not refused for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from app.appends.shared_appends import SharedAppends, SmallAppend


class Pool:
    """Lends itself as a connection whose statements fail."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        yield self

    async def execute(self, *_: object) -> Any:
        raise self.fault


async def appended(fault: Exception) -> list[int | BaseException | None]:
    async with asyncio.TaskGroup() as tasks:
        shared = SharedAppends(Pool(fault), tasks)  # type: ignore[arg-type]
        wanted = [SmallAppend(uuid4(), 1, feed, 0, rows=1, min_ts=0, max_ts=0, payload=b"") for feed in (1, 2)]
        return await asyncio.gather(*map(shared.append, wanted), return_exceptions=True)


@pytest.mark.parametrize("fault", [psycopg.errors.UniqueViolation(), psycopg.errors.NumericValueOutOfRange()])
async def test_who_stands_beside_what_is_refused_takes_a_transaction_of_its_own(fault: Exception) -> None:
    assert await appended(fault) == [None, None]


async def test_who_does_not_know_whether_it_is_there_is_told_so() -> None:
    fault = psycopg.OperationalError("lost")
    assert await appended(fault) == [fault, fault]

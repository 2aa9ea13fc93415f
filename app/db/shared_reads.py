"""Reads of single keys that wait at the same moment, sent to the database as one statement.

A statement costs this process and the database several times what one more key in it costs. Nobody waits for company: a read goes
out at once while fewer than ``STATEMENTS_AT_ONCE`` are under way, and what arrives in the meantime goes together. The statement is sent after
each of its reads has arrived, so all of them see what was committed before they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import getitem
from typing import Any

import psycopg

Row = tuple[Any, ...]

STATEMENTS_AT_ONCE = 2
"""While the database works on one, the answers of the other are written."""

MAX_KEYS = 64
"""More would make the first wait for the last."""


class SharedReads:
    """Reads of one statement.

    Args:
        fetch: answers a list of keys with one row, or with None where the table is not what it was.
        split: makes the answer for one key out of theirs; by itself it is the member in the key's place.
        is_too_large: whether their row leaves some out, because all together are too large; each is then read alone.
    """

    def __init__(
        self,
        fetch: Callable[[list[Any]], Awaitable[Row | None]],
        split: Callable[[Row, int], Any] = getitem,
        is_too_large: Callable[[Row], bool] = lambda _: False,
    ) -> None:
        self._fetch = fetch
        self._split = split
        self._is_too_large = is_too_large
        self._waiting: list[tuple[Any, asyncio.Future[Row | None]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def read(self, key: Any) -> Row | None:
        """Read one key.

        Raises:
            Exception: whatever ``fetch`` raised.
        """
        answer: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, answer))
        if len(self._sending) < STATEMENTS_AT_ONCE:
            # It starts once this turn of the event loop is over: whoever is ready in the same turn comes along.
            task = asyncio.create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return await answer

    async def _send(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MAX_KEYS], self._waiting[MAX_KEYS:]
            await self._answer([one for one in taken if not one[1].done()])

    async def _answer(self, wanted: list[tuple[Any, asyncio.Future[Row | None]]]) -> None:
        try:
            row = await self._fetch([key for key, _ in wanted]) if wanted else None
        except Exception as error:  # noqa: BLE001 - each reader raises it
            if isinstance(error, psycopg.DataError) and len(wanted) > 1:
                for one in wanted:  # the key that cannot be read fails alone
                    await self._answer([one])
                return
            for _, answer in wanted:
                if not answer.done():
                    answer.set_exception(error)
            return
        if row is not None and len(wanted) > 1 and self._is_too_large(row):
            for one in wanted:
                await self._answer([one])
            return
        for place, (_, answer) in enumerate(wanted):
            if not answer.done():
                answer.set_result(None if row is None else self._split(row, place))

"""Reads of single keys that wait at the same moment, sent to the database as one statement.

A statement costs this process and the database several times as much as one more key in it. No read waits for others: it is sent at once while
fewer than ``STATEMENTS_AT_ONCE`` statements run, and reads that arrive meanwhile share the next one. A statement is sent after each of its
reads has arrived, so all of them see everything that was committed before they arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import getitem
from typing import Any

import psycopg

Row = tuple[Any, ...]

STATEMENTS_AT_ONCE = 2
"""While the database executes one statement, this process writes the answers of the other."""

MAX_KEYS = 64
"""More keys would make the first read wait for the last."""


class SharedReads:
    """Reads that share one kind of statement.

    Args:
        fetch: returns one row for a list of keys, or None if the table is no longer the same.
        split: returns the answer for one key; the default is the member of the row at the key's place.
        is_too_large: whether the row leaves some keys out, because all together are too large; each is then read alone.
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
            Exception: any that ``fetch`` raised.
        """
        answer: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, answer))
        if len(self._sending) < STATEMENTS_AT_ONCE:
            # The task starts after this iteration of the event loop: reads of the same iteration join it.
            task = asyncio.create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return await answer

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_KEYS], self._waiting[MAX_KEYS:]
            await self._answer([read for read in batch if not read[1].done()])

    async def _answer(self, reads: list[tuple[Any, asyncio.Future[Row | None]]]) -> None:
        try:
            row = await self._fetch([key for key, _ in reads]) if reads else None
        except Exception as error:  # noqa: BLE001 - each reader raises it
            if isinstance(error, psycopg.DataError) and len(reads) > 1:
                for read in reads:  # only the key that cannot be read fails
                    await self._answer([read])
                return
            for _, answer in reads:
                if not answer.done():
                    answer.set_exception(error)
            return
        if row is not None and len(reads) > 1 and self._is_too_large(row):
            for read in reads:
                await self._answer([read])
            return
        for place, (_, answer) in enumerate(reads):
            if not answer.done():
                answer.set_result(None if row is None else self._split(row, place))

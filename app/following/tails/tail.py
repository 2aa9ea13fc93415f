"""The newest entries of one followed log: a bounded part in memory, and the followers that wait for more."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Any, Protocol
from uuid import UUID

from app.catalog.stored.feeds_read import Connection
from app.errors.app_errors import Unavailable
from app.following.change_log import Heads, LogRange
from app.following.tails.new_entries import NewEntries

KEPT_ITEMS = 20_000
KEPT_CHARS = 8 << 20
"""Bounds of a tail's memory. Followers that are further behind read from the database."""


class Source(Protocol):
    """A log that can be followed: partitions of items with rising offsets."""

    @property
    def id(self) -> Hashable:
        """Equal for sources that can share a tail."""

    @property
    def notifying_query(self) -> UUID | None:
        """The query whose notification announces new entries; None: none does."""

    @staticmethod
    async def heads_of(connection: Connection, sources: Sequence[Any]) -> Sequence[Heads | Unavailable]:
        """Return (oldest offset, next offset) by partition, for several sources of this class; empty for a log that is gone."""

    @staticmethod
    async def new_entries_of(
        connection: Connection, sources: Sequence[Any], ends: Sequence[Sequence[int] | None], *, from_oldest: bool = False
    ) -> Sequence[NewEntries | Unavailable]:
        """Return the same, with the entries behind these ends if they are few.

        Args:
            connection: in autocommit mode; one statement reads all, so all is of one snapshot.
            sources: of this class.
            ends: the known end of each, by partition; None: do not read new entries.
            from_oldest: if retention removed a part of the new entries, read the rest of them.
        """

    async def read_range(self, connection: Connection, partition: int, start: int, end: int) -> LogRange:
        """Return the entries from ``start`` up to ``end``, or fewer if they are many."""


def taken(entries: LogRange, offset: int, limit: int) -> LogRange:
    """Return the first items of a range from ``offset`` on."""
    first = bisect_left(entries.offsets, offset)
    offsets, texts = entries.offsets[first : first + limit], entries.texts[first : first + limit]
    is_all = first + len(offsets) == len(entries.offsets)
    return LogRange(offsets, texts, entries.end if is_all else offsets[-1] + 1)


class Tail:
    """The newest items of one source.

    Attributes:
        is_gone: the log was dropped; no more entries come.
        followers: how many clients use this tail.
    """

    def __init__(self, source: Source, ends: Sequence[int]) -> None:
        self.source = source
        self._offsets: list[list[int]] = [[] for _ in ends]
        self._texts: list[list[str]] = [[] for _ in ends]
        self._begins = list(ends)
        self._ends = list(ends)
        self._chars = 0
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self.is_gone = False
        self.followers = 0

    def take(self, partition: int, offset: int, limit: int) -> LogRange | None:
        """Return items from ``offset`` on; None if the tail does not have them (any more)."""
        if partition >= len(self._ends) or not self._begins[partition] <= offset <= self._ends[partition]:
            return None
        return taken(LogRange(self._offsets[partition], self._texts[partition], self._ends[partition]), offset, limit)

    async def wait(self, seconds: float) -> None:
        """Wait until there are new entries or the log is gone, at most this long.

        Raises:
            Exception: the failure of this tail; without it a follower would wait in vain.
        """
        if self._failure is not None:
            raise self._failure
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def fail(self, error: Exception) -> None:
        self._failure = error
        self.wake()

    @property
    def ends(self) -> Sequence[int]:
        return self._ends

    def take_entries(self, news: NewEntries) -> bool:
        """Add the entries of one poll.

        Returns:
            Whether there are more; ``take_in`` reads them.
        """
        if self._is_over(news.heads):
            return False
        if news.read is not None:
            self._keep(0, news.read())
            self.wake()
        return any(end < next_offset for (_, next_offset), end in zip(news.heads, self._ends, strict=True))

    def _is_over(self, heads: Heads) -> bool:
        is_put_back = any(next_offset < end for (_, next_offset), end in zip(heads, self._ends, strict=False))
        if not heads or is_put_back:
            self.is_gone = True
            self.wake()
        return self.is_gone

    async def take_in(self, connection: Connection, heads: Heads) -> bool:
        """Read new entries: one range of each partition.

        Returns:
            Whether there is more.
        """
        if self._is_over(heads):
            return False
        is_more = False
        for partition, (_, next_offset) in enumerate(heads):
            if next_offset - self._ends[partition] > KEPT_ITEMS:
                self._skip(partition, next_offset - KEPT_ITEMS)
            if self._ends[partition] < next_offset:
                entries = await self.source.read_range(connection, partition, self._ends[partition], next_offset)
                self._keep(partition, entries)
                self.wake()
                is_more |= self._ends[partition] < next_offset
        return is_more

    def _skip(self, partition: int, offset: int) -> None:
        self._chars -= _chars(self._texts[partition])
        self._offsets[partition], self._texts[partition] = [], []
        self._begins[partition] = self._ends[partition] = offset

    def _keep(self, partition: int, entries: LogRange) -> None:
        offsets, texts = self._offsets[partition], self._texts[partition]
        offsets.extend(entries.offsets)
        texts.extend(entries.texts)
        self._chars += _chars(entries.texts)
        self._ends[partition] = entries.end
        surplus = max(len(texts) - KEPT_ITEMS, 0)
        chars = self._chars - _chars(texts[:surplus])
        while chars > KEPT_CHARS and surplus < len(texts):
            chars -= len(texts[surplus])
            surplus += 1
        if surplus:
            self._begins[partition] = offsets[surplus - 1] + 1
            del offsets[:surplus], texts[:surplus]
            self._chars = chars


def _chars(texts: Sequence[str]) -> int:
    return sum(map(len, texts))

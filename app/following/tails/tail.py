"""The newest part of one log that somebody follows: what it keeps, what it no longer has, and who it wakes."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Any, Protocol
from uuid import UUID

from app.catalog.stored.log_pages import Connection
from app.errors.app_errors import Unavailable
from app.following.change_log import Heads, LogRange
from app.following.tails.new_entries import NewEntries

KEPT_ITEMS = 20_000
KEPT_CHARS = 8 << 20
"""Bounds of a tail's memory: followers that are further behind read from the database."""


class Source(Protocol):
    """A log that can be followed: partitions of items with rising offsets."""

    @property
    def id(self) -> Hashable:
        """Equal for sources that can share a tail."""

    @property
    def notifying_query(self) -> UUID | None:
        """The query whose ring announces something new; None: nothing does."""

    @staticmethod
    async def heads_of(connection: Connection, sources: Sequence[Any]) -> Sequence[Heads | Unavailable]:
        """Return (oldest offset, next offset) by partition of each of several sources of this class; nothing where its log is gone."""

    @staticmethod
    async def new_entries_of(
        connection: Connection, sources: Sequence[Any], ends: Sequence[Sequence[int] | None], *, from_oldest: bool = False
    ) -> Sequence[NewEntries | Unavailable]:
        """Return the same with what is new behind these ends, where that is little.

        Args:
            connection: in autocommit mode: all of it is of one moment nevertheless.
            sources: of this class.
            ends: how far each is known, by partition; None: what is new is not wanted.
            from_oldest: where what is new has been removed in part, the rest of it is wanted.
        """

    async def read_range(self, connection: Connection, partition: int, start: int, end: int) -> LogRange:
        """Return what lies from ``start`` on, up to ``end`` or less far where it is much."""


def taken(stretch: LogRange, offset: int, limit: int) -> LogRange:
    """Return the first items of a stretch from ``offset`` on."""
    first = bisect_left(stretch.offsets, offset)
    found, texts = stretch.offsets[first : first + limit], stretch.texts[first : first + limit]
    is_all = first + len(found) == len(stretch.offsets)
    return LogRange(found, texts, stretch.end if is_all else found[-1] + 1)


class Tail:
    """The newest items of one source.

    Attributes:
        source: what it is of.
        is_gone: the log was dropped; nothing comes any more.
        followers: how many use this tail.
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
        """Return items from ``offset`` on; None where they are not kept here (any more)."""
        if partition >= len(self._ends) or not self._begins[partition] <= offset <= self._ends[partition]:
            return None
        return taken(LogRange(self._offsets[partition], self._texts[partition], self._ends[partition]), offset, limit)

    async def wait(self, seconds: float) -> None:
        """Wait until something is new or over, at most so long.

        Raises:
            Exception: what this tail has failed by; a follower must not wait for it in vain.
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
        """Wake every follower."""
        self._changed.set()
        self._changed = asyncio.Event()

    def fail(self, error: Exception) -> None:
        """Let every follower end by this error."""
        self._failure = error
        self.wake()

    @property
    def ends(self) -> Sequence[int]:
        """How far it is known, by partition."""
        return self._ends

    def take_entries(self, news: NewEntries) -> bool:
        """Take in what one look has found.

        Returns:
            Whether there is more, which ``take_in`` reads.
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
        """Take in what is new: a stretch of each partition.

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
                stretch = await self.source.read_range(connection, partition, self._ends[partition], next_offset)
                self._keep(partition, stretch)
                self.wake()
                is_more |= self._ends[partition] < next_offset
        return is_more

    def _skip(self, partition: int, offset: int) -> None:
        self._chars -= _chars(self._texts[partition])
        self._offsets[partition], self._texts[partition] = [], []
        self._begins[partition] = self._ends[partition] = offset

    def _keep(self, partition: int, stretch: LogRange) -> None:
        offsets, texts = self._offsets[partition], self._texts[partition]
        offsets.extend(stretch.offsets)
        texts.extend(stretch.texts)
        self._chars += _chars(stretch.texts)
        self._ends[partition] = stretch.end
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

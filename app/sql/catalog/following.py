"""A relation's changes as frames, from a beginning on and as they come: what push queries look at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

import polars as pl

from app.following.change_log import range_end, read_frame
from app.following.changes import ChangeSource
from app.following.given_cursors import CursorExpired
from app.following.tails.tail import Tail
from app.following.tails.tails import Tails

ROWS_AT_ONCE: Final = 1_000
Beginning = Literal["earliest", "latest"]


class FrameFollower:
    """One reader's way through a relation's log.

    Args:
        tails: whose connections it reads through.
        source: the relation.
        offsets: by partition, where it goes on.
        tail: the source's, to wait for what is new.
    """

    def __init__(self, tails: Tails, source: ChangeSource, offsets: list[int], tail: Tail) -> None:
        self._tails, self._source, self._offsets, self._tail = tails, source, offsets, tail

    async def next(self) -> list[pl.DataFrame]:
        """Return what is new, in the order of each partition and part: ``_ts``, ``_op``, ``_partition`` and the relation's columns.

        Raises:
            CursorExpired: the log was rebuilt from scratch, or what comes next was removed from it.
        """
        if self._tail.is_gone:
            raise CursorExpired(self._source.followed.name, "the result was rebuilt from scratch or deleted")
        found: list[pl.DataFrame] = []
        async with self._tails.reading() as connection:
            heads = await self._source.heads(connection)
            if len(heads) != len(self._offsets):
                raise CursorExpired(self._source.followed.name, "the result was rebuilt from scratch or deleted")
            for partition, (oldest, end) in enumerate(heads):
                start = self._offsets[partition]
                if start < oldest:
                    raise CursorExpired(self._source.followed.name, "what comes next was removed by the retention of the log")
                if start >= end:
                    continue
                own, number = self._source.followed.lanes[partition]
                far = await range_end(connection, own, number, start, min(ROWS_AT_ONCE, end - start))
                frame = await read_frame(connection, own, number, start, far)
                self._offsets[partition] = far
                frame = self._readable(frame)
                if frame.height:
                    found.append(frame if own.is_derived else frame.with_columns(_partition=pl.lit(number)))
        return found

    def _readable(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Leave out what changes no row of a table: records without a whole key (T6)."""
        followed = self._source.followed
        if followed.kind == "stream" or followed.output is not None:
            return frame
        return frame.filter(pl.all_horizontal(pl.col(followed.key).is_not_null()))

    async def wait(self, seconds: float) -> None:
        """Wait until there may be something new, at most so long."""
        await self._tail.wait(seconds)


@asynccontextmanager
async def following(tails: Tails, source: ChangeSource, beginning: Beginning) -> AsyncIterator[FrameFollower]:
    """Yield a follower of a relation that begins with what the log still holds, or with what comes.

    Raises:
        CursorExpired: the relation is being replaced.
    """
    news = await tails.look(source)
    if not news.heads:
        raise CursorExpired(source.followed.name, "the result was rebuilt from scratch or deleted")
    offsets = [oldest if beginning == "earliest" else end for oldest, end in news.heads]
    async with tails.following(source, news) as tail:
        yield FrameFollower(tails, source, offsets, tail)

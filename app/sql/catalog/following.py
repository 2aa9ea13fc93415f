"""A relation's changes as frames, from a beginning on and as they come: what push queries and PRINT look at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal

import polars as pl

from app.following.change_log import range_end, read_frame
from app.following.changes import ChangeSource
from app.following.followed import Followed
from app.following.given_cursors import CursorExpired
from app.following.tails.tail import Tail
from app.following.tails.tails import Tails

ROWS_AT_ONCE: Final = 1_000
Beginning = Literal["earliest", "latest"]


class FrameFollower:
    """The position of one reader in a relation's log.

    Args:
        offsets: by partition, where it goes on.
        sharing: relations that read the same log; they have the records that those before them leave out.
    """

    def __init__(
        self, tails: Tails, source: ChangeSource, offsets: list[int], tail: Tail, sharing: Sequence[Followed] = ()
    ) -> None:
        self._tails, self._source, self._offsets, self._tail, self._sharing = tails, source, offsets, tail, sharing

    async def next(self) -> list[pl.DataFrame]:
        """Return new changes, in the order of each partition and part: ``_ts``, ``_op``, ``_partition`` and the relation's columns.

        Raises:
            CursorExpired: see ``next_of_relations``.
        """
        return [frame for _, frame in await self.next_of_relations()]

    async def next_of_relations(self) -> list[tuple[str, pl.DataFrame]]:
        """Return what is new as ``next`` does, each frame with the name of the relation whose columns it has.

        Raises:
            CursorExpired: the log was rebuilt from scratch, or what comes next was removed from it.
        """
        if self._tail.is_gone:
            raise CursorExpired(self._source.followed.name, "the result was rebuilt from scratch or deleted")
        found: list[tuple[str, pl.DataFrame]] = []
        async with self._tails.reading() as connection:
            heads = await self._source.heads(connection)
            if len(heads) != len(self._offsets):
                raise CursorExpired(self._source.followed.name, "the result was rebuilt from scratch or deleted")
            for lane, (oldest, end) in enumerate(heads):
                start = self._offsets[lane]
                if start < oldest:
                    raise CursorExpired(self._source.followed.name, "the next changes were removed by the retention of the log")
                if start >= end:
                    continue
                own, number = self._source.followed.lanes[lane]
                far = await range_end(connection, own, number, start, min(ROWS_AT_ONCE, end - start))
                readers = (own, *self._sharing) if own is self._source.followed else (own,)
                read = [(each, await read_frame(connection, each, number, start, far)) for each in readers]
                self._offsets[lane] = far
                found += each_once([(each.relation.name, _readable(each, frame, number)) for each, frame in read])
        return found

    async def wait(self, seconds: float) -> None:
        """Wait until there may be something new, at most this long."""
        await self._tail.wait(seconds)


def _readable(followed: Followed, frame: pl.DataFrame, partition: int) -> pl.DataFrame:
    """Leave out what changes no row of a table: records without a whole key (T6)."""
    if followed.kind == "table" and followed.output is None and frame.height:
        frame = frame.filter(pl.all_horizontal(pl.col(followed.key).is_not_null()))
    return frame if followed.is_derived else frame.with_columns(_partition=pl.lit(partition))


def each_once(read: Sequence[tuple[str, pl.DataFrame]]) -> list[tuple[str, pl.DataFrame]]:
    """Return records in the order of the log, each as the first relation has it that takes it, with the relation's name.

    Args:
        read: what each relation, by its name, takes of one stretch of the log: with ``_offset``.
    """
    taking = [(name, frame) for name, frame in read if frame.height]
    if len(taking) < 2:
        return taking
    rows = [
        frame.select("_offset", reader=pl.lit(reader), row=pl.int_range(frame.height)) for reader, (_, frame) in enumerate(taking)
    ]
    chosen = pl.concat(rows).unique("_offset", keep="first", maintain_order=True).sort("_offset")
    runs = chosen.group_by(pl.col("reader").rle_id().alias("run"), maintain_order=True).agg(pl.col("reader").first(), "row")
    return [(taking[reader][0], taking[reader][1][own]) for _, reader, own in runs.iter_rows()]


@asynccontextmanager
async def following(
    tails: Tails, source: ChangeSource, beginning: Beginning, sharing: Sequence[Followed] = ()
) -> AsyncIterator[FrameFollower]:
    """Yield a follower of a relation that begins with what the log still holds, or with what comes; ``sharing``: see ``FrameFollower``.

    Raises:
        CursorExpired: the relation is being replaced.
    """
    news = await tails.look(source)
    if not news.heads:
        raise CursorExpired(source.followed.name, "the result was rebuilt from scratch or deleted")
    offsets = [oldest if beginning == "earliest" else end for oldest, end in news.heads]
    async with tails.following(source, news) as tail:
        yield FrameFollower(tails, source, offsets, tail, sharing)

"""The unread records in the partitions of a query's feeds, as far as a look shows them. Admission chooses from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import structlog

from engine.commit.removed_records import Gap, is_unread, removed_since_the_look
from engine.commit.task_states import Cursor
from engine.errors import RecordsRemoved
from engine.log.backlogs import LogPlace, UnreadLook
from engine.plan.model import Input
from engine.runtime.planning.admission import Admitted, Backlog
from engine.runtime.planning.cursors import FeedInputs
from engine.sources.feeds import Chunk, FeedReader, Limit

_Place = tuple[str, int, int]


class LookAhead:
    """Prefetched chunks by feed, partition and start. For one caller's thread.

    To date the chunks of files takes the planning process 0.2 s per million records, during which no worker works. So a backlog that did
    not fit into a batch is looked at in a separate thread while workers do that batch.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._asked: dict[_Place, Future[list[Chunk]]] = {}

    def ask(self, reader: FeedReader, partition: int, start: int, limit: Limit, *, is_dated: bool) -> None:
        """Begin to look at the records from ``start`` on."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "look-ahead")
        place = (reader.feed.name, partition, start)
        if place not in self._asked:
            self._asked[place] = self._thread.submit(reader.chunks, partition, start, limit, is_dated=is_dated)

    def chunks(self, reader: FeedReader, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """Return what ``reader.chunks`` returns, at once if ``ask`` was called for it.

        Raises:
            EngineError: as ``reader.chunks``, also for a failure in the background.
        """
        asked = self._asked.pop((reader.feed.name, partition, start), None)
        return reader.chunks(partition, start, limit, is_dated=is_dated) if asked is None else asked.result()

    def forget(self) -> None:
        """Drop prefetched chunks that nobody read."""
        for future in self._asked.values():
            future.cancel()
        self._asked.clear()


Targets = Mapping[str, Mapping[int, int]]
"""Feed → partition → its end at the time of a look."""

log = structlog.stdlib.get_logger(__name__)


class UnreadRecords:
    """Looks at partitions. For one caller's thread.

    Args:
        begun: the cursor of the launch.
        feeds: a reader for each feed, with the inputs that read it.
    """

    def __init__(self, begun: Cursor, feeds: Sequence[FeedInputs]) -> None:
        self._begun = begun
        self._feeds = feeds
        self._readers = {reader.feed.name: reader for reader, _ in feeds}
        self._look_ahead = LookAhead()

    def look(
        self, start: Cursor, targets: Targets, looked: UnreadLook | None, ahead: Limit, *, is_merged: bool
    ) -> tuple[list[Backlog], list[Gap]]:
        """Return the backlog of each partition after a cursor, and the removed records of partitions of which nothing was read.

        Args:
            start: the cursor.
            targets: records after these ends are not shown.
            looked: the answers of one look at all logs; None: there was none.
            ahead: how far to look.
            is_merged: event times are needed.

        Raises:
            EngineError: as the readers' methods.
        """
        backlogs, gaps = [], list[Gap]()
        for reader, inputs in self._feeds:
            name = reader.feed.name
            for partition, end in sorted(targets[name].items()):
                first = start["feeds"].get(name, {}).get(str(partition), 0)
                if first > end:
                    # If this launch has read it, the next launch begins at the position committed now.
                    is_committed = self._begun["feeds"].get(name, {}).get(str(partition), 0) > end
                    raise reader.receded(partition, first, end, is_committed=is_committed)
                if first == end:
                    continue
                try:
                    found = self._chunks(reader, partition, first, looked, ahead, is_dated=is_merged)
                except RecordsRemoved as error:
                    if error.kept_from is None or not is_unread(start, name, str(partition)):
                        raise
                    gaps.append(Gap(name, str(partition), first, min(error.kept_from, end)))
                    log.warning("records_lost", feed=name, partition=partition, first=first, begins_at=gaps[-1].stop)
                    first = gaps[-1].stop
                    if first == end:
                        continue
                    with removed_since_the_look():
                        found = self._chunks(reader, partition, first, looked, ahead, is_dated=is_merged)
                chunks, is_whole = _until(found, end)
                head = start.get("heads", {}).get(name, {}).get(str(partition))
                backlogs.append(Backlog(name, partition, first, chunks, is_table(inputs), is_whole, head))
        return backlogs, gaps

    def further(self, targets: Targets, backlog: Backlog, known: int, limit: Limit) -> tuple[list[Chunk], bool]:
        """Look at a partition from ``known`` on, up to its end at this look; return the chunks, and whether they are all."""
        with removed_since_the_look():
            found = self._readers[backlog.feed].chunks(backlog.partition, known, limit, is_dated=True)
        return _until(found, targets[backlog.feed][backlog.partition])

    def first_at(self, backlog: Backlog, start: int, end: int, bound_ms: int) -> int:
        with removed_since_the_look():
            return self._readers[backlog.feed].first_at(backlog.partition, start, end, bound_ms)

    def ask_for_next(self, backlogs: Sequence[Backlog], admitted: Admitted, ahead: Limit, *, is_merged: bool) -> None:
        """Begin to look at the next batch's records, if this one left some."""
        self._look_ahead.forget()
        for backlog in backlogs:
            end = admitted.ends.get((backlog.feed, backlog.partition), backlog.start)
            if not backlog.is_whole or backlog.chunks[-1].end_offset > end:
                self._look_ahead.ask(self._readers[backlog.feed], backlog.partition, end, ahead, is_dated=is_merged)

    def _chunks(
        self, reader: FeedReader, partition: int, first: int, looked: UnreadLook | None, ahead: Limit, *, is_dated: bool
    ) -> list[Chunk]:
        unread = None if looked is None else looked.unread.get(LogPlace(reader.feed.log_feed, partition, first))
        found = None if unread is None else reader.chunks_of(unread, partition, first, ahead)
        return self._look_ahead.chunks(reader, partition, first, ahead, is_dated=is_dated) if found is None else found


def is_table(inputs: Sequence[Input]) -> bool:
    """Whether only tables read a feed."""
    return all(item.relation.kind == "table" for item in inputs)


def _until(chunks: Sequence[Chunk], end: int) -> tuple[list[Chunk], bool]:
    """Leave out records after ``end``, which arrived after the ends were asked for; return also whether the chunks reach it."""
    kept: list[Chunk] = []
    for chunk in chunks:
        kept.append(replace(chunk, end_offset=min(chunk.end_offset, end)))
        if chunk.end_offset >= end:
            return kept, True
    return kept, False

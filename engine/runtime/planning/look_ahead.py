"""Looking at a backlog while workers do the batch before.

To date the chunks of files takes the planning process 0.2 s per million records, during which no worker works. So a backlog that did
not fit into a batch is looked at in a separate thread as soon as the batch is planned.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from engine.sources.feeds import Chunk, FeedReader, Limit

_Place = tuple[str, int, int]


class LookAhead:
    """Prefetched chunks by feed, partition and start. For one caller's thread."""

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

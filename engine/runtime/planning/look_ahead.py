"""Looking at a backlog while the batch before it is worked on.

Dating the chunks of files costs the planning process 0.2 s per million records, during which no worker works. A backlog that did
not fit into a batch is therefore looked at as soon as the batch is planned, in a thread of its own.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from engine.sources.chunks import Chunk
from engine.sources.feeds import FeedReader, Limit

_Place = tuple[str, int, int]


class LookAhead:
    """Chunks by feed, partition and start, asked for early. For one caller's thread."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._asked: dict[_Place, Future[list[Chunk]]] = {}

    def ask(self, reader: FeedReader, partition: int, start: int, limit: Limit, *, is_dated: bool) -> None:
        """Begin to look at what lies behind ``start``."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "look-ahead")
        place = (reader.feed.name, partition, start)
        if place not in self._asked:
            self._asked[place] = self._thread.submit(reader.chunks, partition, start, limit, is_dated=is_dated)

    def chunks(self, reader: FeedReader, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """Return what ``reader.chunks`` returns, at once where it was asked for.

        Raises:
            EngineError: as ``reader.chunks``, also where that failed in the background.
        """
        asked = self._asked.pop((reader.feed.name, partition, start), None)
        return reader.chunks(partition, start, limit, is_dated=is_dated) if asked is None else asked.result()

    def forget(self) -> None:
        """Drop what was asked for and not taken."""
        for future in self._asked.values():
            future.cancel()
        self._asked.clear()

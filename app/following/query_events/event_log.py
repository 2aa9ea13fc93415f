"""Follow the events of a query by their ids, which ascend in the order of commits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from app.catalog.stored.feeds_read import Connection
from app.errors.app_errors import Gone, Unavailable
from app.following.change_log import STRETCH_ROWS, Heads, LogRange
from app.following.push import PushEvent
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import Tail
from app.following.tails.tails import Tails

_HEAD_SQL = """
SELECT coalesce((SELECT max(id) FROM slackwater.query_event WHERE query_id = %(query)s), 0) + 1
FROM slackwater.query WHERE id = %(query)s AND (SELECT id FROM log.incarnation) IS NOT DISTINCT FROM %(incarnation)s::uuid
"""
_EVENTS_SQL = """
SELECT * FROM slackwater.query_event WHERE query_id = %(query)s AND id >= %(start)s AND id < %(end)s ORDER BY id LIMIT %(limit)s
"""


def mark_of(incarnation: UUID) -> str:
    """Return the part of an event's id that identifies the incarnation."""
    return incarnation.hex[:8]


@dataclass(frozen=True, slots=True)
class EventSource:
    """A query's events as a ``Source``: one partition, ids as offsets.

    Attributes:
        encode: writes an event's row as JSON.
        incarnation: of the database (``engine.postgres.incarnation``): ids are used again after a restore.
    """

    query_id: UUID
    encode: Callable[[Mapping[str, Any]], str]
    incarnation: UUID | None

    def event_id(self, number: int) -> str:
        """Return the id to send to continue behind an event."""
        return str(number) if self.incarnation is None else f"{number}-{mark_of(self.incarnation)}"

    @property
    def id(self) -> Hashable:
        """The query."""
        return "events", self.query_id, self.incarnation

    @property
    def notifying_query(self) -> UUID | None:
        """The query: most of its events come with a new state."""
        return self.query_id

    @staticmethod
    async def heads_of(connection: Connection, sources: Sequence[EventSource]) -> Sequence[Heads | Unavailable]:
        """See ``Source``. Few clients follow events of queries at the same time."""
        return [await source.heads(connection) for source in sources]

    @staticmethod
    async def new_entries_of(
        connection: Connection,
        sources: Sequence[EventSource],
        ends: Sequence[Sequence[int] | None],  # noqa: ARG004 - of the port
        *,
        from_oldest: bool = False,  # noqa: ARG004
    ) -> Sequence[NewEntries | Unavailable]:
        """See ``Source``. Events are read range by range."""
        return [NewEntries(await source.heads(connection)) for source in sources]

    async def heads(self, connection: Connection) -> list[tuple[int, int]]:
        params = {"query": self.query_id, "incarnation": self.incarnation}
        return [(0, end) for (end,) in await (await connection.execute(_HEAD_SQL, params)).fetchall()]

    async def read_range(self, connection: Connection, partition: int, start: int, end: int) -> LogRange:  # noqa: ARG002 - of the port
        params = {"query": self.query_id, "start": start, "end": end, "limit": STRETCH_ROWS}
        async with connection.cursor(row_factory=dict_row) as cursor:
            rows = await (await cursor.execute(_EVENTS_SQL, params)).fetchall()
        ids = [row["id"] for row in rows]
        return LogRange(ids, [self.encode(row) for row in rows], ids[-1] + 1 if len(ids) == STRETCH_ROWS else end)


class EventFollower:
    """One client that follows one query.

    Args:
        after: id of the client's last event; 0 for none.
    """

    def __init__(self, tails: Tails, source: EventSource, after: int, tail: Tail) -> None:
        self._tails = tails
        self._source = source
        self._tail = tail
        self._next = after + 1

    @property
    def id(self) -> str:
        """The id of the last event returned, or of the position before the next one."""
        return self._source.event_id(self._next - 1)

    async def next(self, limit: int) -> list[PushEvent]:
        """Return up to ``limit`` events; none if there are none at the moment.

        Raises:
            Gone: ``query_gone``: no more events come; ``cursor_expired``: the query has no event with this id.
        """
        entries = self._tail.take(0, self._next, limit)
        if entries is None:
            async with self._tails.reading() as connection:
                heads = await self._source.heads(connection)
                end = heads[0][1] if heads else self._next
                if end < self._next:
                    raise Gone(
                        "cursor_expired",
                        f"there is no event {self._next - 1}, the last is {end - 1}: start from scratch without an id",
                    )
                entries = await self._source.read_range(connection, 0, self._next, end)
        if not entries.offsets and self._tail.is_gone:
            raise Gone("query_gone", "the query was deleted, or the database was restored; no more events come")
        self._next = max(self._next, entries.end)
        return [
            PushEvent("event", self._source.event_id(number), text)
            for number, text in zip(entries.offsets, entries.texts, strict=True)
        ]

    async def wait(self, seconds: float) -> None:
        """Wait until there may be something new, at most this long."""
        await self._tail.wait(seconds)

"""Follow a relation's changes: exactly once behind a cursor, or behind a snapshot.

A snapshot is sent row by row in key order. Each range of rows is read in a short transaction of its own. Before the transaction reads the next
rows, the follower receives the changes since its cursor *of the keys that it already has*. So, at every event, the rows up to the cursor's key
are as of the cursor's offset, and the keys behind that key are unknown. A client may leave at any event; to continue is the same step. At the
end the follower has the table as of one position, and received no change twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal
from uuid import UUID

import psycopg

from app.catalog.stored.feeds_read import Connection
from app.db.page_bounds import Most
from app.errors.app_errors import Unavailable
from app.following import change_log
from app.following.change_log import STRETCH_BYTES, STRETCH_ROWS, Heads, LogRange
from app.following.cursors import ChangeCursor
from app.following.followed import Followed
from app.following.given_cursors import CursorExpired, bad_cursor, check_cursor, continued
from app.following.push import PushEvent
from app.following.snapshots import hold, read_rows, up_to
from app.following.tails import new_entries as change_news
from app.following.tails.new_entries import NewEntries
from app.following.tails.tail import Tail, taken
from app.following.tails.tails import Tails
from engine.plan.model import Output

STRETCHES_AT_ONCE = 64
"""Ranges that one step reads at most. All followers share a few connections, so a step must be short."""

Start = Literal["snapshot", "earliest", "latest"]


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The log of a relation, as a ``Source``."""

    followed: Followed
    has_text_numbers: bool

    @property
    def id(self) -> Hashable:
        """The log, and how numbers are written in its changes."""
        parts = tuple((part.identity, part.part) for part in self.followed.parts)
        return "changes", self.followed.identity, self.followed.name, self.followed.columns, self.has_text_numbers, parts

    @property
    def notifying_query(self) -> UUID | None:
        """The query that writes the log; None: no query, or several."""
        return None if self.followed.parts else self.followed.query_id

    @staticmethod
    async def heads_of(connection: Connection, sources: Sequence[ChangeSource]) -> Sequence[Heads | Unavailable]:
        return await change_news.heads_of(connection, [source.followed for source in sources])

    @staticmethod
    async def new_entries_of(
        connection: Connection,
        sources: Sequence[ChangeSource],
        ends: Sequence[Sequence[int] | None],
        *,
        from_oldest: bool = False,
    ) -> Sequence[NewEntries | Unavailable]:
        texts, followed = [source.has_text_numbers for source in sources], [source.followed for source in sources]
        return await change_news.new_entries_of(connection, followed, ends, texts, from_oldest=from_oldest)

    async def heads(self, connection: Connection) -> Heads:
        """Return the heads of this log.

        Raises:
            Unavailable: ``relation_changing``.
        """
        return await change_news.heads(connection, self.followed)

    async def read_range(self, connection: Connection, partition: int, start: int, end: int) -> LogRange:
        """See ``Source``; its partitions are ``Followed.lanes``."""
        log, number = self.followed.lanes[partition]
        far = await change_log.range_end(connection, log, number, start, min(STRETCH_ROWS, end - start))
        return await change_log.read_range(connection, log, number, start, far, has_text_numbers=self.has_text_numbers)


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a follower begins, and the new entries of its log at that moment."""

    cursor: ChangeCursor
    news: NewEntries


class ChangeFollower:
    """One client that follows one relation.

    Args:
        most_bytes: a step ends after this many bytes, before its limit; it has at least one event.

    Attributes:
        cursor: the position; ``next`` moves it.
        is_caught_up: the last ``next`` reached the end of the log.
    """

    def __init__(
        self,
        tails: Tails,
        source: ChangeSource,
        begun: Begun,
        tail: Tail | None = None,
        *,
        most_bytes: int = STRETCH_BYTES,
    ) -> None:
        self._tails = tails
        self._most_bytes = most_bytes
        self._source = source
        self._followed = source.followed
        self._tail = tail
        self._news: NewEntries | None = begun.news
        self.cursor = begun.cursor
        self.is_caught_up = False

    @property
    def id(self) -> str:
        """The text of the cursor."""
        return self.cursor.encode()

    async def next(self, limit: int) -> list[PushEvent]:
        """Return up to ``limit`` events, fewer if they are large; none if there are none at the moment.

        Raises:
            CursorExpired: the changes behind the cursor are not known any more.
            BadRequest: ``bad_cursor``.
        """
        self.is_caught_up = False
        if self.cursor.rows_after is not None and self._followed.output is not None:
            try:
                return await self._snapshot_step(self._followed.output, limit)
            except psycopg.DataError as error:
                raise bad_cursor() from error  # a text of the cursor's key is not of the column's type
        if self._tail is not None and self._tail.is_gone:
            raise _replaced(self._followed)
        events = self._from_tail(limit) if self._tail is not None else None
        events = self._from_first_entries(limit) if events is None else events
        return await self._from_log(limit) if events is None else events

    async def wait(self, seconds: float) -> None:
        """Wait for new entries, at most this long. Return at once without a tail, or if the last step did not reach the end."""
        if self._tail is None or not self.is_caught_up:
            return
        is_behind = any(offset < end for offset, end in zip(self.cursor.offsets, self._tail.ends, strict=False))
        if not is_behind:  # the tail grew while this follower read from the database
            await self._tail.wait(seconds)

    def _from_tail(self, limit: int) -> list[PushEvent] | None:
        """Read from the shared tail; None: the tail does not reach back to the cursor in some partition."""
        if self._tail is None:
            return None
        events: list[PushEvent] = []
        room = self._most_bytes
        for partition, offset in enumerate(self.cursor.offsets):
            if len(events) >= limit or room <= 0:
                return events
            entries = self._tail.take(partition, offset, limit - len(events))
            if entries is None:
                return events or None
            cut = _cut(entries, limit - len(events), room)
            events += self._events(partition, cut)
            room = 0 if len(cut.texts) < len(entries.texts) else room - _size(cut)
        self._news = None
        self.is_caught_up = len(events) < limit and room > 0
        return events

    def _from_first_entries(self, limit: int) -> list[PushEvent] | None:
        """Read the entries that came with the start; None: they do not reach the end of the log, or are read already."""
        news = self._news
        if news is None:
            return None
        offset, ends = self.cursor.offsets[0], tuple(next_offset for _, next_offset in news.heads)
        if news.read is not None and news.start <= offset < ends[0]:
            events = self._events(0, _cut(taken(news.read(), offset, limit), limit, self._most_bytes))
            self.is_caught_up = self.cursor.offsets == ends
            return events
        self._news = None
        self.is_caught_up = self._tail is None and self.cursor.offsets == ends
        return [] if self.is_caught_up else None

    async def _from_log(self, limit: int) -> list[PushEvent]:
        """Read from the database. Followers at the same position share the read."""
        request = self._source.id, self.cursor.offsets, limit, self._most_bytes
        step = await self._tails.reads.read(request, partial(_read_step, self._source, self.cursor, limit, self._most_bytes))
        events = [event for partition, entries in step.stretches for event in self._events(partition, entries)]
        self.is_caught_up = step.is_all
        return events

    def _events(self, partition: int, entries: LogRange) -> list[PushEvent]:
        before, behind = self.cursor.around(partition)
        events = [
            PushEvent("change", f"{before}{offset + 1}{behind}", text)
            for offset, text in zip(entries.offsets, entries.texts, strict=True)
        ]
        self.cursor = self.cursor.at(partition, entries.end)
        return events

    async def _snapshot_step(self, output: Output, limit: int) -> list[PushEvent]:
        """Bring the rows that the client has up to date; then add rows."""
        async with self._tails.reading() as connection:
            try:
                await hold(connection, output)
            except psycopg.errors.UndefinedTable as error:
                raise _replaced(self._followed) from error
            heads = await _heads(connection, self._source, self.cursor)
            next_offset = heads[0][1]
            if not self.cursor.rows_after:
                self.cursor = self.cursor.at(0, next_offset)
            events = await self._caught_up(connection, next_offset, limit)
            room = self._most_bytes - sum(len(event.json) for event in events)
            if self.cursor.offsets[0] == next_offset and len(events) < limit and room > 0:
                events += await self._rows(connection, output, limit - len(events), room)
        self.is_caught_up = self.cursor.rows_after is None
        return events

    async def _caught_up(self, connection: Connection, next_offset: int, limit: int) -> list[PushEvent]:
        """Return the changes of keys that the client has, up to ``next_offset`` or for one range."""
        start = self.cursor.offsets[0]
        if start == next_offset:
            return []
        rows = min(STRETCH_ROWS, limit, next_offset - start)
        end = await change_log.range_end(connection, self._followed, 0, start, rows)
        frame = await change_log.read_frame(connection, self._followed, 0, start, end)
        known = await up_to(connection, self._followed, frame, self.cursor)
        changes = change_log.encode_changes(self._followed, 0, known, end, has_text_numbers=self._source.has_text_numbers)
        return self._events(0, changes)

    async def _rows(self, connection: Connection, output: Output, limit: int, room: int) -> list[PushEvent]:
        rows, is_last = await read_rows(
            connection, self._followed, output, self.cursor, Most(limit, room), has_text_numbers=self._source.has_text_numbers
        )
        events = []
        for row in rows:
            self.cursor = replace(self.cursor, rows_after=row.key)
            events.append(PushEvent("snapshot", self.cursor.encode(), row.json))
        if is_last:
            self.cursor = replace(self.cursor, rows_after=None)
            events.append(PushEvent("snapshot_end", self.cursor.encode(), f'{{"offset":{self.cursor.offsets[0]}}}'))
        return events


@dataclass(frozen=True, slots=True)
class _Step:
    """One read of the database.

    Attributes:
        stretches: (lane, range), in order.
        is_all: the ranges reach the end of the log.
    """

    stretches: Sequence[tuple[int, LogRange]]
    is_all: bool


async def _read_step(source: ChangeSource, cursor: ChangeCursor, limit: int, room: int, connection: Connection) -> _Step:
    """Read behind a cursor: several ranges if a shared feed has few records of the relation, up to a bound."""
    stretches: list[tuple[int, LogRange]] = []
    items, is_all = 0, True
    for partition, (_, next_offset) in enumerate(await _heads(connection, source, cursor)):
        offset, rows = cursor.offsets[partition], limit - items
        while offset < next_offset and items < limit and room > 0 and len(stretches) < STRETCHES_AT_ONCE:
            entries = await source.read_range(connection, partition, offset, min(next_offset, offset + rows))
            cut = _cut(entries, limit - items, room)
            stretches.append((partition, cut))
            offset, items, room = cut.end, items + len(cut.texts), room - _size(cut)
            # Every range decodes its batch again. Where few records are the relation's, a long range costs as much as a short one.
            rows = STRETCH_ROWS
        is_all = is_all and offset >= next_offset
    return _Step(stretches, is_all)


async def _heads(connection: Connection, source: ChangeSource, cursor: ChangeCursor) -> Heads:
    heads = await source.heads(connection)
    if not heads:
        raise _replaced(source.followed)
    check_cursor(source.followed, cursor, heads)
    return heads


def _replaced(followed: Followed) -> CursorExpired:
    return CursorExpired(followed.name, "the result was rebuilt from scratch or deleted, or the database was restored")


def _cut(entries: LogRange, items: int, room: int) -> LogRange:
    """Return the first items of a range: up to ``items``, or up to the one that fills the room."""
    count = 0
    while count < min(items, len(entries.texts)) and room > 0:
        room -= len(entries.texts[count])
        count += 1
    if count == len(entries.texts):
        return entries
    return LogRange(entries.offsets[:count], entries.texts[:count], entries.offsets[count - 1] + 1)


def _size(entries: LogRange) -> int:
    return sum(map(len, entries.texts))


async def begin(tails: Tails, source: ChangeSource, start: Start | ChangeCursor) -> Begun:
    """Return where a follower begins: at ``start``, or behind the cursor that it sent.

    Raises:
        CursorExpired: the changes behind the cursor are not known any more, or the relation is being replaced.
        Unavailable: ``relation_changing``.
    """
    followed = source.followed
    if isinstance(start, ChangeCursor):
        news = await tails.look(source, start.offsets if start.rows_after is None else None)
        return Begun(continued(followed, start, news.heads), news)
    news = await tails.look(source, (0,) * len(followed.lanes) if start == "earliest" else None)
    if not news.heads:
        raise CursorExpired(followed.name, "the result was rebuilt from scratch or deleted")
    offsets = tuple(oldest if start == "earliest" else next_offset for oldest, next_offset in news.heads)
    parts = tuple(part.identity for part in followed.parts)
    return Begun(ChangeCursor(followed.identity, offsets, () if start == "snapshot" else None, parts), news)

"""Segments that no committed manifest names: how long they stay, and when they are removed.

Workers only write segments. Unnamed segments come from manifests that no longer name them, and from attempts that never committed. The
collector finds them by comparing the existing segments with those that committed manifests name. It records them in ``log.orphan_segment``
and keeps them for the retention, because a database restored from a dump of that time names them again. A segment named again leaves the list.

A segment must not go while an attempt may still commit a manifest that names it. An attempt begins with the committed state. It names only
that state's segments and those that it writes itself. So an existing segment unnamed as of a launch and a batch can be named later
only by attempts at the batches that were then under way. It is *settled* once a later launch has the fence, or once
``SETTLED_BATCHES`` further batches are committed; before that nothing removes it, at any age.

Segments of a retained commit stay as long as the commit, without a record: a query that is rewound names them again (``RetainedSegments``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import tuple_row

from engine.commit.history.retained_commits import forget_retained, retained_manifests
from engine.commit.history.state_owners import StateOwners
from engine.postgres.postgres import Connection
from engine.state.segments.in_manifest import names_of
from engine.state.segments.ports import StateStore

_COMMITS: Final = """
    SELECT batch_id, checkpoint_id || '/' || (layout ->> 'segments'), retained_at FROM log.retained_commit WHERE query_id = %s ORDER BY batch_id
"""
_GIVE_UP: Final = "DELETE FROM log.retained_commit WHERE query_id = %s AND batch_id = %s"


class RetainedSegments:
    """The segments of one query's retained commits, in memory: a retained commit never changes."""

    def __init__(self, query_id: UUID) -> None:
        self._query_id = query_id
        self._names: dict[tuple[int, datetime], frozenset[str]] = {}

    @property
    def names(self) -> set[str]:
        """The names of all of them, below the query's folder."""
        return set[str]().union(*self._names.values())

    def look(self, connection: Connection) -> None:
        """Read which commits are retained now. After a rewind, numbers of batches are used again; the time distinguishes them."""
        with connection.cursor(row_factory=tuple_row) as cursor:
            rows = cursor.execute(_COMMITS, (self._query_id,)).fetchall()
        folders = {batch_id: folder for batch_id, folder, at in rows if (batch_id, at) not in self._names}
        found: dict[int, set[str]] = {batch_id: set() for batch_id in folders}
        shared = {name: name for names in self._names.values() for name in names}
        for batch_id, place, manifest in retained_manifests(connection, self._query_id, list(folders)) if folders else ():
            names = names_of(folders[batch_id], {place: json.loads(manifest)})
            found[batch_id].update(shared.setdefault(name, name) for name in names)
        self._names = {
            (batch_id, at): self._names[batch_id, at] if batch_id not in found else frozenset(found[batch_id])
            for batch_id, _, at in rows
        }

    def give_up_oldest(self, connection: Connection) -> None:
        """Delete the oldest retained commit: the query can no longer be rewound to it."""
        oldest = min(self._names)
        del self._names[oldest]
        connection.execute(_GIVE_UP, (self._query_id, oldest[0]))


SETTLED_BATCHES: Final = 3
"""At most one is under way; the others allow for commits that overlap with the next batch."""

MOST_SEGMENTS: Final = 10_000
"""The most unnamed segments of a query: each is a file to list, and a row."""

_OF_QUERY: Final = """
    SELECT c.epoch, c.batch_id, c.checkpoint_id, c.layout ->> 'segments', now(), s.stage, s.task, s.manifest
    FROM log.commit c LEFT JOIN log.task_state s ON s.query_id = c.query_id WHERE c.query_id = %s
"""
"""In one statement, because a launch may replace the layout meanwhile."""

_OF_ALL: Final = """
    SELECT c.query_id, c.checkpoint_id, c.layout ->> 'segments', s.stage, s.task, s.manifest
    FROM log.commit c LEFT JOIN log.task_state s ON s.query_id = c.query_id
"""

_NOTED: Final = """
    SELECT name, size_bytes, since, epoch, batch_id FROM log.orphan_segment WHERE query_id = %s AND root = %s ORDER BY since, name
"""
_NOTE: Final = """
    INSERT INTO log.orphan_segment (query_id, root, name, size_bytes, epoch, batch_id)
    SELECT %s, %s, n.name, n.size_bytes, %s, %s FROM unnest(%s::text[], %s::bigint[]) AS n (name, size_bytes)
    ON CONFLICT DO NOTHING
"""
_STRIKE: Final = "DELETE FROM log.orphan_segment WHERE query_id = %s AND root = %s AND name = ANY(%s)"
_REACH: Final = """
    INSERT INTO log.state_retention (query_id, since) VALUES (%s, %s)
    ON CONFLICT (query_id) DO UPDATE SET since = greatest(state_retention.since, excluded.since)
"""
_QUERIES: Final = """
    SELECT c.query_id, c.epoch, c.batch_id, (
        SELECT extract(epoch FROM now() - min(u.since)) * 1000 FROM log.orphan_segment u WHERE u.query_id = c.query_id AND u.root = %s
    )::bigint FROM log.commit c
"""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long unnamed segments stay, and how many.

    Attributes:
        keep_ms: how long a segment stays that no manifest names.
        most_bytes: of a query's unnamed segments; the oldest go first, before their time.
        most_segments: the same by number.
    """

    keep_ms: int
    most_bytes: int
    most_segments: int = MOST_SEGMENTS


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look at all queries.

    Attributes:
        is_pressing: some query has too many segments that are not settled yet: look again soon.
    """

    removed: int
    removed_bytes: int
    is_pressing: bool


@dataclass(frozen=True, slots=True)
class _UnnamedSegment:
    """A segment that existed unnamed as of a launch and a batch."""

    name: str
    size_bytes: int
    since: datetime
    epoch: int
    batch_id: int | None

    def is_final(self, now: _Committed) -> bool:
        """Whether no attempt can name it any more."""
        if now.epoch != self.epoch:
            return now.epoch > self.epoch
        return (-1 if now.batch_id is None else now.batch_id) >= (
            -1 if self.batch_id is None else self.batch_id
        ) + SETTLED_BATCHES


@dataclass(frozen=True, slots=True)
class _Committed:
    """The committed state of a query.

    Attributes:
        folder: ``<checkpoint id>/<folder of segments>/`` of its state; without a layout the checkpoint's folder, which is then left alone.
        named: the segments in it that manifests name; None if there is no layout.
    """

    epoch: int
    batch_id: int | None
    folder: str
    now: datetime
    named: frozenset[str] | None

    def spares(self, name: str) -> bool:
        """Whether a segment is named, or its use is unknown."""
        return name.startswith(self.folder) if self.named is None else name in self.named


class Collector:
    """Removes unnamed segments of all queries in one place. One at a time per place.

    Args:
        store: the place.
        root: its id: other places of the same queries have other collectors.
        retention: what stays.
        clock: monotonic seconds.
    """

    def __init__(self, store: StateStore, root: UUID, retention: Retention, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._root, self._retention = store, root, retention
        self._owners = StateOwners(store, clock)
        self._seen: dict[UUID, tuple[int, int | None]] = {}
        self._held: dict[UUID, RetainedSegments] = {}

    def look(self, connection: Connection) -> Look:
        """Compare the existing segments with the named ones; record, clear records, remove.

        It skips queries that are not in this database, because others may keep theirs in the same place, and queries that another database owns
        (``engine.commit.history.state_owners``). Of the rest it examines those with a commit since the last look, or with due segments.

        Args:
            connection: in autocommit mode.

        Raises:
            ExternalError: the place cannot be reached now.
        """
        self._clear_deleted(connection)
        is_full = self._store.is_nearly_full
        with connection.cursor(row_factory=tuple_row) as cursor:
            rows: Sequence[tuple[Any, ...]] = cursor.execute(_QUERIES, (self._root,)).fetchall()
        self._seen = {query_id: self._seen[query_id] for query_id, *_ in rows if query_id in self._seen}
        self._held = {query_id: self._held[query_id] for query_id, *_ in rows if query_id in self._held}
        removed, is_pressing = list[_UnnamedSegment](), False
        for query_id, epoch, batch_id, oldest_ms in rows:
            is_due = oldest_ms is not None and (is_full or oldest_ms >= self._retention.keep_ms)
            is_due = is_due or (is_full and query_id in self._held and bool(self._held[query_id].names))
            if self._seen.get(query_id) == (epoch, batch_id) and not is_due:
                continue
            if self._owners.is_own(connection, query_id):
                gone, is_over = self._look_at(connection, query_id, is_full=is_full)
                removed += gone
                is_pressing = is_pressing or is_over
            self._seen[query_id] = epoch, batch_id
        return Look(len(removed), sum(noted.size_bytes for noted in removed), is_pressing)

    def _clear_deleted(self, connection: Connection) -> None:
        """Remove the segments of deleted queries; those that another database owns stay."""
        for (query_id,) in connection.execute("SELECT query_id FROM log.deleted_state WHERE root = %s", (self._root,)).fetchall():
            if self._owners.is_own(connection, query_id):
                self._store.below(str(query_id)).clear()
                self._store.forget_owner(str(query_id))
            connection.execute("DELETE FROM log.deleted_state WHERE query_id = %s AND root = %s", (query_id, self._root))

    def _look_at(self, connection: Connection, query_id: UUID, *, is_full: bool) -> tuple[list[_UnnamedSegment], bool]:
        """Return the removed segments of a query, and whether too many are left."""
        place = self._store.below(str(query_id))
        # The existing segments are listed first: segments written later are not in the list, named or not.
        there = {found.name: found.size_bytes for found in place.listed()}
        committed = _committed(connection, query_id)
        noted = self._unnamed_segments(connection, query_id)
        if committed is None or not (there or noted):
            return [], False
        unnamed = {name: size for name, size in there.items() if not committed.spares(name)}
        held_bytes, held = self._hold(connection, query_id, unnamed, is_full=is_full)
        stale = [one.name for one in noted if one.name not in unnamed]
        new = unnamed.keys() - {one.name for one in noted}
        with connection.transaction():
            if stale:
                connection.execute(_STRIKE, (query_id, self._root, stale))
            if new:
                sizes = [unnamed[name] for name in sorted(new)]
                connection.execute(_NOTE, (query_id, self._root, committed.epoch, committed.batch_id, sorted(new), sizes))
        kept = [one for one in noted if one.name in unnamed]
        left_bytes, left = held_bytes + sum(unnamed.values()), held + len(unnamed)
        going: list[_UnnamedSegment] = []
        for one in kept:  # the oldest come first
            is_over = is_full or left_bytes > self._retention.most_bytes or left > self._retention.most_segments
            is_past = (committed.now - one.since).total_seconds() * 1000 >= self._retention.keep_ms
            if (is_over or is_past) and one.is_final(committed):
                going.append(one)
                left_bytes, left = left_bytes - one.size_bytes, left - 1
        self._remove(connection, query_id, place, going)
        return going, left_bytes > self._retention.most_bytes or left > self._retention.most_segments

    def _hold(self, connection: Connection, query_id: UUID, unnamed: dict[str, int], *, is_full: bool) -> tuple[int, int]:
        """Remove the segments of retained commits from ``unnamed``; return their bytes and number.

        They may be half of the bound. If they are more, or the disk is nearly full, the oldest retained commits are dropped.
        """
        held = self._held.setdefault(query_id, RetainedSegments(query_id))
        held.look(connection)
        while names := held.names & unnamed.keys():
            size = sum(unnamed[name] for name in names)
            if not is_full and 2 * size <= self._retention.most_bytes and 2 * len(names) <= self._retention.most_segments:
                for name in names:
                    del unnamed[name]
                return size, len(names)
            held.give_up_oldest(connection)
        return 0, 0

    def _remove(self, connection: Connection, query_id: UUID, place: StateStore, going: Sequence[_UnnamedSegment]) -> None:
        """Remove segments; first record how far back a restored database may then be."""
        if not going:
            return
        names = [one.name for one in going]
        connection.execute(_REACH, (query_id, max(one.since for one in going)))
        place.remove(names)
        connection.execute(_STRIKE, (query_id, self._root, names))

    def _unnamed_segments(self, connection: Connection, query_id: UUID) -> list[_UnnamedSegment]:
        with connection.cursor(row_factory=tuple_row) as cursor:
            return [_UnnamedSegment(*row) for row in cursor.execute(_NOTED, (query_id, self._root))]


def _committed(connection: Connection, query_id: UUID) -> _Committed | None:
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows: Sequence[tuple[Any, ...]] = cursor.execute(_OF_QUERY, (query_id,)).fetchall()
    if not rows:
        return None
    epoch, batch_id, checkpoint_id, folder, now, *_ = rows[0]
    if folder is None:
        return _Committed(epoch, batch_id, f"{checkpoint_id}/", now, None)
    states = {(stage, task): json.loads(manifest) for *_, stage, task, manifest in rows if manifest is not None}
    named = frozenset(f"{checkpoint_id}/{name}" for name in names_of(folder, states))
    return _Committed(epoch, batch_id, f"{checkpoint_id}/{folder}/", now, named)


@dataclass(frozen=True, slots=True)
class Needed:
    """The parts of the place of all queries that a database needs.

    Attributes:
        named: every segment that a committed manifest names and does not hold itself.
        unjudged: ``<query id>/<checkpoint id>`` without a launch of this version: everything in it is needed.
    """

    named: frozenset[str]
    unjudged: frozenset[str]


def needed(connection: Connection) -> Needed:
    """Return what a copy of the state must contain."""
    named: set[str] = set()
    unjudged: set[str] = set()
    with connection.cursor(row_factory=tuple_row) as cursor:
        for query_id, checkpoint_id, folder, stage, task, manifest in cursor.execute(_OF_ALL):
            place = f"{query_id}/{checkpoint_id}"
            if folder is None:
                unjudged.add(place)
            elif manifest is not None:
                named |= {f"{place}/{name}" for name in names_of(folder, {(stage, task): json.loads(manifest)})}
    return Needed(frozenset(named), frozenset(unjudged))


def delete_state(connection: Connection, query_id: UUID, root: UUID) -> None:
    """Delete the records of a deleted query, and let the collector of its place remove the rest.

    Args:
        connection: within the transaction that deletes the query.
        query_id: of a query that is never launched again.
        root: id of the place.
    """
    connection.execute("INSERT INTO log.deleted_state (query_id, root) VALUES (%s, %s) ON CONFLICT DO NOTHING", (query_id, root))
    connection.execute("DELETE FROM log.orphan_segment WHERE query_id = %s", (query_id,))
    connection.execute("DELETE FROM log.state_retention WHERE query_id = %s", (query_id,))
    forget_retained(connection, query_id)

"""The segments that a query's retained commits name, in the collector's memory: a retained commit never changes."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg.rows import tuple_row

from engine.commit.history.retained_commits import retained_manifests
from engine.commit.history.segment_names import names_of
from engine.postgres.postgres import Connection

_COMMITS: Final = """
    SELECT batch_id, checkpoint_id || '/' || (layout ->> 'segments'), retained_at FROM log.retained_commit WHERE query_id = %s ORDER BY batch_id
"""
_GIVE_UP: Final = "DELETE FROM log.retained_commit WHERE query_id = %s AND batch_id = %s"


class RetainedSegments:
    """The segments of one query's retained commits."""

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

"""The thread of a driver that removes segments which no query needs any more (``engine.commit.history.segment_collector``).

If several drivers share a state directory, one at a time does this: the holder of the advisory lock of its id.
"""

from __future__ import annotations

import threading
from typing import Final
from uuid import UUID

import psycopg
import structlog

from engine.commit.history.segment_collector import Collector, Look, Retention
from engine.errors import EngineError
from engine.postgres.postgres import connect
from engine.postgres.schemas import schemas_of
from engine.state.segments.objects import Objects
from engine.state.segments.ports import StateStore

EVERY_S: Final = 30.0
"""A check costs a statement, and a listing for each query with new commits."""

EVERY_S_OF_OBJECTS: Final = 120.0
"""For object stores: each listing costs money, and no disk fills up."""

SOON_S: Final = 3.0
"""If a query has more than its limit: a busy query writes a hundred megabytes in a second."""

_UPPER_HALF: Final = 1 << 19
log = structlog.stdlib.get_logger(__name__)


def collector_lock(root: UUID) -> int:
    """Return the number of the lock of a root, from the upper half of all numbers. Roots with the same number take turns."""
    return _UPPER_HALF | int.from_bytes(root.bytes[-3:]) & (_UPPER_HALF - 1)


class Collecting:
    """Collects segments periodically until its process ends.

    Args:
        every_s: seconds between two checks; None: the default of the store.
    """

    def __init__(self, dsn: str, store: StateStore, root: UUID, retention: Retention, every_s: float | None = None) -> None:
        self._dsn, self._root = dsn, root
        self._every_s = every_s or (EVERY_S_OF_OBJECTS if isinstance(store, Objects) else EVERY_S)
        self._collector = Collector(store, root, retention)
        self._is_over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="collector", daemon=True).start()

    def stop(self) -> None:
        """Start no further check."""
        self._is_over.set()

    def _run(self) -> None:
        pause_s = self._every_s
        while not self._is_over.wait(pause_s):
            look = self.look()
            pause_s = min(SOON_S, self._every_s) if look is not None and look.is_pressing else self._every_s

    def look(self) -> Look | None:
        """Check once; None if another driver does, or if a part is unreachable, for which the next check is soon enough."""
        try:
            with connect(self._dsn, "slackwater-collector") as connection:
                number = collector_lock(self._root)
                row = connection.execute("SELECT pg_try_advisory_lock(%s)", (schemas_of(connection).lock(number),)).fetchone()
                if row is None or not row[0]:
                    return None
                look = self._collector.look(connection)
        except (psycopg.Error, EngineError, OSError) as error:
            log.warning("state_not_looked_at", error=str(error))
            return None
        if look.removed:
            log.info("segments_removed", number=look.removed, size_bytes=look.removed_bytes)
        return look

"""The incarnation of the log: it changes when the database is restored to an earlier time, or may have been.

Everything written after the restored moment is gone, and its numbers are used again. So clients that keep numbers outside of the database
(cursors of followers) keep the incarnation with them, and a number with another incarnation is refused.

There are two signs. A restored dump, another cluster, a copy recovered to a point in time and a promoted replica have another
*fingerprint*. A restored copy of the files has the same one, but its write-ahead log ends before the end that a driver has seen: the
*mark* that drivers keep beside their state. A database and a data directory that were restored together show neither: ``slackwater
restore`` therefore starts a new incarnation itself (``renew``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import structlog

from engine.errors import STATE_CURE, EngineError, SourceUnavailable, StateCorrupt
from engine.postgres.schemas import schemas_of

_FINGERPRINT = """
concat_ws('/', (SELECT system_identifier FROM pg_control_system()), left(pg_walfile_name(pg_current_wal_lsn()), 8),
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'log.batch'::regclass::oid)
"""
"""Cluster, timeline, database and table: a restored dump has a new table."""

_LOOK = f"""
SELECT fingerprint IS NULL, fingerprint IS NOT DISTINCT FROM {_FINGERPRINT}, extract(epoch FROM began_at)::double precision
FROM log.incarnation
"""  # noqa: S608 - made of constants
_FIRST = f"UPDATE log.incarnation SET fingerprint = {_FINGERPRINT} WHERE fingerprint IS NULL"  # noqa: S608 - as above
_RENEW = f"""
UPDATE log.incarnation SET id = gen_random_uuid(), fingerprint = {_FINGERPRINT}, began_at = clock_timestamp()
WHERE extract(epoch FROM began_at)::double precision = %s
"""  # noqa: S608 - as above
_MARK = """
SELECT system_identifier::text, (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint,
    (SELECT extract(epoch FROM began_at)::double precision FROM log.incarnation)
FROM pg_control_system()
"""
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a cluster had come at some time.

    Attributes:
        cluster: its system identifier, and the prefix of the schemas.
        wal_bytes: the end of its write-ahead log on disk.
        began_at: the start of the incarnation at that time, in seconds since 1970 by the database's clock.
    """

    cluster: str
    wal_bytes: int
    began_at: float

    def is_behind(self, seen: Mark) -> bool:
        """Whether the database was restored after another mark was made, and nobody has noticed yet."""
        if self.cluster != seen.cluster or self.began_at > seen.began_at:
            return False
        return self.began_at < seen.began_at or self.wal_bytes < seen.wal_bytes


def current(connection: psycopg.Connection[Any]) -> UUID | None:
    """Return the incarnation; None: the first one, to which numbers without an incarnation belong."""
    row = connection.execute("SELECT id FROM log.incarnation").fetchone()
    return None if row is None else row[0]


def notice(connection: psycopg.Connection[Any], seen: Mark | None = None) -> bool:
    """Check whether the database was restored, and begin a new incarnation if so. Cheap; any process may call it at any time.

    Args:
        connection: in autocommit mode.
        seen: the newest mark that the caller knows.

    Returns:
        Whether a new incarnation has begun with this call.
    """
    row = connection.execute(_LOOK).fetchone()
    if row is None:
        return False
    is_first, is_same, began_at = row
    is_put_back = not is_first and not is_same
    if is_first:
        connection.execute(_FIRST)
    if seen is not None and not is_put_back:
        now = mark(connection)
        # A dump from before the first check has no fingerprint to compare: then the driver's mark shows another cluster.
        is_put_back = now.is_behind(seen) or (is_first and now.cluster != seen.cluster)
    # If several processes notice it together, one begins the incarnation.
    if not is_put_back or connection.execute(_RENEW, (began_at,)).rowcount == 0:
        return False
    log.warning("database_put_back", incarnation=str(current(connection)))
    return True


def renew(connection: psycopg.Connection[Any]) -> None:
    """Begin a new incarnation: cursors of followers are no longer valid."""
    row = connection.execute(_LOOK).fetchone()
    if row is not None:
        connection.execute(_RENEW, (row[2],))


def mark(connection: psycopg.Connection[Any]) -> Mark:
    """Return how far the cluster has come."""
    row = connection.execute(_MARK).fetchone()
    if row is None:
        raise psycopg.OperationalError("Postgres does not say how far its write-ahead log goes")
    return Mark(row[0] + schemas_of(connection).prefix, int(row[1]), float(row[2]))


def beyond_the_end(feed: str, partition: str, position: int, end: int) -> str:
    """Return the message about a position that the log has not reached."""
    return (
        f"feed {feed!r}, partition {partition}: reading goes on at {position}, but the feed ends at {end}: the database was put back to an "
        f"earlier time, and records that were acknowledged since are gone. {STATE_CURE}"
    )


def cut_off(feed: str, partition: str, position: int, end: int) -> str:
    """Return the message about a running query's position that the log has no longer reached."""
    return (
        f"feed {feed!r}, partition {partition} was read up to {position}, and now ends at {end}: the database was put back to an earlier "
        "time. The next attempt goes on from what it holds"
    )


def receded(feed: str, partition: str, position: int, end: int, *, is_committed: bool) -> EngineError:
    """Return the error about a feed that ends before a position that was read: see ``FeedReader.receded``."""
    if is_committed:
        return StateCorrupt(beyond_the_end(feed, partition, position, end))
    return SourceUnavailable(cut_off(feed, partition, position, end))

"""Periodic deletion: log data past its retention, expired idempotency keys, rejects and history over their limits, old versions.

A commit removes the old versions of the keys that it touches (``engine.commit.views``). Other keys would have theirs for ever, and
a deleted key its tombstone: with keys that come and go, the history would grow without limit.

Data that a query's own commits limit (late records, windows, versions of keys that change) is not handled here.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import psycopg
import structlog
from psycopg import sql

from app.access.audit.sql import TRIM_SQL
from app.access.idempotency import FORGET_EXPIRED_SQL
from app.access.scopes import PREFIX
from app.appends.change_positions import forget_positions
from app.catalog.relations.change_retention import trim_changes, trim_replays, trim_streams
from app.catalog.relations.materialisations import output_of_source
from app.catalog.stored.catalog import output_of
from app.catalog.stored.queries import sweep_late_records
from app.telemetry.setup import Metrics
from engine.commit.late_log import REJECTS_KEPT, trim_rejects
from engine.commit.views import IS_DELETED, RESULT_TIME, history_identifier
from engine.log.dropped_feeds import sweep_dropped_feeds
from engine.log.storage import trim
from engine.plan.model import Output
from engine.postgres.column_names import bound_column
from engine.postgres.incarnation import notice
from engine.postgres.postgres import IDLE_SECONDS, connect
from engine.postgres.schemas import schemas_of

# Any number, the same in every process: one process trims, the others need not.
TRIM_LOCK = 0x51AD
_OWNERS_OVER = "SELECT owner FROM log.reject GROUP BY owner HAVING count(*) > %(cap)s"
# A killed driver without a supervisor leaves its row. A driver that is only frozen creates it again when it wakes up.
_FORGET_DRIVERS = "DELETE FROM slackwater.driver WHERE heartbeat_at < now() - interval '1 day'"
# A launch that has not ended is the newest of its query.
_TRIM_HISTORY = (
    """
    DELETE FROM slackwater.query_event e USING (
        SELECT q.id AS query_id, (
            SELECT id FROM slackwater.query_event WHERE query_id = q.id ORDER BY id DESC OFFSET %(kept)s LIMIT 1
        ) AS last FROM slackwater.query q
    ) old WHERE e.query_id = old.query_id AND e.id <= old.last
    """,
    """
    DELETE FROM slackwater.query_run r USING (
        SELECT q.id AS query_id, (
            SELECT epoch FROM slackwater.query_run WHERE query_id = q.id ORDER BY epoch DESC OFFSET %(kept)s LIMIT 1
        ) AS last FROM slackwater.query q
    ) old WHERE r.query_id = old.query_id AND r.epoch <= old.last
    """,
)
THOROUGH_S = 3_600.0
"""Seconds between two scans of whole histories of versions: what they remove is unreadable and only takes space."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much is stored, and how long.

    Attributes:
        changes_ms: changes of derived tables, replays after their use, and positions of change events; feeds of sources and
            derived streams have their own retention.
        undelivered_ms: minimum for results that are not delivered yet.
        history_rows: events, and runs, of each query: the newest.
        audit_ms: entries of the audit log.
        audit_rows: its entries of changes: the newest.
    """

    changes_ms: int
    undelivered_ms: int = 0
    history_rows: int = 10_000
    audit_ms: int = 366 * 86_400_000
    audit_rows: int = 100_000


async def trim_periodically(dsn: str, metrics: Metrics, interval_s: float, kept: RetentionLimits) -> None:
    """Trim every ``interval_s`` seconds until cancelled; if the database is not available, try again the next time."""
    looked_at = time.monotonic()
    while True:
        await asyncio.sleep(interval_s)
        try:
            # A stop does not wait for a long sweep: it consists of small transactions, and the next service continues it.
            removed = await anyio.to_thread.run_sync(trim_once, dsn, kept, abandon_on_cancel=True)
            if time.monotonic() - looked_at >= THOROUGH_S:
                await anyio.to_thread.run_sync(forget_versions, dsn, abandon_on_cancel=True)
                looked_at = time.monotonic()
        except psycopg.Error as error:
            log.warning("log_trim_failed", error=str(error))
            continue
        if removed:
            metrics.trimmed.inc(removed)
            log.info("log_trimmed", batches=removed)


def trim_once(dsn: str, kept: RetentionLimits) -> int:
    """Trim once, unless another process is trimming. Return the number of removed record batches."""
    with connect(dsn, "slackwater-trim", IDLE_SECONDS) as connection:
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (schemas_of(connection).lock(TRIM_LOCK),)).fetchone()
        if row is None or not row[0]:
            return 0
        notice(connection)
        removed = sweep_dropped_feeds(connection)
        sweep_late_records(connection)
        forget_positions(connection, kept.changes_ms)
        removed += trim(connection) + trim_streams(connection, kept.undelivered_ms)
        removed += trim_changes(connection, kept.changes_ms, kept.undelivered_ms)
        removed += trim_replays(connection, kept.changes_ms)
        connection.execute(_FORGET_DRIVERS)
        for statement in _TRIM_HISTORY:
            connection.execute(statement, {"kept": kept.history_rows})
        for statement in TRIM_SQL:
            connection.execute(statement, {"audit_ms": kept.audit_ms, "audit_rows": kept.audit_rows})
        connection.execute(FORGET_EXPIRED_SQL)
        for (owner,) in connection.execute(_OWNERS_OVER, {"cap": REJECTS_KEPT}).fetchall():
            trim_rejects(connection, owner)
        return removed


STEP_ROWS = 20_000
"""Rows removed at once: the query's next commit waits for them."""

SCAN_ROWS = 500_000
"""Limit of rows that one scan of a history returns: 50 MB of row ids."""

_TABLES = """
    SELECT r.name, r.origin, r.definition, q.id FROM slackwater.relation r
    JOIN slackwater.query q ON q.id = r.produced_by OR (r.origin = 'source' AND q.name = %(prefix)s || r.name AND q.deleted_at IS NULL)
    WHERE r.kind = 'table' AND (r.definition ->> 'history_retention_ms' IS NOT NULL OR r.definition ->> 'versioned' IS NOT NULL)
    ORDER BY r.name
"""
"""Versioned results, and versioned sources with stored rows."""
_STREAM_TIME = "SELECT stream_time_ms FROM log.commit WHERE query_id = %s"
# Every commit locks this row first: a version that arrives meanwhile waits.
_LOCKED = " FOR UPDATE"


def forget_versions(dsn: str) -> int:
    """Remove versions that as-of reads cannot reach: replaced before the horizon (V4), or a key's only tombstone from before it.

    Returns:
        Number of removed versions.
    """
    removed = 0
    with connect(dsn, "slackwater-versions", IDLE_SECONDS) as connection:
        for name, origin, definition, query_id in connection.execute(_TABLES, {"prefix": PREFIX}).fetchall():
            output = output_of(definition) if origin == "derived" else output_of_source(name, definition)
            while (round_removed := _forget_some(connection, output, query_id)) > 0:
                removed += round_removed
    if removed:
        log.info("old_versions_removed", versions=removed)
    return removed


def _forget_some(connection: psycopg.Connection[Any], output: Output, query_id: object) -> int:
    """Scan the history without locks, then remove the rows found that are still old."""
    names = {"table": history_identifier(output.name), "old": _is_old(output)}
    scan = sql.SQL("SELECT v.ctid::text FROM {table} v WHERE {old} LIMIT %(most)s").format(**names)
    remove = sql.SQL("DELETE FROM {table} v WHERE v.ctid = ANY(%(places)s::tid[]) AND {old}").format(**names)
    horizon_ms = _horizon_ms(connection, _STREAM_TIME, output, query_id)
    if horizon_ms is None:
        return 0
    places = [place for (place,) in connection.execute(scan, {"horizon": horizon_ms, "most": SCAN_ROWS})]
    removed = 0
    for first in range(0, len(places), STEP_ROWS):
        with connection.transaction():
            # The query may have been rebuilt from scratch meanwhile.
            horizon_ms = _horizon_ms(connection, _STREAM_TIME + _LOCKED, output, query_id)
            if horizon_ms is not None:
                step = {"horizon": horizon_ms, "places": places[first : first + STEP_ROWS]}
                removed += connection.execute(remove, step).rowcount
    return removed


def _horizon_ms(connection: psycopg.Connection[Any], stream_time: str, output: Output, query_id: object) -> int | None:
    row = connection.execute(stream_time, (query_id,)).fetchone()
    return None if row is None or row[0] is None or output.history_retention_ms is None else row[0] - output.history_retention_ms


def _is_old(output: Output) -> sql.Composed:
    """Return the condition that no read before ``horizon`` reaches a version ``v``."""
    same = sql.SQL(" AND ").join(sql.SQL("o.{0} = v.{0}").format(bound_column(name)) for name in output.key) or sql.SQL("true")
    return sql.SQL(
        "v.{time} < %(horizon)s AND ("
        "EXISTS (SELECT FROM {table} o WHERE {same} AND o.{time} > v.{time} AND o.{time} <= %(horizon)s)"
        " OR v.{deleted} AND NOT EXISTS (SELECT FROM {table} o WHERE {same} AND o.{time} <> v.{time}))"
    ).format(
        table=history_identifier(output.name), time=sql.Identifier(RESULT_TIME), deleted=sql.Identifier(IS_DELETED), same=same
    )

"""Periodic tidying: what the log's retention no longer keeps, expired idempotency keys, rejects beyond their bound."""

from __future__ import annotations

import asyncio

import anyio.to_thread
import psycopg
import structlog

from app.store.change_retention import trim_changes, trim_replays
from app.store.idempotency import FORGET_EXPIRED_SQL
from app.telemetry import Metrics
from engine.connectors.log import trim
from engine.connectors.postgres import connect
from engine.connectors.sink import REJECTS_KEPT

# Any number, the same in every process: one trims, the others need not.
TRIM_LOCK = 0x51AD
# Materialised: the bound is looked up once per relation, not once per row.
_OWNERS_OVER = "SELECT owner FROM log.reject GROUP BY owner HAVING count(*) > %(cap)s"
_TRIM_OWNER = """
    DELETE FROM log.reject WHERE owner = %(owner)s
    AND id <= (SELECT id FROM log.reject WHERE owner = %(owner)s ORDER BY id DESC OFFSET %(cap)s LIMIT 1)
"""
log = structlog.stdlib.get_logger(__name__)


async def trim_periodically(dsn: str, metrics: Metrics, interval_s: float, changes_retention_ms: int) -> None:
    """Trim every ``interval_s`` seconds until cancelled; a database that is away is tried again the next time."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            removed = await anyio.to_thread.run_sync(trim_once, dsn, changes_retention_ms)
        except psycopg.Error as error:
            log.warning("log_trim_failed", error=str(error))
            continue
        if removed:
            metrics.trimmed.inc(removed)
            log.info("log_trimmed", batches=removed)


def trim_once(dsn: str, changes_retention_ms: int) -> int:
    """Trim once, unless another process is at it. Returns the number of record batches removed.

    Args:
        dsn: the database.
        changes_retention_ms: how long changes of derived tables, and replays that were taken in, are kept; feeds of sources say so themselves.
    """
    with connect(dsn, "slackwater-trim") as connection:
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", (TRIM_LOCK,)).fetchone()
        if row is None or not row[0]:
            return 0
        removed = trim(connection) + trim_changes(connection, changes_retention_ms)
        removed += trim_replays(connection, changes_retention_ms)
        connection.execute(FORGET_EXPIRED_SQL)
        for (owner,) in connection.execute(_OWNERS_OVER, {"cap": REJECTS_KEPT}).fetchall():
            connection.execute(_TRIM_OWNER, {"owner": owner, "cap": REJECTS_KEPT})
        return removed

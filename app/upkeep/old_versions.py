"""Remove versions in the history of results that no read can reach and that no commit touches.

A commit removes the old versions of the keys that it touches (``engine.commit.views``). Other keys would have theirs for ever, and
a deleted key its tombstone: with keys that come and go, the history would grow without limit.
"""

from __future__ import annotations

from typing import Any

import psycopg
import structlog
from psycopg import sql

from app.access.scopes import PREFIX
from app.catalog.relations.materialisations import output_of_source
from app.catalog.stored.catalog import output_of
from engine.commit.views import IS_DELETED, RESULT_TIME, history_identifier
from engine.plan.model import Output
from engine.postgres.column_names import bound_column
from engine.postgres.postgres import IDLE_SECONDS, connect

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
log = structlog.stdlib.get_logger(__name__)


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

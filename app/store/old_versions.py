"""Versions in the history of results that no read can ask for any more, and that no commit comes across.

A commit forgets the old versions of the keys that it touches (``engine.connectors.views``). Keys that nothing touches keep theirs, and a
deleted key its tombstone, for ever: with keys that come and go that grows without bound.
"""

from __future__ import annotations

from typing import Any

import psycopg
import structlog
from psycopg import sql

from app.store.catalog import output_of
from engine.connectors.postgres import connect
from engine.connectors.views import IS_DELETED, RESULT_TIME, history_identifier
from engine.plan.model import Output

STEP_ROWS = 20_000
"""Rows removed at once: the query's next commit waits for them."""

_TABLES = """
    SELECT r.definition, q.id FROM slackwater.relation r JOIN slackwater.query q ON q.id = r.produced_by
    WHERE r.kind = 'table' AND r.definition ->> 'history_retention_ms' IS NOT NULL ORDER BY r.name
"""
# The row that every commit locks first: a version that comes meanwhile waits.
_LOCK = "SELECT stream_time_ms FROM log.commit WHERE query_id = %s FOR UPDATE"
log = structlog.stdlib.get_logger(__name__)


def forget_versions(dsn: str) -> int:
    """Remove what as-of reads no longer reach: replaced before the horizon (V4), or a key's only tombstone from before it.

    Returns:
        How many versions were removed.
    """
    removed = 0
    with connect(dsn, "slackwater-versions") as connection:
        for definition, query_id in connection.execute(_TABLES).fetchall():
            output = output_of(definition)
            while (step := _forget_some(connection, output, query_id)) > 0:
                removed += step
    if removed:
        log.info("old_versions_removed", versions=removed)
    return removed


def _forget_some(connection: psycopg.Connection[Any], output: Output, query_id: object) -> int:
    with connection.transaction():
        row = connection.execute(_LOCK, (query_id,)).fetchone()
        if row is None or row[0] is None or output.history_retention_ms is None:
            return 0
        time, deleted = sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)
        same = sql.SQL(" AND ").join(sql.SQL("o.{0} = v.{0}").format(sql.Identifier(name)) for name in output.key) or sql.SQL(
            "true"
        )
        statement = sql.SQL(
            "DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT v.ctid FROM {table} v WHERE v.{time} < %(horizon)s AND ("
            "EXISTS (SELECT FROM {table} o WHERE {same} AND o.{time} > v.{time} AND o.{time} <= %(horizon)s)"
            " OR v.{deleted} AND NOT EXISTS (SELECT FROM {table} o WHERE {same} AND o.{time} <> v.{time})) LIMIT %(step)s))"
        ).format(table=history_identifier(output.name), time=time, deleted=deleted, same=same)
        parameters = {"horizon": row[0] - output.history_retention_ms, "step": STEP_ROWS}
        return connection.execute(statement, parameters).rowcount

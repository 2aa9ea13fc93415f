"""Retention of the logs beside queries' results, and its effect on queries that read a derived table.

A query that reads a derived table builds its copy from the beginning of the table's change log. So changes that a reader has not read yet are
kept however old they are. A new query is refused if the beginning of the log was removed, because it would have only a part of the table.

Rows that are not delivered yet (``into.connector``) are kept too, but not for ever: the delivery stops if its target is unreachable for longer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg
import sqlalchemy as sa

from app.db.database import EDIT_LOCK
from app.db.tables import RESULT_FEED, feed, relation
from app.errors.app_errors import Conflict, Fault
from engine.log.sequences import trim_sequence
from engine.log.storage import trim_in_steps, trim_partition
from engine.plan.catalog import CHANGES, change_feed
from engine.plan.model import Plan
from engine.postgres.schemas import schemas_of

_LOGS = """
    SELECT f.id, f.name FROM slackwater.relation r JOIN log.feed f ON f.name = 'changes:' || r.name
    WHERE r.kind = 'table' AND (r.origin = 'derived' OR r.definition ->> 'materialize' = 'true') ORDER BY f.id
"""
_STREAMS = "SELECT id, name, retention_ms FROM log.feed WHERE retention_ms IS NOT NULL AND next_sequence IS NOT NULL ORDER BY id"
_DELIVERED = f"""
    SELECT min(d.position) FROM slackwater.delivery d JOIN slackwater.relation r ON r.produced_by = d.query_id
    WHERE %(feed)s = {RESULT_FEED}
"""  # noqa: S608 - made of constants
_REPLAYS = """
    SELECT f.id, h.partition, coalesce((c.position -> f.name ->> h.partition::text)::bigint, 0)
    FROM slackwater.query q JOIN log.feed f ON f.name = 'replay:' || q.id JOIN log.head h ON h.feed_id = f.id
    LEFT JOIN log.commit c ON c.query_id = q.id AND c.checkpoint_id = q.checkpoint_id
"""
_KEEP_FROM = """
    SELECT min(coalesce((c.position -> ('log:' || %(feed)s::text) ->> '0')::bigint, 0))
    FROM slackwater.relation r JOIN slackwater.query_read qr ON qr.relation_id = r.id
    JOIN slackwater.query q ON q.id = qr.query_id
    LEFT JOIN log.commit c ON c.query_id = q.id AND c.checkpoint_id = q.checkpoint_id
    WHERE 'changes:' || r.name = %(feed)s AND r.origin = 'derived'
"""


def trim_changes(connection: psycopg.Connection[Any], retention_ms: int, undelivered_ms: int = 0) -> int:
    """Remove changes older than the retention that every query has read; return the number of removed batches.

    Args:
        connection: in autocommit mode.
        retention_ms: of all changes.
        undelivered_ms: undelivered rows are kept at least this long.
    """
    logs = connection.execute(_LOGS).fetchall()
    return sum(_trim(connection, feed_id, name, retention_ms, undelivered_ms) for feed_id, name in logs)


def trim_streams(connection: psycopg.Connection[Any], undelivered_ms: int = 0) -> int:
    """Remove records of derived streams older than their retention; return the number of removed batches. See ``trim_changes``."""
    logs = connection.execute(_STREAMS).fetchall()
    return sum(_trim(connection, feed_id, name, retention_ms, undelivered_ms) for feed_id, name, retention_ms in logs)


def _trim(connection: psycopg.Connection[Any], feed_id: int, name: str, retention_ms: int, undelivered_ms: int) -> int:
    # Delivered rows go by the retention, undelivered ones by the longer of the two limits.
    ages = [retention_ms] if undelivered_ms <= retention_ms else [retention_ms, undelivered_ms]
    steps = [partial(_trim_step, connection, feed_id, name, age_ms, keeps_undelivered=age_ms < undelivered_ms) for age_ms in ages]
    return sum(trim_in_steps(connection, step) for step in steps)


def _trim_step(
    connection: psycopg.Connection[Any], feed_id: int, name: str, retention_ms: int, *, keeps_undelivered: bool
) -> int:
    # No query may start to read the table between the check of the readers and the removal. A delivery starts in an edit, too, which may begin
    # at the first row of the log.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (schemas_of(connection).lock(EDIT_LOCK),))
    rows = [connection.execute(_KEEP_FROM, {"feed": name}).fetchone()]
    if keeps_undelivered:
        rows.append(connection.execute(_DELIVERED, {"feed": name}).fetchone())
    limits = [row[0] for row in rows if row is not None and row[0] is not None]
    return trim_sequence(connection, feed_id, retention_ms, min(limits, default=None))


def trim_replays(connection: psycopg.Connection[Any], retention_ms: int) -> int:
    """Remove replayed late records that their query read longer ago than the retention; return the number of removed batches."""
    removed = 0
    for feed_id, partition, read_to in connection.execute(_REPLAYS).fetchall():
        removed += trim_in_steps(connection, partial(trim_partition, connection, feed_id, partition, retention_ms, read_to))
    return removed


def refuse_forgotten_changes(connection: sa.Connection, plan: Plan) -> None:
    """Refuse a query that would read a derived table from the beginning if retention has removed the first changes.

    Raises:
        Conflict: ``changes_expired``.
    """
    logs = [change_feed(source.relation.name) for source in plan.inputs if source.relation.kind == "table"]
    rows = connection.execute(
        sa.select(relation.c.name)
        .distinct()
        .join_from(feed, relation, feed.c.name == sa.literal(CHANGES) + relation.c.name)
        .where(feed.c.name.in_(logs), feed.c.start_sequence > 0, relation.c.kind == "table", relation.c.origin == "derived")
        .order_by(relation.c.name)
    )
    names = [f"'{name}'" for name in rows.scalars()]
    if names:
        faults = [Fault("", "changes_expired", f"the first changes of {name} were removed by retention") for name in names]
        raise Conflict(
            "changes_expired",
            f"the change log of {', '.join(names)} begins too late to build the table from it. Restart the query that writes it from scratch "
            "(PUT /v1/queries/… with ?state=discard&from=earliest); SLACKWATER_CHANGES_RETENTION_MS keeps more",
            faults,
        )

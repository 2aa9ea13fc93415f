"""A batch's refused records, kept with their relation, up to a bound."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import psycopg

from engine.commit.sink_batch import GroupedPackets
from engine.plan.model import Plan

REJECTS_KEPT = 100_000
"""Rejects kept per relation; the counter has no bound."""

# The bound is read once per relation, not once per row.
_TRIM_OWNER = """
    DELETE FROM log.reject WHERE owner = %(owner)s
    AND id <= (SELECT id FROM log.reject WHERE owner = %(owner)s ORDER BY id DESC OFFSET %(cap)s LIMIT 1)
"""


def keep_rejects(cursor: psycopg.Cursor[Any], plan: Plan, batch: GroupedPackets) -> None:
    """Keep the refused records of a batch; two queries that read one feed keep them once.

    In a fixed order, whatever the order of a query's inputs, because two queries that keep the same record wait for each other.
    """
    rows = []
    for packet, rejects in batch.rejects:
        read = plan.inputs[packet.input]
        place = (read.relation.name, read.feed.name, packet.partition)
        rows += [(*place, *row, batch.now_ms) for row in rejects.select("offset", "reason", "detail", "excerpt").iter_rows()]
    if not rows:
        return
    rows.sort(key=itemgetter(slice(4)))
    cursor.executemany(
        """
        INSERT INTO log.reject (owner, feed, partition, "offset", reason, detail, excerpt, at)
        VALUES (%s, %s, %s, %s, %s, %s, %s, to_timestamp(%s / 1000.0)) ON CONFLICT DO NOTHING
        """,
        rows,
    )
    for owner in sorted({row[0] for row in rows}):
        trim_rejects(cursor, owner)


def trim_rejects(connection: psycopg.Connection[Any] | psycopg.Cursor[Any], owner: str) -> None:
    """Remove the oldest refused records of a relation beyond the bound."""
    connection.execute(_TRIM_OWNER, {"owner": owner, "cap": REJECTS_KEPT})

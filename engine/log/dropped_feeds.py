"""Dropped feeds: their names are free at once, their data is removed later, in steps.

A source may hold millions of records. If the transaction that drops it removed them, every other edit would wait for minutes, and
a crash would restart the removal from the beginning. So that transaction only renames the feed and removes its heads, without
which nobody appends to it.
"""

from __future__ import annotations

from typing import Final

from engine.postgres.postgres import Connection

_MARK: Final = "dropped "
"""Names of feeds that users may choose have no blank."""

STEP_ROWS: Final = 500
"""Rows that one transaction removes: usually about 20 MB of record batches, and never more than Postgres removes in seconds."""

_DROP_SQL: Final = """
WITH dropped AS (
    UPDATE log.feed SET name = %(mark)s || id || ' ' || name, retention_ms = NULL, producer = NULL, start_sequence = NULL,
        next_sequence = NULL WHERE name = %(name)s RETURNING id
)
DELETE FROM log.head h USING dropped d WHERE h.feed_id = d.id
"""
_FIND_SQL: Final = "SELECT id FROM log.feed WHERE starts_with(name, %s) ORDER BY id"
_STEP_SQL: Final = "DELETE FROM log.{0} WHERE ctid = ANY(ARRAY(SELECT ctid FROM log.{0} WHERE feed_id = %s LIMIT %s))"
_OTHERS: Final = ("append_key", "file")
_BATCHES_SQL: Final = """
DELETE FROM log.batch WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM log.batch WHERE feed_id = %(feed)s AND (partition, base_offset) > (%(partition)s, %(offset)s)
    ORDER BY partition, base_offset LIMIT %(rows)s
)) RETURNING partition, base_offset
"""
"""In key order, from the end of the last step: while a backup holds removed rows, no scan passes over them twice."""


def drop_feed(connection: Connection, name: str) -> None:
    """Drop a feed in the caller's transaction: its name is free with the commit. Does nothing if there is none.

    Records, files and idempotency keys stay on the disk until ``sweep_dropped_feeds``.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DROP_SQL, {"name": name, "mark": _MARK})


def sweep_dropped_feeds(connection: Connection, step_rows: int = STEP_ROWS) -> int:
    """Remove the data of dropped feeds, and then the feeds; return the number of record batches removed.

    Args:
        connection: in autocommit mode; rows removed by a step stay removed, even if the next step fails.
        step_rows: removed in one transaction.
    """
    batches = 0
    for (feed_id,) in connection.execute(_FIND_SQL, (_MARK,)).fetchall():
        batches += _sweep_batches(connection, feed_id, step_rows)
        for table in _OTHERS:
            while connection.execute(_STEP_SQL.format(table), (feed_id, step_rows)).rowcount:
                pass
        connection.execute("DELETE FROM log.feed WHERE id = %s", (feed_id,))
    return batches


def _sweep_batches(connection: Connection, feed_id: int, step_rows: int) -> int:
    removed, last = 0, (-1, -1)
    while True:
        step = {"feed": feed_id, "partition": last[0], "offset": last[1], "rows": step_rows}
        found = connection.execute(_BATCHES_SQL, step).fetchall()
        if not found:
            return removed
        removed += len(found)
        last = max(found)

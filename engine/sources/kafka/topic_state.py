"""The database's data of a topic: its id, its partitions, their last known ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.log.storage import find_feed, name_feed
from engine.postgres.postgres import Connection

_KNOWN_SQL: Final = "SELECT outside_id FROM log.feed WHERE name = %s"
_KNOW_SQL: Final = "UPDATE log.feed SET outside_id = %(id)s WHERE name = %(name)s AND outside_id IS NULL"
_PARTITIONS_SQL: Final = "UPDATE log.feed SET partitions = %(partitions)s WHERE id = %(feed)s AND partitions < %(partitions)s"
# An open transaction delays readers only if the end does not move while records are behind it: else each look finds another one.
_HEADS_SQL: Final = """
INSERT INTO log.head AS h (feed_id, partition, start_offset, next_offset, open_records, open_since)
SELECT %(feed)s, n.partition, n.start_offset, n.next_offset, n.open_records, CASE WHEN n.open_records > 0 THEN clock_timestamp() END
FROM unnest(%(partitions)s::int[], %(starts)s::bigint[], %(ends)s::bigint[], %(behind)s::bigint[])
    AS n (partition, start_offset, next_offset, open_records)
ON CONFLICT (feed_id, partition) DO UPDATE SET start_offset = excluded.start_offset, next_offset = excluded.next_offset,
    open_records = excluded.open_records,
    open_since = CASE WHEN h.next_offset = excluded.next_offset AND excluded.open_records > 0
        THEN coalesce(h.open_since, excluded.open_since) ELSE excluded.open_since END
WHERE (h.start_offset, h.next_offset, h.open_records) IS DISTINCT FROM (excluded.start_offset, excluded.next_offset, excluded.open_records)
"""


def known_id(connection: Connection, name: str, found: str) -> str:
    """Return the id of a feed's topic: ``found`` if no id was known, which is then stored."""
    connection.execute(_KNOW_SQL, {"id": found, "name": name})
    row = connection.execute(_KNOWN_SQL, (name,)).fetchone()
    return found if row is None or row[0] is None else str(row[0])


def note(connection: Connection, name: str, lows: Mapping[int, int], ends: Mapping[int, int], written: Mapping[int, int]) -> None:
    """Store where partitions begin and end, for status, lineage and metrics. A feed that was dropped meanwhile stays dropped.

    Args:
        connection: to the service's database.
        name: of the feed.
        lows: by partition, its first offset.
        ends: by partition, the last stable offset.
        written: by partition, the offset after all written records, including those of open transactions.
    """
    feed = find_feed(connection, name)
    if feed is None:
        return
    partitions = sorted(ends)
    connection.execute(_PARTITIONS_SQL, {"feed": feed.id, "partitions": len(partitions)})
    given = {
        "feed": feed.id,
        "partitions": partitions,
        "starts": [min(lows.get(each, 0), ends[each]) for each in partitions],
        "ends": [ends[each] for each in partitions],
        "behind": [max(0, written.get(each, 0) - ends[each]) for each in partitions],
    }
    connection.execute(_HEADS_SQL, given)


def register(connection: Connection, name: str) -> None:
    """Make a feed's row. It has no heads until the first look: an end of 0 would mean that nothing is unread."""
    name_feed(connection, name, 1)

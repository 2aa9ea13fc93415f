"""Whether a checkpoint, the results and the log are of one history. A launch asks before Spark believes the checkpoint.

Where a database was put back, or a directory was, one of them is older than the others. Then a batch would be carried out with records
that are not those that were planned, or results would lack batches that the state has. Nothing of that fails by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog
from psycopg.rows import tuple_row

from engine.connectors.incarnation import beyond_the_end, current
from engine.connectors.postgres import Connection
from engine.connectors.sequences import LANE_PARTITION
from engine.errors import STATE_CURE, StateCorrupt
from engine.plan.model import Feed
from engine.spark.checkpoint import Positions
from engine.spark.inspection import numbered, planned_offsets

INCARNATION: Final = "incarnation"
"""Of the log, beside the positions of a batch."""

log = structlog.stdlib.get_logger(__name__)
_ENDS = """
SELECT f.name, h.partition, coalesce(f.next_sequence, h.next_offset) FROM log.feed f JOIN log.head h ON h.feed_id = f.id
WHERE f.name = ANY(%s) AND (f.next_sequence IS NULL OR h.partition = %s)
"""


def require_one_history(
    connection: Connection, directory: Path, batch_id: int | None, feeds: Iterable[Feed], start: Positions
) -> None:
    """Refuse a checkpoint that is not of the results and the log of now; forget a batch that was planned before the database was put back.

    Args:
        connection: to the database of both.
        directory: of the launch.
        batch_id: the newest batch that the results hold, None where they hold none.
        feeds: what the query reads.
        start: where reading begins, for a checkpoint that has planned nothing.

    Raises:
        StateCorrupt: it has more batches than the results, or goes on behind the end of a feed.
    """
    spark, last = directory / "spark", -1 if batch_id is None else batch_id
    planned, done = numbered(spark / "offsets"), numbered(spark / "commits")
    if planned and (planned[-1] > last + 1 or (done and done[-1] > last)):
        held = "no batch" if batch_id is None else f"batch {batch_id}"
        raise StateCorrupt(
            f"the results hold {held}, the checkpoint has planned batch {planned[-1]} and done batch {done[-1] if done else 'none'}: the "
            f"database was put back to an earlier time than the checkpoint directory. {STATE_CURE}"
        )
    offsets = planned_offsets(spark / "offsets" / str(planned[-1])) if planned else {}
    _require_within(connection, offsets.get("feeds", start), feeds)
    incarnation = current(connection)
    is_known = offsets.get(INCARNATION) == (None if incarnation is None else str(incarnation))
    if planned and planned[-1] > last and not is_known:
        # Its records may be others now, but nothing of it is visible: state and results are of the batch before.
        (spark / "offsets" / str(planned[-1])).unlink()
        log.warning("batch_planned_anew", batch_id=planned[-1], incarnation=str(incarnation))


def _require_within(connection: Connection, positions: Positions, feeds: Iterable[Feed]) -> None:
    names = {feed.log_feed: feed.name for feed in feeds if feed.type == "log"}
    with connection.cursor(row_factory=tuple_row) as cursor:
        for log_feed, partition, end in cursor.execute(_ENDS, (list(names), LANE_PARTITION)).fetchall():
            position = positions.get(names[log_feed], {}).get(str(partition), 0)
            if position > end:
                raise StateCorrupt(beyond_the_end(names[log_feed], str(partition), position, end))

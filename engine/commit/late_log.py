"""Keeping late and refused records for reading, within bounds. Inside the sink's transaction; nothing here commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any
from uuid import UUID

import polars as pl
import psycopg
from psycopg import sql

from engine.commit.sink_batch import GroupedPackets
from engine.frames.frames import POS, RANK
from engine.plan.model import LateRecords, Plan
from engine.postgres.array_params import copy_frame

DIVERTED = "diverted"
"""Ending of the reasons of the policy ``divert``. These late records wait for a replay: retention removes them, the cap does not."""

_TABLE = sql.Identifier("log", "late_record")
_IS_DIVERTED = f"%{DIVERTED}"
_BEHIND_ALL = (1 << 63) - 1
Cursor = psycopg.Cursor[Any]


@dataclass(slots=True)
class LateLog:
    """The late records of one query."""

    query_id: UUID
    bounds: LateRecords
    _capped: int | None = field(default=None, init=False)
    """How many records the cap counts; None: not known. Counting them in every batch would cost more than writing the batch's records."""

    def keep(self, cursor: Cursor, late: pl.DataFrame, now_ms: int) -> int:
        """Write a batch's late records and remove records beyond age and cap; return how many did not fit under the cap.

        Old records go in the order of arrival. A record with a future time from a wrong clock keeps those after it until the next launch.

        Args:
            cursor: inside the sink's transaction.
            late: rows of ``LATE_SCHEMA`` in the order of their places.
            now_ms: the batch's wall clock.
        """
        horizon_ms = now_ms - self.bounds.retention_ms
        if self._capped is None:
            self._capped = self._count(cursor, horizon_ms)
        is_capped = ~pl.col("reason").str.ends_with(DIVERTED)
        kept = late.filter(~is_capped | (is_capped.cum_sum(reverse=True) <= self.bounds.max_rows)).drop(POS, RANK)
        at = pl.lit(now_ms).cast(pl.Datetime("ms", "UTC"))
        copy_frame(cursor, _TABLE, kept.with_columns(pl.lit(str(self.query_id)).alias("query_id"), at.alias("at")))
        self._capped += kept.select(is_capped.sum()).item()
        self._capped -= self._expire(cursor, horizon_ms)
        excess = max(0, self._capped - self.bounds.max_rows)
        if excess:
            self._remove_oldest(cursor, excess)
            self._capped -= excess
        return late.height - kept.height + excess

    def forget(self) -> None:
        """Drop values from a transaction that did not commit."""
        self._capped = None

    def _count(self, cursor: Cursor, horizon_ms: int) -> int:
        """Return how many the cap counts, without old ones, at any position: a clock may have been set back."""
        cursor.execute(
            "DELETE FROM log.late_record WHERE query_id = %s AND at < to_timestamp(%s / 1000.0)", (self.query_id, horizon_ms)
        )
        row = cursor.execute(
            "SELECT count(*) FROM log.late_record WHERE query_id = %s AND reason NOT LIKE %s", (self.query_id, _IS_DIVERTED)
        ).fetchone()
        assert row is not None  # noqa: S101 - an aggregate
        return int(row[0])

    def _expire(self, cursor: Cursor, horizon_ms: int) -> int:
        """Remove older records in the order of arrival; return how many of those the cap counts."""
        row = cursor.execute(
            """
            SELECT (SELECT id FROM log.late_record WHERE query_id = %(query)s ORDER BY id LIMIT 1),
                (SELECT id FROM log.late_record WHERE query_id = %(query)s AND at >= to_timestamp(%(horizon)s / 1000.0)
                 ORDER BY id LIMIT 1)
            """,
            {"query": self.query_id, "horizon": horizon_ms},
        ).fetchone()
        oldest, first_kept = row or (None, None)
        if oldest == first_kept:
            return 0
        # The bound is a value: for a bound from a subquery Postgres expects a third of the table, and reads all.
        removed = cursor.execute(
            "DELETE FROM log.late_record WHERE query_id = %s AND id < %s RETURNING reason NOT LIKE %s",
            (self.query_id, _BEHIND_ALL if first_kept is None else first_kept, _IS_DIVERTED),
        )
        return sum(is_counted for (is_counted,) in removed)

    def _remove_oldest(self, cursor: Cursor, rows: int) -> None:
        """Remove this many of the records that the cap counts. Nobody else removes any while a query runs."""
        cursor.execute(
            """
            DELETE FROM log.late_record WHERE query_id = %(query)s AND id = ANY (ARRAY(
                SELECT id FROM log.late_record WHERE query_id = %(query)s AND reason NOT LIKE %(diverted)s ORDER BY id LIMIT %(rows)s))
            """,
            {"query": self.query_id, "diverted": _IS_DIVERTED, "rows": rows},
        )


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

"""The rows that a delivery takes from a result's log, and its position: the rules that deliver each row once. Knows no target.

Before a delivery the database records the end that is *planned*, and after it the new *position*. So if a process ends, the
target's position is between the two. Any other position means that one of them was restored, or emptied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl
from psycopg.rows import tuple_row

from engine.deliveries.deliveries import DeliveryStopped, Result, whole
from engine.frames.frames import HEAD
from engine.log.sequences import BLOCKS_SQL, read_sequence
from engine.postgres.postgres import Connection

MOST_ROWS: Final = 100_000
"""Bound of one delivery: a Kafka transaction has to end within its timeout, even on a slow link."""

MOST_BYTES: Final = 8 << 20
"""Bound in the log's stored size; decoded rows are several times larger. One block of the log is taken at any size."""

MOST_BLOCKS: Final = 1_000

FORGOTTEN_AFTER_S: Final = 86_400.0
"""Brokers drop a group's position after days; for this time a position that was never seen counts as never written."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows to deliver.

    Attributes:
        rows: as ``Deliverer.deliver`` takes them.
        upto: the number after the last one.
        event_time_ms: how far the merge of the producer's inputs had come with them.
    """

    rows: pl.DataFrame
    upto: int
    event_time_ms: int


@dataclass(frozen=True, slots=True)
class RecordedDelivery:
    """The database's record of a delivery.

    Attributes:
        position: number of the next row.
        planned: end of a delivery that may be running.
        planned_age_s: age of the plan; None: there is none.
        is_known: the target had a position at the time of the plan.
    """

    position: int
    planned: int
    planned_age_s: float | None
    is_known: bool


def resumed_at(found: int | None, recorded: RecordedDelivery, *, keeps_position: bool) -> int:
    """Return the number of the row to deliver next.

    Args:
        found: the target's position; None: it has none.
        recorded: the database's record.
        keeps_position: whether the target knows its position.

    Raises:
        DeliveryStopped: ``delivery_ahead``, ``delivery_position_lost``.
    """
    if not keeps_position:
        return recorded.position
    if found is None:
        is_forgotten = recorded.is_known or (recorded.planned_age_s or 0.0) > FORGOTTEN_AFTER_S
        if recorded.planned > recorded.position and is_forgotten:
            detail = f"the target no longer says whether it has the results from {recorded.position} to {recorded.planned}"
            raise DeliveryStopped("delivery_position_lost", detail)
        return recorded.position
    if found > recorded.planned:
        detail = (
            f"the target has the results up to {found}, and no more than {recorded.planned} were delivered as the database knows"
        )
        raise DeliveryStopped("delivery_ahead", detail)
    if found < recorded.position:
        detail = f"the target has the results up to {found}, and {recorded.position} were delivered: some were taken away there"
        raise DeliveryStopped("delivery_position_lost", detail)
    return found


def gather(
    connection: Connection, feed_id: int, start: int, result: Result, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> Gathered | None:
    """Return the next rows of a result's log, as many as one delivery takes; None: there are none.

    Args:
        connection: in a transaction that prevents removals from the log.
        feed_id: of the log.
        start: number of the first row.
        result: the delivered result.
        most_rows: of one delivery.
        most_bytes: of it, in stored size.

    Raises:
        DeliveryStopped: ``delivery_overtaken``: retention has removed rows.
    """
    upto = _end(connection, feed_id, start, most_rows, most_bytes)
    if upto is None:
        return None
    frames = list(read_sequence(connection, feed_id, start, upto))
    heads = [int(frame.get_column(HEAD).to_numpy().max()) for frame in frames]
    rows = pl.concat([whole(frame, result.columns) for frame in frames], how="vertical_relaxed") if frames else pl.DataFrame()
    if rows.height != upto - start:
        detail = f"of the results from {start} to {upto} the log has {rows.height}: retention has removed the others"
        raise DeliveryStopped("delivery_overtaken", detail)
    return Gathered(rows, upto, max(heads))


def _end(connection: Connection, feed_id: int, start: int, most_rows: int, most_bytes: int) -> int | None:
    values = {"feed_id": feed_id, "start": start, "blocks": MOST_BLOCKS}
    rows = size = 0
    end: int | None = None
    with connection.cursor(row_factory=tuple_row) as cursor:
        for sequence, count, payload, _ in cursor.execute(BLOCKS_SQL, values).fetchall():
            if sequence + count <= start:
                continue
            if end is None and sequence > start:
                raise DeliveryStopped("delivery_overtaken", f"the results from {start} to {sequence} were removed by retention")
            rows, size = rows + count, size + payload
            if end is not None and (rows > most_rows or size > most_bytes):
                break
            end = sequence + count
    return None if end is None else min(end, start + most_rows)

"""What a delivery takes from the log of a result, and where it goes on: the rules by which each row is delivered once. Knows no target.

Before a delivery the database notes up to where it is *planned*, and behind it the new *position*. So wherever a process ends, what the
target has lies between the two; anything else means that one of them was put back, or was emptied.
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
"""Of one delivery: a transaction of Kafka has to end within its timeout, also on a slow link."""

MOST_BYTES: Final = 8 << 20
"""As the log stores them; decoded they are some times that. One block of the log is taken whatever it has."""

MOST_BLOCKS: Final = 1_000

FORGOTTEN_AFTER_S: Final = 86_400.0
"""Brokers forget a group's position after days; one that was never known to be there is believed to be none for so long."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows to be delivered.

    Attributes:
        rows: as ``Deliverer.deliver`` takes them.
        upto: the number behind the last one.
        event_time_ms: how far the merge of the producer's inputs had come with them.
    """

    rows: pl.DataFrame
    upto: int
    event_time_ms: int


@dataclass(frozen=True, slots=True)
class RecordedDelivery:
    """What the database says of a delivery.

    Attributes:
        position: number of the row that comes next.
        planned: up to where a delivery may be under way.
        planned_age_s: since that was noted; None: never.
        is_known: the target had a position when that was noted.
    """

    position: int
    planned: int
    planned_age_s: float | None
    is_known: bool


def resumed_at(found: int | None, noted: RecordedDelivery, *, keeps_position: bool) -> int:
    """Return the number of the row that is delivered next.

    Args:
        found: the position that the target has; None: it knows none.
        noted: what the database says.
        keeps_position: whether the target knows what it has.

    Raises:
        DeliveryStopped: ``delivery_ahead``, ``delivery_position_lost``.
    """
    if not keeps_position:
        return noted.position
    if found is None:
        is_forgotten = noted.is_known or (noted.planned_age_s or 0.0) > FORGOTTEN_AFTER_S
        if noted.planned > noted.position and is_forgotten:
            detail = f"the target no longer says whether it has the results from {noted.position} to {noted.planned}"
            raise DeliveryStopped("delivery_position_lost", detail)
        return noted.position
    if found > noted.planned:
        detail = (
            f"the target has the results up to {found}, and no more than {noted.planned} were delivered as the database knows"
        )
        raise DeliveryStopped("delivery_ahead", detail)
    if found < noted.position:
        detail = f"the target has the results up to {found}, and {noted.position} were delivered: some were taken away there"
        raise DeliveryStopped("delivery_position_lost", detail)
    return found


def gather(
    connection: Connection, feed_id: int, start: int, result: Result, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> Gathered | None:
    """Return the next rows of a result's log, as many as one delivery takes; None: there are none.

    Args:
        connection: in a transaction that lets nobody cut the log off.
        feed_id: of the log.
        start: number of the first row.
        result: what is delivered.
        most_rows: of one delivery.
        most_bytes: of it, as the log stores them.

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

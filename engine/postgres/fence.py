"""The fence: the newest launch of a query alone commits, also where sinks of older ones cannot let go of it themselves.

A commit holds the row of the fence (``claim_epoch`` waits for it). A process that is frozen, or a host that is gone, in the middle
of a commit would hold it for ever; so sinks give their connection a name for each transaction, and a newer launch ends those that keep
it waiting.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg

from engine.errors import EpochFenced

SINK: Final = "slackwater-sink"
"""What a sink's connection is called between transactions."""


def sink_name(query_id: UUID, epoch: int) -> str:
    """Return the name a launch's sink gives its connection for a transaction; Postgres keeps 63 bytes."""
    return f"{SINK} {query_id.hex} {epoch}"


def cut_off_older(conn: psycopg.Connection[Any], query_id: UUID, epoch: int) -> int:
    """End the connections of older launches' sinks, with the commits they are in; returns how many.

    Known by their name, or because they hold the row: a transaction that commits for several launches has the name of none.
    """
    return conn.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND split_part(application_name, ' ', 1) = 'slackwater-sink'
          AND (split_part(application_name, ' ', 2) = %(query)s AND split_part(application_name, ' ', 3)::bigint < %(epoch)s
            OR backend_xid = (SELECT xmax FROM log.commit WHERE query_id = %(id)s AND epoch < %(epoch)s))
        """,
        {"query": query_id.hex, "id": query_id, "epoch": epoch},
    ).rowcount


def claim_epoch(
    conn: psycopg.Connection[Any], query_id: UUID, checkpoint_id: UUID, epoch: int, held: psycopg.Cursor[Any] | None = None
) -> None:
    """Take the fence for a launch: from now on only this epoch commits. Waits for a commit of the old launch that is under way.

    Args:
        conn: in a pipeline nothing is waited for but the last answer.
        query_id: of the launch.
        checkpoint_id: which state it goes on from.
        epoch: the launch.
        held: asked before in the same transaction: one row where the query may still be launched; None: it may.

    Raises:
        EpochFenced: a newer launch has taken it, or nothing is held.
    """
    with conn.transaction():
        claiming = conn.execute(
            """
            INSERT INTO log.commit AS c (query_id, checkpoint_id, epoch) VALUES (%(query)s, %(checkpoint)s, %(epoch)s)
            ON CONFLICT (query_id) DO UPDATE SET
                epoch = excluded.epoch,
                batch_id = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.batch_id END,
                position = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.position ELSE '{}' END,
                detail = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.detail ELSE '{}' END,
                stream_time_ms = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.stream_time_ms END,
                cursor = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.cursor END,
                layout = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.layout END,
                checkpoint_id = excluded.checkpoint_id
            WHERE c.epoch < excluded.epoch
            RETURNING 1
            """,
            {"query": query_id, "checkpoint": checkpoint_id, "epoch": epoch},
        )
        # Of a checkpoint that was given up, nothing is left above; and so nothing is to be found here.
        conn.execute(
            """
            DELETE FROM log.task_state s USING log.commit c
            WHERE s.query_id = %s AND c.query_id = s.query_id AND c.epoch = %s AND c.layout IS NULL
            """,
            (query_id, epoch),
        )
        if held is not None and held.fetchone() is None:
            raise EpochFenced(f"query {query_id}: it was deleted, or has begun anew, since its launch {epoch} was ordered")
        if claiming.fetchone() is None:
            raise EpochFenced(f"query {query_id}: epoch {epoch} is not newer than the one that holds the fence")

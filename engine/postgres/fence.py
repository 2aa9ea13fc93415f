"""The fence: only the newest launch of a query commits, even if sinks of older launches cannot release it themselves.

A commit holds the row of the fence (``claim_epoch`` waits for it). A process that is frozen, or a host that is gone, in the middle
of a commit would hold it for ever. So sinks name their connection for each transaction, and a newer launch ends the connections that keep
it waiting.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg

from engine.errors import EpochFenced

SINK: Final = "slackwater-sink"
"""The name of a sink's connection between transactions."""


def sink_name(query_id: UUID, epoch: int) -> str:
    """Return the name of a launch's sink connection during a transaction; Postgres keeps 63 bytes."""
    return f"{SINK} {query_id.hex} {epoch}"


def cut_off_older(conn: psycopg.Connection[Any], query_id: UUID, epoch: int) -> int:
    """End the connections of older launches' sinks, with their running commits; return how many.

    They are found by name, or because they hold the row: a transaction that commits for several launches has no launch's name.
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
    """Claim the fence for a launch: from now on only this epoch commits. Waits for a running commit of the old launch.

    Args:
        conn: in a pipeline the call waits only for the last answer.
        query_id: of the launch.
        checkpoint_id: of the state from which it resumes.
        epoch: the launch.
        held: a statement run before in the same transaction: it returns a row if the query may still be launched; None: it may.

    Raises:
        EpochFenced: a newer launch has claimed it, or ``held`` returned no row.
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
        # The statements above delete all data of an abandoned checkpoint, so this finds nothing of it.
        conn.execute(
            """
            DELETE FROM log.task_state s USING log.commit c
            WHERE s.query_id = %s AND c.query_id = s.query_id AND c.epoch = %s AND c.layout IS NULL
            """,
            (query_id, epoch),
        )
        if held is not None and held.fetchone() is None:
            raise EpochFenced(
                f"query {query_id}: it was deleted, or has started from scratch, since its launch {epoch} was ordered"
            )
        if claiming.fetchone() is None:
            raise EpochFenced(f"query {query_id}: epoch {epoch} is not newer than the one that holds the fence")

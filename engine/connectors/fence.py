"""What a launch does about sinks of older ones that cannot let go of the fence themselves.

A commit holds the row of the fence (``sink.claim_epoch`` waits for it). A process that is frozen, or a host that is gone, in the middle
of a commit would hold it for ever; so sinks give their connection a name for each transaction, and a newer launch ends those that keep
it waiting.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg

SINK: Final = "slackwater-sink"
"""What a sink's connection is called between transactions."""


def sink_name(query_id: UUID, epoch: int) -> str:
    """Return the name a launch's sink gives its connection for a transaction; Postgres keeps 63 bytes."""
    return f"{SINK} {query_id.hex} {epoch}"


def cut_off_older(conn: psycopg.Connection[Any], query_id: UUID, epoch: int) -> int:
    """End the connections of older launches' sinks, with the commits they are in; returns how many."""
    return conn.execute(
        """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND split_part(application_name, ' ', 1) = 'slackwater-sink'
          AND split_part(application_name, ' ', 2) = %s AND split_part(application_name, ' ', 3)::bigint < %s
        """,
        (query_id.hex, epoch),
    ).rowcount

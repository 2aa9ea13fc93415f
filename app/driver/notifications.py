"""The thread that rings for the loop of a driver's process when the database says that there is something to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from app.db.database import CONNECT_TIMEOUT_SECONDS
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import DATABASE_AWAY

DESIRED_STATES: Final = "slackwater_desired_state"
"""Rings when the desired state of a query was written."""


def listen_forever(dsn: str, channels: Sequence[str], ring: Callable[[str | None], None], pause_s: float) -> None:
    """Ring when something comes on a channel. Only shortens the wait: a bell that is away for a while is no fault.

    Args:
        dsn: the database.
        channels: what to listen to.
        ring: called for each notification with what it says, and with None whenever the connection is there: what rang before is lost.
        pause_s: after a lost connection, until the next is tried.
    """
    while True:
        with (
            suppress(*DATABASE_AWAY),
            # Waits by trade: it ends with other connections that are found dead.
            LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection,
        ):
            for channel in channels:
                connection.execute(f"LISTEN {channel}")
            ring(None)
            for heard in connection.notifies():
                ring(heard.payload)
        time.sleep(pause_s)

"""The thread that wakes the loop of a driver's process when the database notifies it of something to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from app.db.database import CONNECT_TIMEOUT_SECONDS
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import DATABASE_AWAY

DESIRED_STATES: Final = "slackwater_desired_state"
"""Channel: the desired state of a query was written."""


def listen_forever(dsn: str, channels: Sequence[str], ring: Callable[[str | None], None], pause_s: float) -> None:
    """Call ``ring`` for each notification on a channel. It only shortens the wait: a lost connection for a while is no fault.

    Args:
        dsn: of the database.
        channels: to listen to.
        ring: called for each notification with its payload, and with None after each connect, because earlier notifications are lost.
        pause_s: between a lost connection and the next attempt.
    """
    while True:
        with (
            suppress(*DATABASE_AWAY),
            # No limit for silence: this connection waits for notifications. It ends when other connections are found dead.
            LinkedConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection,
        ):
            for channel in channels:
                connection.execute(f"LISTEN {channel}")
            ring(None)
            for notification in connection.notifies():
                ring(notification.payload)
        time.sleep(pause_s)

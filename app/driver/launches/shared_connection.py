"""A connection that launches one after another share: opening one costs the driver and the database more than most of what is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from engine.postgres.links import is_usable

KEPT_S: Final = 600.0
"""One that has died meanwhile without a word is shut with the connection of the driver's loop, whose silence is noticed (``links``)."""


class SharedConnection:
    """One connection in autocommit mode for one borrower at a time, who is always of the same thread.

    Args:
        connect: opens one.
        clock: monotonic seconds.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: psycopg.Connection[Any] | None = None
        self._used_at = 0.0

    @contextmanager
    def borrowed(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend it for the length of a block; where that fails it is not used again."""
        kept, self._connection = self._connection, None
        if kept is not None and (self._clock() - self._used_at > KEPT_S or not is_usable(kept)):
            kept.close()
            kept = None
        connection = kept or self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._connection, self._used_at = connection, self._clock()

    def close(self) -> None:
        """Close it. Nobody may borrow it any more."""
        if self._connection is not None:
            self._connection.close()

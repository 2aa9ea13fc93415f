"""Steps of every launch with any engine: take the fence before anything starts, and keep one checkpoint a query on disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg
import structlog

from app.catalog.drivers.transitions import hold_query
from app.catalog.stored.state_files import query_directory
from app.db.database import CONNECT_TIMEOUT_SECONDS
from app.driver.launches.ports import LaunchOrder, Runner
from engine.postgres.fence import claim_epoch, cut_off_older
from engine.postgres.links import LinkedConnection, is_usable
from engine.runtime.checkpoint import discard_scratch
from engine.runtime.executor import QueryHandle

# The fence waits for a running commit of the old launch. A longer commit is cut off: its process may be frozen.
FENCE_PATIENCE_MS = 5_000
FENCE_TIMEOUT_MS = 30_000
# The same limits for this step itself, in case this process is frozen in it.
_FENCE_OPTIONS = (
    f"-c lock_timeout={FENCE_PATIENCE_MS} -c statement_timeout={FENCE_TIMEOUT_MS}"
    f" -c idle_in_transaction_session_timeout={FENCE_PATIENCE_MS}"
)
log = structlog.stdlib.get_logger(__name__)


def discard_query(checkpoints_dir: Path, query_id: UUID) -> None:
    """Remove all of a query's files; log what cannot be removed."""
    _remove(query_directory(checkpoints_dir, query_id))


class FencedLauncher:
    """Launches through a runner, after it has taken the fence.

    Args:
        runner: open before the first launch.
    """

    def __init__(self, dsn: str, checkpoints_dir: Path, runner: Runner) -> None:
        self._dsn = dsn
        self._checkpoints_dir = checkpoints_dir
        self._runner = runner
        self._shared = SharedConnection(self._connect)

    def __call__(self, order: LaunchOrder) -> QueryHandle:
        """Launch a query and return when it runs.

        Raises:
            EpochFenced: a newer launch has the fence; or the query was deleted, or rebuilt from scratch, after the launch was ordered.
            Exception: whatever the runner raises.
        """
        # Listed before the fence is taken, so that it has no checkpoint of a newer launch, even if this process is frozen meanwhile.
        former = self._former_checkpoints(order)
        order.note_phase("fencing")
        with self._shared.borrowed() as connection:
            self._take_fence(connection, order)
        for directory in former:
            log.info("checkpoint_discarded", query=order.name, checkpoint=directory.name)
            try:
                discard_scratch(directory)
            except OSError:
                log.warning("directory_not_removed", path=str(directory), exc_info=True)
        return self._runner.launch(order)

    def close(self) -> None:
        """Close the connection. No launch may follow."""
        self._shared.close()

    def _connect(self) -> psycopg.Connection[Any]:
        return LinkedConnection.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            options=_FENCE_OPTIONS,
            patience_s=FENCE_PATIENCE_MS / 1000,
        )

    def _take_fence(self, connection: psycopg.Connection[Any], order: LaunchOrder) -> None:
        try:
            self._claim(connection, order)
        except psycopg.errors.LockNotAvailable:
            number = cut_off_older(connection, order.query_id, order.epoch)
            log.warning("older_sinks_cut_off", query=order.name, epoch=order.epoch, number=number)
            self._claim(connection, order)

    @staticmethod
    def _claim(connection: psycopg.Connection[Any], order: LaunchOrder) -> None:
        """Take the fence of a query that still exists. Results are found by name, and another query may have this one's name by now.

        An edit that starts from scratch, or a deletion, fences the launch that has the fence. It cannot fence a launch that has not taken it
        yet. Such a launch may wait behind others, or be frozen until nothing of its query is left.
        """
        with connection.pipeline(), connection.transaction():
            is_held = hold_query(connection, order.query_id, order.checkpoint_id)
            claim_epoch(connection, order.query_id, order.checkpoint_id, order.epoch, is_held)

    def _former_checkpoints(self, order: LaunchOrder) -> list[Path]:
        """Return the checkpoints that ``?state=discard`` left behind; once the fence is taken, no launch can commit from them."""
        directory = query_directory(self._checkpoints_dir, order.query_id)
        entries = directory.iterdir() if directory.is_dir() else ()
        return [former for former in entries if former.name != str(order.checkpoint_id)]


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("directory_not_removed", path=str(directory))


KEPT_S: Final = 600.0
"""A connection that died without notice is closed with the connection of the driver's loop, whose silence is noticed (``links``)."""


class SharedConnection:
    """One connection in autocommit mode for one borrower at a time, always of the same thread."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: psycopg.Connection[Any] | None = None
        self._used_at = 0.0

    @contextmanager
    def borrowed(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection; it is not used again if the block raises."""
        idle, self._connection = self._connection, None
        if idle is not None and (self._clock() - self._used_at > KEPT_S or not is_usable(idle)):
            idle.close()
            idle = None
        connection = idle or self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._connection, self._used_at = connection, self._clock()

    def close(self) -> None:
        """Close the connection. No borrower may follow."""
        if self._connection is not None:
            self._connection.close()

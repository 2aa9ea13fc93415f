"""What every launch does whatever the engine: take the fence before anything is started, keep one checkpoint a query on disk."""

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

# The fence waits for a commit of the old launch that is under way. One that takes longer is cut off: its process may be frozen.
FENCE_PATIENCE_MS = 5_000
FENCE_TIMEOUT_MS = 30_000
# The same for this very step, should this process be frozen in it.
_FENCE_OPTIONS = (
    f"-c lock_timeout={FENCE_PATIENCE_MS} -c statement_timeout={FENCE_TIMEOUT_MS}"
    f" -c idle_in_transaction_session_timeout={FENCE_PATIENCE_MS}"
)
log = structlog.stdlib.get_logger(__name__)


def discard_query(checkpoints_dir: Path, query_id: UUID) -> None:
    """Remove everything a query kept on disk; tell of what cannot be removed."""
    _remove(query_directory(checkpoints_dir, query_id))


class FencedLauncher:
    """Launches through a runner, fence first.

    Args:
        dsn: where the fence is.
        checkpoints_dir: see ``checkpoint_directory``.
        runner: opened already when the first launch comes.
    """

    def __init__(self, dsn: str, checkpoints_dir: Path, runner: Runner) -> None:
        self._dsn = dsn
        self._checkpoints_dir = checkpoints_dir
        self._runner = runner
        self._lent = SharedConnection(self._connect)

    def __call__(self, order: LaunchOrder) -> QueryHandle:
        """Launch a query and return when it runs.

        Raises:
            EpochFenced: a newer launch has the fence; or the query was deleted, or has rebuilt from scratch, since the launch was ordered.
            Exception: whatever the runner raises.
        """
        # Looked for before the fence is taken: what a newer launch makes while this process is frozen is not among them.
        former = self._former_checkpoints(order)
        order.note_phase("fencing")
        with self._lent.borrowed() as connection:
            self._take_fence(connection, order)
        for directory in former:
            log.info("checkpoint_discarded", query=order.name, checkpoint=directory.name)
            try:
                discard_scratch(directory)
            except OSError:
                log.warning("directory_not_removed", path=str(directory), exc_info=True)
        return self._runner.launch(order)

    def close(self) -> None:
        """Let go of the database. Nothing may be launched any more."""
        self._lent.close()

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
        """Take the fence of what is still there. Results are found by name, and another query may have this one's by now.

        An edit that starts from scratch or deletes fences who has the fence. Who has not taken it yet, it cannot: the launch may have been
        decided on before, and wait behind others, or be frozen until nothing of its query is left.
        """
        with connection.pipeline(), connection.transaction():
            held = hold_query(connection, order.query_id, order.checkpoint_id)
            claim_epoch(connection, order.query_id, order.checkpoint_id, order.epoch, held)

    def _former_checkpoints(self, order: LaunchOrder) -> list[Path]:
        """Return what ``?state=discard`` has left behind; once the fence is taken nobody can commit from it."""
        directory = query_directory(self._checkpoints_dir, order.query_id)
        found = directory.iterdir() if directory.is_dir() else ()
        return [former for former in found if former.name != str(order.checkpoint_id)]


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("directory_not_removed", path=str(directory))


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

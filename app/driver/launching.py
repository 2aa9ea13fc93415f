"""What every launch does whatever the engine: take the fence before anything is started, keep one checkpoint a query on disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import structlog

from app.driver.ports import LaunchOrder, QueryHandle, Runner
from app.store.database import CONNECT_TIMEOUT_SECONDS
from engine.connectors.sink import claim_epoch

# The fence waits for a commit of the old launch that is under way; one that takes longer is a reason to try again later.
FENCE_TIMEOUT_MS = 30_000
log = structlog.stdlib.get_logger(__name__)


def query_directory(checkpoints_dir: Path, query_id: UUID) -> Path:
    """Return where everything a query keeps on disk is."""
    return checkpoints_dir / str(query_id)


def checkpoint_directory(checkpoints_dir: Path, query_id: UUID, checkpoint_id: UUID) -> Path:
    """Return where one checkpoint of a query is."""
    return query_directory(checkpoints_dir, query_id) / str(checkpoint_id)


def discard_query(checkpoints_dir: Path, query_id: UUID) -> None:
    """Remove everything a query kept on disk."""
    shutil.rmtree(query_directory(checkpoints_dir, query_id), ignore_errors=True)


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

    def __call__(self, order: LaunchOrder) -> QueryHandle:
        """Launch a query and return when it runs.

        Raises:
            EpochFenced: a newer launch has the fence.
            Exception: whatever the runner raises.
        """
        order.note_phase("fencing")
        with self._connect() as connection:
            connection.execute(f"SET statement_timeout = {FENCE_TIMEOUT_MS}")
            claim_epoch(connection, order.query_id, order.checkpoint_id, order.epoch)
        self._discard_former(order)
        return self._runner.launch(order)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS)

    def _discard_former(self, order: LaunchOrder) -> None:
        """Remove checkpoints that ``?state=discard`` has left behind; the fence is ours, so nobody can commit from them."""
        directory = query_directory(self._checkpoints_dir, order.query_id)
        for former in directory.iterdir() if directory.is_dir() else ():
            if former.name != str(order.checkpoint_id):
                log.info("checkpoint_discarded", query=order.name, checkpoint=former.name)
                shutil.rmtree(former, ignore_errors=True)

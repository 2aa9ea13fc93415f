"""The real driver process with an engine that needs no Spark: ``python tests/integration/stub_driver.py``.

A query's definition says how it behaves. A running one commits about fifty times a second through the real fence, in the order in
which the database takes it, so that a test can see who really ran when. What it has planned is noted where the engine notes it.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from app.catalog.stored.state_files import checkpoint_directory
from app.driver.entry import main
from app.driver.launches.ports import LaunchOrder
from app.driver.launches.spark_runner import is_unfinished
from app.settings.settings import Settings
from engine.errors import DataInvalid, DefinitionInvalid, EpochFenced, InternalError, Problem, SinkUnavailable, SourceUnavailable
from engine.postgres.fence import sink_name
from engine.postgres.links import LinkedConnection
from engine.runtime.checkpoint import begin_run, note_planned
from engine.runtime.executor import QueryHandle

COMMIT_EVERY_S = 0.02


class StubQuery:
    """Commits until it is stopped, fenced, or dies as its definition says."""

    def __init__(self, dsn: str, order: LaunchOrder, directory: Path) -> None:
        self._dsn = dsn
        self._order = order
        self._behaviour: dict[str, Any] = dict(order.definition)
        run = begin_run(directory, order.epoch, 0)
        if self._behaviour.get("is_unfinished"):
            note_planned(run, 0)
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        return self._thread.is_alive()

    @property
    def phase(self) -> str | None:
        return self._behaviour.get("phase")

    def error(self) -> Exception | None:
        return self._error

    def stop(self, timeout_s: float, /) -> bool:
        if not self._behaviour.get("ignores_stop"):
            self._stopping.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def await_rest(self) -> bool:
        return True

    def _run(self) -> None:
        try:
            for number in itertools.count():
                if self._stopping.wait(COMMIT_EVERY_S):
                    return
                self._live_or_die(number)
                self._commit(number)
        except (DataInvalid, EpochFenced, SinkUnavailable) as error:
            self._error = error

    def _live_or_die(self, number: int) -> None:
        if self._behaviour.get("dies_after") == number:
            raise DataInvalid("a record that the definition forbids")
        if self._behaviour.get("kills_driver_at") == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def _commit(self, number: int) -> None:
        try:
            name = sink_name(self._order.query_id, self._order.epoch)
            with LinkedConnection.connect(self._dsn, application_name=name) as connection:
                self._fence(connection)
                connection.execute(
                    "INSERT INTO stub_commit (query_id, epoch, generation, number) VALUES (%s, %s, %s, %s)",
                    (self._order.query_id, self._order.epoch, self._order.generation, number),
                )
        except psycopg.OperationalError as error:
            raise SinkUnavailable(str(error)) from error

    def _fence(self, connection: psycopg.Connection[Any]) -> None:
        fence = "SELECT 1 FROM log.commit WHERE query_id = %s AND epoch = %s FOR UPDATE"
        if connection.execute(fence, (self._order.query_id, self._order.epoch)).fetchone() is None:
            raise EpochFenced("a newer launch has the fence")


class StubRunner:
    def __init__(self, settings: Settings) -> None:
        assert settings.database_url is not None
        self._dsn = settings.database_url.get_secret_value()
        self._checkpoints_dir = settings.checkpoints_dir

    def open(self) -> None:
        return

    @property
    def is_alive(self) -> bool:
        return True

    def launch(self, order: LaunchOrder) -> QueryHandle:
        order.note_phase("restoring")
        if order.definition.get("refused"):
            raise DefinitionInvalid([Problem("/joins/0/on", "unknown_column", "there is no column 'orign'")])
        if order.epoch <= order.definition.get("unavailable_before_epoch", 0):
            raise SourceUnavailable("the feed is away")
        if order.epoch <= order.definition.get("broken_before_epoch", 0):
            raise InternalError("a race was lost")
        if order.definition.get("kills_driver"):
            os.kill(os.getpid(), signal.SIGKILL)
        if order.definition.get("hangs_on_launch"):
            threading.Event().wait()
        return StubQuery(self._dsn, order, checkpoint_directory(self._checkpoints_dir, order.query_id, order.checkpoint_id))

    def is_unfinished(self, query_id: UUID, checkpoint_id: UUID, epoch: int) -> bool:
        with LinkedConnection.connect(self._dsn) as connection:
            return is_unfinished(connection, self._checkpoints_dir, query_id, checkpoint_id, epoch)

    def close(self) -> None:
        return


if __name__ == "__main__":
    main(StubRunner)

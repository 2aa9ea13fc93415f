"""What tests of the driver share: fast settings, a database to write desired states into, processes that are ended for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from app.driver.supervisor.process_group import end_session
from app.driver.supervisor.supervisor import environment_of
from app.settings.settings import DriverSettings, Settings

STUB = (sys.executable, str(Path(__file__).with_name("stub_driver.py")))
DEADLINE_S = 90.0
T = TypeVar("T")


def until(what: str, condition: Callable[[], T], seconds: float = DEADLINE_S) -> T:
    """Return the first truthy answer of a condition."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)
    return answer


def stays(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition holds all the time for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.01)
    return True


def fast_settings(data_dir: Path, **driver: int) -> Settings:
    """Return settings with short times and no spare; ``spare`` and the other settings of a driver may be given."""
    timings = {
        "poll_ms": 50,
        "lease_ttl_ms": 3_000,
        "heartbeat_ms": 200,
        "stop_timeout_ms": 1_500,
        "start_timeout_ms": 4_000,
        "spare": False,
    }
    return Settings(data_dir=data_dir, driver=DriverSettings(**{**timings, "backoff_base_ms": 40, "max_attempts": 4, **driver}))


class Control:
    """The user's side: writes desired states as the API does, and reads what drivers wrote."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.execute(
            "CREATE TABLE IF NOT EXISTS stub_commit (id bigint GENERATED ALWAYS AS IDENTITY, query_id uuid, epoch bigint,"
            " generation int, number int, at timestamptz DEFAULT clock_timestamp())"
        )

    def close(self) -> None:
        """Leave nothing that the next test's driver would take."""
        self._connection.close()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("DELETE FROM slackwater.query")
            connection.execute("DELETE FROM slackwater.driver")

    def execute(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        return self._connection.execute(statement, values).fetchall()

    def add(self, *, wants: str = "running", **behaviour: object) -> UUID:
        query_id = uuid.uuid4()
        with self._connection.transaction():
            self.execute(
                "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, %s, %s, %s, %s)",
                query_id, f"q-{query_id.hex[:8]}", Jsonb(behaviour), wants, uuid.uuid4(),
            )  # fmt: skip
            self.execute("INSERT INTO slackwater.query_status (query_id, state) VALUES (%s, 'stopped')", query_id)
        return query_id

    def want(self, query_id: UUID, desired: str) -> None:
        self.execute("UPDATE slackwater.query SET desired_state = %s WHERE id = %s", desired, query_id)

    def restart(self, query_id: UUID) -> None:
        self.execute("UPDATE slackwater.query SET restart_nonce = restart_nonce + 1 WHERE id = %s", query_id)

    def edit(self, query_id: UUID, **behaviour: object) -> None:
        self.execute(
            "UPDATE slackwater.query SET definition = %s, generation = generation + 1 WHERE id = %s", Jsonb(behaviour), query_id
        )

    def delete(self, query_id: UUID) -> None:
        self.execute("UPDATE slackwater.query SET deleted_at = now() WHERE id = %s", query_id)

    def status(self, query_id: UUID) -> dict[str, Any]:
        return self.rows("SELECT * FROM slackwater.query_status WHERE query_id = %s", query_id)[0]

    def state(self, query_id: UUID) -> str:
        return str(self.status(query_id)["state"])

    def reaches(self, query_id: UUID, state: str, *, epoch: int = 0) -> dict[str, Any]:
        """Wait for a state, of at least this launch."""

        def reached() -> dict[str, Any] | None:
            status = self.status(query_id)
            return status if status["state"] == state and status["epoch"] >= epoch else None

        try:
            return until(state, reached)
        except AssertionError:
            raise AssertionError(
                f"{state} epoch {epoch} was not reached: {self.status(query_id)}; {self.events(query_id)}"
            ) from None

    def events(self, query_id: UUID) -> list[tuple[str, str]]:
        found = self.rows("SELECT from_state, to_state FROM slackwater.query_event WHERE query_id = %s ORDER BY id", query_id)
        return [(row["from_state"], row["to_state"]) for row in found]

    def runs(self, query_id: UUID) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM slackwater.query_run WHERE query_id = %s ORDER BY epoch", query_id)

    def commits(self, query_id: UUID) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM stub_commit WHERE query_id = %s ORDER BY id", query_id)

    def works(self, query_id: UUID, *, epoch: int = 0) -> None:
        """Wait for the next commit, of at least this launch."""
        seen = len(self.commits(query_id))
        until("a commit", lambda: [row for row in self.commits(query_id)[seen:] if row["epoch"] >= epoch])

    def drivers(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM slackwater.driver ORDER BY started_at")


class Driver:
    """One driver process without a supervisor."""

    def __init__(self, dsn: str, settings: Settings, *arguments: str) -> None:
        self.id = uuid.uuid4()
        environment = {**os.environ, **environment_of(settings), "SLACKWATER_DATABASE_URL": dsn}
        self.log = settings.data_dir / f"driver-{self.id}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*STUB, "--driver-id", str(self.id), *arguments],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


@contextmanager
def driver(dsn: str, settings: Settings, *arguments: str) -> Iterator[Driver]:
    """Run a driver for the length of a block."""
    started = Driver(dsn, settings, *arguments)
    try:
        yield started
    finally:
        end_session(started.process.pid, DEADLINE_S)
        started.process.wait()

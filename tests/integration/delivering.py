"""Queries whose results are delivered, without an engine: results are committed by the real sink, and delivered by real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row

from app.catalog.connections.sql import put_connection
from app.catalog.queries.edits import Replacement, create_query, delete_query, replace_query
from app.catalog.relations.edits import put_source
from app.db.database import single_transaction
from app.http.requests.conditions import Preconditions
from engine.connections.kafka import KafkaConnection
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from tests.api.change_writer import ChangeWriter
from tests.integration.driver_tools import until

SOURCE = StreamDefinition.model_validate({"key": ["item"], "columns": {"item": "string", "price": "bigint"}})
SERVER = Path(__file__).with_name("armed_deliveries.py")


def definition(name: str, connector: dict[str, Any] | None, *, is_table: bool = False, **parts: Any) -> QueryDefinition:
    """Return a query that reads the source and delivers."""
    into: dict[str, Any] = {"table" if is_table else "stream": name, "connector": connector}
    body: dict[str, Any] = {"name": name, "from": {"stream": "prices"}, **parts}
    return QueryDefinition.model_validate({**body, "into": {**into, **parts.get("into", {})}})


@dataclass
class Delivered:
    """A query, and what was written of its result.

    Attributes:
        rows: how many.
    """

    dsn: str
    name: str
    rows: int = 0
    query_id: UUID = field(init=False)

    def __post_init__(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("SELECT id FROM slackwater.query WHERE name = %s", (self.name,)).fetchone()
            assert row is not None
            self.query_id = row[0]

    def commit(self, rows: int) -> None:
        """Commit so many further results; the price of each is its number."""
        numbers = range(self.rows, self.rows + rows)
        with ChangeWriter(self.dsn, self.name) as writer:
            writer.commit([("upsert", {"item": f"i{number % 5}", "price": number}, 1_000 * number) for number in numbers])
        self.rows += rows

    def row(self) -> dict[str, Any]:
        """Return the row of its delivery."""
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            found = connection.execute("SELECT * FROM slackwater.delivery WHERE query_id = %s", (self.query_id,)).fetchone()
        assert found is not None
        return found

    def set(self, **values: Any) -> None:
        """Change the row, as nobody does."""
        names = ", ".join(f"{name} = %s" for name in values)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"UPDATE slackwater.delivery SET {names} WHERE query_id = %s", (*values.values(), self.query_id))

    def events(self) -> list[str]:
        """Return what its events say of deliveries."""
        wanted = "SELECT kind FROM slackwater.query_event WHERE query_id = %s AND kind LIKE 'delivery%%' ORDER BY id"
        with psycopg.connect(self.dsn) as connection:
            return [kind for (kind,) in connection.execute(wanted, (self.query_id,))]

    def is_delivered(self) -> bool:
        return bool(self.row()["position"] == self.rows)

    def wait(self, seconds: float = 30.0) -> None:
        """Wait until all of it is delivered."""
        until(f"{self.rows} rows of {self.name} are delivered: {self.row()}", self.is_delivered, seconds)

    def edit(self, wanted: QueryDefinition, **asked: Any) -> None:
        with single_transaction(self.dsn) as transaction:
            replace_query(transaction, wanted, Replacement(**asked), 2)

    def delete(self) -> None:
        with single_transaction(self.dsn) as transaction:
            delete_query(transaction, self.name, keeps_result=False, conditions=Preconditions())


def make(dsn: str, wanted: QueryDefinition) -> Delivered:
    """Make a query, and the source that it reads."""
    with single_transaction(dsn) as transaction:
        put_source(transaction, "stream", "prices", SOURCE, Preconditions(), 2)
        create_query(transaction, wanted, 2)
    return Delivered(dsn, wanted.name)


def connect_broker(dsn: str, bootstrap: str) -> None:
    """Store the connection ``broker``, or let it lead elsewhere."""
    wanted = KafkaConnection.model_validate({"type": "kafka", "bootstrap": bootstrap})
    with single_transaction(dsn) as transaction:
        put_connection(transaction, "broker", wanted, None, Preconditions())


@dataclass
class Processes:
    """Starts processes that deliver.

    Attributes:
        server: what they are forked from.
        environment: of these processes.
    """

    server: subprocess.Popen[str]
    environment: dict[str, str]
    pids: list[int] = field(default_factory=list)

    def start(self, point: str = "-", owner: UUID | None = None) -> int:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        wanted = {"point": point, "owner": str(owner or uuid4()), "environment": self.environment}
        self.server.stdin.write(json.dumps(wanted) + "\n")
        self.server.stdin.flush()
        self.pids.append(int(self.server.stdout.readline()))
        return self.pids[-1]

    def is_there(self, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    def await_end(self, pid: int) -> None:
        until(f"process {pid} ends", lambda: not self.is_there(pid))

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.await_end(pid)

    def stop(self, pid: int) -> None:
        """End a process in order."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        self.await_end(pid)


@contextmanager
def forking(log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run what processes that deliver are forked from."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with log.open("ab") as errors:
        server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n", log.read_text()[-2_000:]
        yield server
    finally:
        server.kill()
        server.wait()
        for stream in (server.stdin, server.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def processes(server: subprocess.Popen[str], dsn: str, root: Path, **variables: str) -> Iterator[Processes]:
    """Give what starts processes, for the length of the block; all of them end with it."""
    found = Processes(server, {"SLACKWATER_DATABASE_URL": dsn, "SLACKWATER_DELIVERY_ROOT": str(root), **variables})
    try:
        yield found
    finally:
        for pid in found.pids:
            found.kill(pid)

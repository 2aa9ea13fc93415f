"""Real changes of a real Postgres, sent by a real Debezium Server over HTTP, both killed meanwhile: the table equals the database."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from app.testing.service import free_port, service_of
from engine.python_processes import python_command
from tests.cdc.debezium_server import DebeziumServer, why_not
from tests.cdc.shop import TABLE, programs, rows, work
from tests.faults.service import Driverless, until
from tests.postgres_server import running

pytestmark = [
    pytest.mark.cdc,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.skipif(programs() is None, reason="there is no Postgres with logical decoding below /usr/lib/postgresql"),
]
ORDERS = {
    "key": ["id"],
    "columns": {"id": "bigint", "customer": "string", "total": "decimal(10,2)"},
    "connector": {"type": "log", "partitions": 1},
}
LOG = {"key": ["id"], "columns": ORDERS["columns"], "connector": {"type": "log", "feed": "orders", "partitions": 1}}
"""The records of the table's feed one by one, to be read as a stream."""

_CATCH_UP_S = 180


@pytest.fixture
def port() -> Iterator[int]:
    folder = programs()
    assert folder is not None
    found = free_port()
    with running(folder, f"-c listen_addresses=127.0.0.1 -p {found} -c wal_level=logical"):
        yield found


@pytest.fixture
def service() -> Iterator[Driverless]:
    with service_of(Driverless, {"SLACKWATER_AUTH": "on"}) as started:
        yield started


def key_of(service: Driverless, role: str) -> str:
    command = python_command("app.cli", "keys", "create", role, "--role", role)
    made = subprocess.run(command, env=service.environment(), capture_output=True, text=True, check=True)
    return made.stdout.strip()


def properties(service: Driverless, port: int, key: str) -> dict[str, str]:
    return {
        "debezium.format.value": "json",
        "debezium.format.key": "json",
        "debezium.sink.type": "http",
        "debezium.sink.http.url": f"{service.url}/v1/tables/orders/records?format=debezium",
        "debezium.sink.http.timeout.ms": "5000",
        "debezium.sink.http.retries": "1000",
        "debezium.sink.http.retry.interval.ms": "200",
        "debezium.sink.http.authentication.type": "jwt",
        "debezium.sink.http.authentication.jwt.url": f"{service.url}/v1/debezium/",
        "debezium.sink.http.authentication.jwt.username": "debezium",
        "debezium.sink.http.authentication.jwt.password": key,
        "debezium.source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "debezium.source.offset.flush.interval.ms": "1000",
        "debezium.source.database.hostname": "127.0.0.1",
        "debezium.source.database.port": str(port),
        "debezium.source.database.user": "postgres",
        "debezium.source.database.password": "unused",
        "debezium.source.database.dbname": "postgres",
        "debezium.source.topic.prefix": "shop",
        "debezium.source.table.include.list": "public.orders",
        "debezium.source.plugin.name": "pgoutput",
        "debezium.source.skipped.operations": "none",
        "quarkus.http.port": str(free_port()),
        "quarkus.log.console.json": "false",
    }


def records(http: httpx.Client) -> list[dict[str, Any]]:
    """Return all records of the feed."""
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        answer = http.get("/v1/streams/order_log/records", params={"partition": 0, "offset": offset, "limit": 1_000})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["records"]
        offset = page["next_offset"]
        if offset >= page["end_offset"]:
            return found


def folded(found: list[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    state: dict[int, tuple[str, str]] = {}
    for record in found:
        if record.get("$op") == "delete":
            state.pop(record["id"], None)
        else:
            state[record["id"]] = (record["customer"], f"{float(record['total']):.2f}")
    return state


def test_the_table_equals_the_database_whatever_is_killed(service: Driverless, port: int, tmp_path: Path) -> None:
    draw = random.Random(15)
    admin = {"Authorization": f"Bearer {key_of(service, 'admin')}"}
    with (
        httpx.Client(base_url=service.url, headers=admin, timeout=30) as http,
        psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres", autocommit=True) as database,
    ):
        assert http.put("/v1/tables/orders", json=ORDERS).status_code == 201
        assert http.put("/v1/streams/order_log", json=LOG).status_code == 201
        database.execute(TABLE)
        work(database, draw, 20)
        debezium = DebeziumServer(tmp_path / "debezium", properties(service, port, key_of(service, "write")))
        debezium.start()
        try:
            _caught_up(service, http, database, debezium)
            for kill in (debezium.kill, service.kill_api, debezium.kill, service.kill_everything, debezium.kill):
                for _ in range(5):
                    work(database, draw, 10)
                    time.sleep(0.2)  # so that what is killed is at work
                kill()
                work(database, draw, 20)
                if not debezium.is_running:
                    debezium.start()
                _caught_up(service, http, database, debezium)
        finally:
            debezium.close()
        found = records(http)
        _check_history(found)
        rejects = http.get("/v1/tables/orders/rejects").json()
        assert rejects["items"] == []


def _caught_up(service: Driverless, http: httpx.Client, database: psycopg.Connection[Any], debezium: DebeziumServer) -> None:
    def is_equal() -> bool:
        assert debezium.is_running, debezium.log()
        return folded(records(http)) == rows(database)

    try:
        until("the table equals the database", is_equal, _CATCH_UP_S)
    except AssertionError as error:
        found = records(http)
        wanted, held = rows(database), folded(found)
        wrong = {
            number: (wanted.get(number), held.get(number)) for number in wanted | held if wanted.get(number) != held.get(number)
        }
        of_wrong = [record for record in found if record["id"] in wrong]
        raise AssertionError(
            f"{error}\n{wrong}\n{of_wrong}\n{debezium.log()}\n{service.logs()}\n{len(records(http))} records"
        ) from error


def _check_history(found: list[dict[str, Any]]) -> None:
    """No change stands twice, and none behind a later one of its key."""
    newest: dict[int, int] = {}
    for record in found:
        assert newest.get(record["id"], 0) <= record["$event_time_ms"], record
        newest[record["id"]] = record["$event_time_ms"]
    puts = [(record["id"], record["customer"]) for record in found if record.get("$op") != "delete"]
    moved_or_put = {pair for pair in puts if puts.count(pair) > 1}
    # A customer's text is drawn anew with each put: the same text of one key again is a key that came back by a move.
    assert len(moved_or_put) < len(puts) / 10

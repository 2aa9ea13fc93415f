"""Real changes of a real Postgres, sent by a real Debezium Server over HTTP, both killed meanwhile: the table equals the database."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from app.testing.machines.service import free_port, service_of
from engine.processes.python_processes import python_command
from tests.cdc.debezium_server import DebeziumServer, why_not
from tests.cdc.shop import HISTORY, LARGE, TABLE, Row, history, programs, rows, wait_for_a_key, work
from tests.conftest import ROOT
from tests.faults.service import Driverless, until
from tests.postgres_server import running

pytestmark = [
    pytest.mark.cdc,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.skipif(programs() is None, reason="there is no Postgres with logical decoding below /usr/lib/postgresql"),
]
COLUMNS = {"id": "bigint", "customer": "string", "total": "decimal(10,2)", "note": "string"}
ORDERS = {"key": ["id"], "columns": COLUMNS, "connector": {"type": "log", "partitions": 1}}
LOG = {"key": ["id"], "columns": COLUMNS, "connector": {"type": "log", "feed": "orders", "partitions": 1}}
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


def variables(service: Driverless, port: int, key: str) -> dict[str, str]:
    """Return what the Debezium of docker-compose.yml is told, but where it is and who it is."""
    written = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["debezium"]["environment"]
    here = {
        "DEBEZIUM_SINK_HTTP_URL": f"{service.url}/v1/tables/orders/records?format=debezium",
        "DEBEZIUM_SINK_HTTP_AUTHENTICATION_TYPE": "jwt",
        "DEBEZIUM_SINK_HTTP_AUTHENTICATION_JWT_URL": f"{service.url}/v1/debezium/",
        "DEBEZIUM_SINK_HTTP_AUTHENTICATION_JWT_USERNAME": "debezium",
        "DEBEZIUM_SINK_HTTP_AUTHENTICATION_JWT_PASSWORD": key,
        "DEBEZIUM_SOURCE_DATABASE_HOSTNAME": "127.0.0.1",
        "DEBEZIUM_SOURCE_DATABASE_PORT": str(port),
        "DEBEZIUM_SOURCE_DATABASE_USER": "postgres",
        "DEBEZIUM_SOURCE_DATABASE_PASSWORD": "unused",
        "DEBEZIUM_SOURCE_DATABASE_DBNAME": "postgres",
        "DEBEZIUM_SOURCE_POLL_INTERVAL_MS": "50",
        "QUARKUS_HTTP_PORT": str(free_port()),
        "QUARKUS_LOG_CONSOLE_JSON": "false",
    }
    del written["DEBEZIUM_SOURCE_OFFSET_STORAGE_FILE_FILENAME"]  # is in the directory of the test
    return {name: str(value) for name, value in written.items()} | here


class Shop:
    """The database, the service and what lies between them.

    Attributes:
        database: two connections.
        found: all records of the table's feed so far.
    """

    def __init__(
        self, service: Driverless, http: httpx.Client, database: list[psycopg.Connection[Any]], debezium: DebeziumServer
    ) -> None:
        self.service, self.http, self.database, self.debezium = service, http, database, debezium
        self.found: list[dict[str, Any]] = []

    def read(self) -> None:
        """Read the records that are new."""
        while True:
            params = {"partition": 0, "offset": len(self.found), "limit": 1_000}
            answer = self.http.get("/v1/streams/order_log/records", params=params)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            self.found += page["records"]
            if page["next_offset"] >= page["end_offset"]:
                return

    def folded(self) -> dict[int, Row]:
        state: dict[int, Row] = {}
        for record in self.found:
            if record.get("$op") == "delete":
                state.pop(record["id"], None)
            else:
                state[record["id"]] = (record["customer"], f"{float(record['total']):.2f}", len(record["note"] or ""))
        return state

    def caught_up(self) -> None:
        """Wait until the table equals the database."""

        def is_equal() -> bool:
            self.debezium.revive()
            self.read()
            return self.folded() == rows(self.database[0])

        try:
            until("the table equals the database", is_equal, _CATCH_UP_S)
        except AssertionError as error:
            wanted, held = rows(self.database[0]), self.folded()
            wrong = {each: (wanted.get(each), held.get(each)) for each in wanted | held if wanted.get(each) != held.get(each)}
            of_wrong = [record | {"note": None} for record in self.found if record["id"] in wrong]
            raise AssertionError(f"{error}\n{wrong}\n{of_wrong}\n{self.debezium.log()}") from error

    def happened(self, since: int) -> dict[int, list[str | None]]:
        """Return what happened to each key according to the service; see ``history``."""
        keys: dict[int, list[str | None]] = {}
        for record in self.found[since:]:
            keys.setdefault(record["id"], []).append(None if record.get("$op") == "delete" else record["customer"])
        return keys

    def rejects(self) -> list[str]:
        return [each["reason"] for each in self.http.get("/v1/tables/orders/rejects").json()["items"]]

    def work_and(self, *kills: Any) -> None:
        """Change rows, kill while they are on their way, and go on.

        A changed key is two events at one place in the log. A Debezium (3.0.8) that ends between them does not send the second one when it
        starts again (debezium/dbz#1554), so keys change while nothing is killed.
        """
        draw = random.Random(len(self.found))
        for kill in kills:
            work(self.database[0], draw, 25, has_moves=False)
            until("what is killed is at work", self._is_further(), _CATCH_UP_S)
            kill()
        work(self.database[0], draw, 10, has_moves=False)
        self.caught_up()
        work(self.database[0], draw, 15)

    def _is_further(self) -> Any:
        before = len(self.found)

        def is_it() -> bool:
            self.debezium.revive()
            self.read()
            return len(self.found) > before

        return is_it


def test_the_table_equals_the_database_whatever_is_killed(service: Driverless, port: int, tmp_path: Path) -> None:
    admin = {"Authorization": f"Bearer {key_of(service, 'admin')}"}
    where = {"host": "127.0.0.1", "port": port, "user": "postgres", "dbname": "postgres", "autocommit": True}
    debezium = DebeziumServer(tmp_path / "debezium", {}, variables(service, port, key_of(service, "write")))
    with (
        httpx.Client(base_url=service.url, headers=admin, timeout=30) as http,
        psycopg.connect(**where) as database,
        psycopg.connect(**where) as other,
    ):
        shop = Shop(service, http, [database, other], debezium)
        assert http.put("/v1/tables/orders", json=ORDERS).status_code == 201
        assert http.put("/v1/streams/order_log", json=LOG).status_code == 201
        database.execute(TABLE)
        work(database, random.Random(15), 20)
        try:
            debezium.start()
            _changes_and_kills(shop)
            _snapshot_read_again(shop)
            _what_cannot_be_applied(shop)
        except BaseException:
            print(debezium.log())
            raise
        finally:
            debezium.close()


def _changes_and_kills(shop: Shop) -> None:
    """Nothing is lost, nothing comes twice, and of each key all is in its order."""
    shop.caught_up()
    since = len(shop.found)
    shop.database[0].execute(HISTORY)
    draw = random.Random(3)

    def has_kept() -> bool:
        """Debezium looks whether it is time to store its position when a change comes."""
        work(shop.database[0], draw, 1)
        return b"lsn_commit" in shop.debezium.offsets.read_bytes()

    # Until it has stored that its snapshot is over, Debezium would begin with another one, which does not say what was deleted meanwhile.
    until("Debezium has stored its position", has_kept, 60)
    offsets = shop.debezium.offsets.read_bytes()
    shop.work_and(shop.service.kill_api, shop.debezium.kill)
    shop.caught_up()
    shop.debezium.kill()
    shop.debezium.offsets.write_bytes(offsets)
    wait_for_a_key(*shop.database, 31)
    shop.work_and(shop.service.kill_everything)
    wait_for_a_key(*shop.database, 32)
    shop.caught_up()
    assert shop.happened(since) == history(shop.database[0])
    assert shop.rejects() == []


def _snapshot_read_again(shop: Shop) -> None:
    """Debezium has lost how far it was, and reads the table anew while a transaction is open. What was deleted meanwhile it never says."""
    shop.debezium.kill()
    shop.debezium.offsets.unlink()
    shop.database[0].execute("UPDATE orders SET total = total + 1 WHERE id < 10")
    before = len(shop.found)
    with shop.database[1].transaction():
        shop.database[1].execute(
            "INSERT INTO orders VALUES (40, 'open', 1, NULL) ON CONFLICT (id) DO UPDATE SET customer = 'open'"
        )
        shop.database[1].execute("UPDATE orders SET customer = 'was open during the snapshot' WHERE id = 32")
        shop.database[0].execute("UPDATE orders SET total = total + 1 WHERE id = 31")  # the snapshot lies behind what is open
        there = len(rows(shop.database[0]))
        shop.debezium.start()
        until("the rows of the snapshot are there", lambda: shop.read() or len(shop.found) >= before + there, 120)
    work(shop.database[0], random.Random(8), 10)
    shop.caught_up()
    assert shop.rejects() == []


def _what_cannot_be_applied(shop: Shop) -> None:
    """What the database does not say, and what a reader cannot know, is refused with its reason, and all else goes on."""
    database = shop.database[0]
    for number, statements in enumerate(
        (
            "ALTER TABLE orders REPLICA IDENTITY DEFAULT; UPDATE orders SET note = repeat('x', 10000) WHERE id = 31",
            "UPDATE orders SET customer = 'without its note' WHERE id = 31",
            "ALTER TABLE orders RENAME note TO remark; UPDATE orders SET remark = 'b' WHERE id = 31",
            "ALTER TABLE orders RENAME remark TO note; ALTER TABLE orders ADD size int; UPDATE orders SET note = 'c', size = 1 WHERE id = 31",
            "ALTER TABLE orders ALTER total TYPE text; UPDATE orders SET total = 'much', note = 'd' WHERE id = 31",
            "TRUNCATE orders",
        )
    ):
        database.execute(statements)
        assert number < 6
    expected = ["value_unavailable", "column_gone", "wrong_type", "table_truncated"]
    until("what cannot be applied is refused", lambda: len(shop.rejects()) >= len(expected), 60)
    assert sorted(shop.rejects()) == sorted(expected)
    shop.read()
    notes = [record["note"] for record in shop.found if record["id"] == 31][-2:]
    assert notes == [LARGE, "c"]

"""Real changes of a real Postgres, sent by a real Debezium Server to a topic of a real broker, and read by a service; all of it is killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from app.testing.machines.service import free_port
from tests.cdc.debezium_server import DebeziumServer, why_not
from tests.cdc.shop import HISTORY, TABLE, Row, history, programs, rows, wait_for_a_key, work
from tests.conftest import ROOT
from tests.faults.service import Service, service, until
from tests.kafka import broker, real_registry
from tests.kafka.broker import Broker
from tests.kafka.real_registry import RealRegistry, running_registry
from tests.kafka.topics import Cluster
from tests.postgres_server import running

pytestmark = [
    pytest.mark.cdc,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.skipif(broker.why_not() is not None, reason=broker.why_not() or ""),
    pytest.mark.skipif(programs() is None, reason="there is no Postgres with logical decoding below /usr/lib/postgresql"),
]
TOPIC = "orders.public.orders"
COLUMNS = {"id": "bigint", "customer": "string", "total": "decimal(10,2)", "note": "string"}
PATIENT = {"SLACKWATER_DRIVER__LEASE_TTL_MS": "60000"}
REGISTRY_VERSION = "2.6.13.Final"
"""Debezium Server 3.0 brings a converter of version 2.6."""

_CATCH_UP_S = 240
_TEXTS = "org.apache.kafka.common.serialization.StringSerializer"
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"


@pytest.fixture
def port() -> Iterator[int]:
    folder = programs()
    assert folder is not None
    found = free_port()
    with running(folder, f"-c listen_addresses=127.0.0.1 -p {found} -c wal_level=logical"):
        yield found


@pytest.fixture
def kafka_broker() -> Iterator[Broker]:
    with broker.running() as found:
        yield found


@pytest.fixture
def registry() -> Iterator[RealRegistry]:
    if (reason := real_registry.why_not(REGISTRY_VERSION)) is not None:
        pytest.skip(reason)
    with running_registry(REGISTRY_VERSION) as found:
        yield found


def variables(port: int, bootstrap: str) -> dict[str, str]:
    """Return what the Debezium of docker-compose.yml is told of the database, and that a topic is where it writes."""
    written = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["debezium"]["environment"]
    kept = {name: str(value) for name, value in written.items() if not name.startswith("DEBEZIUM_SINK_")}
    del kept["DEBEZIUM_SOURCE_OFFSET_STORAGE_FILE_FILENAME"]  # is in the directory of the test
    del kept["DEBEZIUM_FORMAT_VALUE"]  # would win over the file of properties, where each test says it
    return kept | {
        "DEBEZIUM_SINK_TYPE": "kafka",
        "DEBEZIUM_SINK_KAFKA_PRODUCER_BOOTSTRAP_SERVERS": bootstrap,
        "DEBEZIUM_SOURCE_DATABASE_HOSTNAME": "127.0.0.1",
        "DEBEZIUM_SOURCE_DATABASE_PORT": str(port),
        "DEBEZIUM_SOURCE_DATABASE_USER": "postgres",
        "DEBEZIUM_SOURCE_DATABASE_PASSWORD": "unused",
        "DEBEZIUM_SOURCE_DATABASE_DBNAME": "postgres",
        "DEBEZIUM_SOURCE_POLL_INTERVAL_MS": "50",
        "DEBEZIUM_SOURCE_TOMBSTONES_ON_DELETE": "true",
        "QUARKUS_HTTP_PORT": str(free_port()),
        "QUARKUS_LOG_CONSOLE_JSON": "false",
    }


def as_json() -> dict[str, str]:
    """Return how events are written with their schemas."""
    sink = {f"debezium.sink.kafka.producer.{side}.serializer": _TEXTS for side in ("key", "value")}
    return sink | {"debezium.format.key": "json", "debezium.format.value": "json"}


def as_avro(registry: RealRegistry) -> dict[str, str]:
    """Return how events are written in Avro, as Confluent's converter writes them, behind the number of a schema in the registry."""
    found = {f"debezium.sink.kafka.producer.{side}.serializer": _BYTES for side in ("key", "value")}
    for side in ("key", "value"):
        said = {
            "apicurio.registry.url": registry.native_url,
            "apicurio.registry.auto-register": "true",
            "apicurio.registry.find-latest": "true",
            "apicurio.registry.headers.enabled": "false",  # else the number is in the record's headers, where Confluent's clients do not look
            "apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
            "apicurio.registry.use-id": "contentId",  # the number that its Confluent-compatible interface knows
            "schema.name.adjustment.mode": "avro",
        }
        found |= {f"debezium.format.{side}": "avro", **{f"debezium.format.{side}.{name}": value for name, value in said.items()}}
    return found | {"debezium.source.schema.name.adjustment.mode": "avro"}


class Shop:
    """The database, the service and what lies between them.

    Attributes:
        database: two connections.
        found: all changes of the service's table so far.
    """

    def __init__(self, running: Service, database: list[psycopg.Connection[Any]], debezium: DebeziumServer) -> None:
        self.service, self.database, self.debezium = running, database, debezium
        self.found: list[dict[str, Any]] = []
        self._cursor: str | None = None

    def read(self) -> bool:
        """Read the changes that are new; False: the service does not answer."""
        while True:
            asked = {"from": "earliest"} if self._cursor is None else {"cursor": self._cursor}
            try:
                answer = httpx.get(f"{self.service.url}/v1/tables/orders/changes", params={**asked, "limit": "1000"}, timeout=30)
            except httpx.TransportError:
                return False
            if answer.status_code == 503:
                return False
            page = answer.raise_for_status().json()
            self.found += page["changes"]
            self._cursor = page["next"]
            if len(page["changes"]) < 1_000:
                return True

    def folded(self) -> dict[int, Row]:
        state: dict[int, Row] = {}
        for change in self.found:
            row = change["row"]
            if row is None:
                state.pop(change["key"]["id"], None)
            else:
                state[row["id"]] = (row["customer"], f"{float(row['total']):.2f}", len(row["note"] or ""))
        return state

    def caught_up(self) -> None:
        """Wait until the table equals the database."""

        def is_equal() -> bool:
            self.debezium.revive()
            return self.read() and self.folded() == rows(self.database[0])

        try:
            until("the table equals the database", is_equal, _CATCH_UP_S)
        except AssertionError as error:
            wanted, held = rows(self.database[0]), self.folded()
            wrong = {each: (wanted.get(each), held.get(each)) for each in wanted | held if wanted.get(each) != held.get(each)}
            raise AssertionError(f"{error}\n{wrong}\n{self.debezium.log()}") from error

    def happened(self, since: int) -> dict[int, list[str | None]]:
        """Return what happened to each key according to the service; see ``history``."""
        keys: dict[int, list[str | None]] = {}
        for change in self.found[since:]:
            keys.setdefault(change["key"]["id"], []).append(None if change["row"] is None else change["row"]["customer"])
        return keys

    def work_and(self, *kills: Any) -> None:
        """Change rows, kill while they are on their way, and go on; keys change while nothing is killed (debezium/dbz#1554)."""
        draw = random.Random(len(self.found))
        for kill in kills:
            work(self.database[0], draw, 25, has_moves=False)
            before = len(self.found)
            until("what is killed is at work", lambda: self._is_behind(before), _CATCH_UP_S)  # noqa: B023
            kill()
        work(self.database[0], draw, 10, has_moves=False)
        self.caught_up()
        work(self.database[0], draw, 15)
        self.caught_up()

    def _is_behind(self, before: int) -> bool:
        self.debezium.revive()
        self.read()
        return len(self.found) > before


def test_the_table_of_a_topic_equals_the_database_whatever_is_killed(kafka_broker: Broker, port: int, tmp_path: Path) -> None:
    debezium = DebeziumServer(tmp_path / "debezium", as_json(), variables(port, kafka_broker.bootstrap))
    _lives(kafka_broker, port, debezium, {"format": "debezium"})


def test_likewise_in_avro_with_a_registry(kafka_broker: Broker, registry: RealRegistry, port: int, tmp_path: Path) -> None:
    debezium = DebeziumServer(tmp_path / "debezium", as_avro(registry), variables(port, kafka_broker.bootstrap))
    _lives(kafka_broker, port, debezium, {"format": "debezium", "encoding": "avro", "registry": "schemas"}, registry.url)


def _lives(kafka_broker: Broker, port: int, debezium: DebeziumServer, value: dict[str, Any], registry: str | None = None) -> None:
    where = {"host": "127.0.0.1", "port": port, "user": "postgres", "dbname": "postgres", "autocommit": True}
    Cluster(kafka_broker.bootstrap).topic(3, name=TOPIC)
    with closing(debezium), service(PATIENT) as found, psycopg.connect(**where) as database, psycopg.connect(**where) as other:
        shop = Shop(found, [database, other], debezium)
        database.execute(TABLE)
        work(database, random.Random(15), 20)
        try:
            debezium.start()
            _registered(shop, kafka_broker, value, registry)
            _changes_and_kills(shop)
        except BaseException:
            print(debezium.log())
            raise


def _registered(shop: Shop, kafka_broker: Broker, value: dict[str, Any], registry: str | None) -> None:
    """Register the table as soon as the snapshot says what its columns are."""
    source = {"type": "kafka", "bootstrap": kafka_broker.bootstrap, "topic": TOPIC, "value": value}
    answers: list[str] = []
    with httpx.Client(base_url=f"{shop.service.url}/v1", timeout=30) as http:
        if registry is not None:
            http.put("/connections/schemas", json={"type": "registry", "urls": [registry]}).raise_for_status()

        def is_registered() -> bool:
            body = {"columns": "infer", "materialize": True, "connector": source}
            answer = http.put("/tables/orders", json=body)
            answers.append(answer.text)
            assert answer.status_code in (201, 422), answer.text
            return answer.status_code == 201

        topic = Cluster(kafka_broker.bootstrap)
        until("the snapshot is there", lambda: topic.count(TOPIC) > 0, 120)
        try:
            until("the table is registered", is_registered, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {answers[-1]}") from error
        stored = http.get("/tables/orders").json()
    assert (stored["key"], stored["columns"]) == (["id"], COLUMNS)


def _changes_and_kills(shop: Shop) -> None:
    """Nothing is lost, nothing comes twice, and of each key all is in its order."""
    shop.caught_up()
    since = len(shop.found)
    shop.database[0].execute(HISTORY)
    draw = random.Random(3)

    def has_kept() -> bool:
        """It looks whether it is time to keep how far it is when a change comes, not when one is gone."""
        work(shop.database[0], draw, 1)
        return b"lsn_commit" in shop.debezium.offsets.read_bytes()

    # Until it has kept that its snapshot is over, Debezium would begin with another one, which does not say what was deleted meanwhile.
    until("Debezium has kept how far it is", has_kept, 60)
    offsets = shop.debezium.offsets.read_bytes()
    shop.work_and(shop.service.kill_driver, shop.debezium.kill)
    shop.debezium.kill()
    shop.debezium.offsets.write_bytes(offsets)
    wait_for_a_key(shop.database[0], shop.database[1], 31)
    shop.work_and(shop.service.kill_everything)
    wait_for_a_key(shop.database[0], shop.database[1], 32)
    shop.caught_up()
    assert shop.happened(since) == history(shop.database[0])
    rejects = httpx.get(f"{shop.service.url}/v1/tables/orders/rejects", timeout=30).raise_for_status().json()
    assert rejects["items"] == []

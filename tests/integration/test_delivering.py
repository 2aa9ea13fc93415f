"""Results delivered by real processes: each once, wherever one was killed; and what happens where a target takes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import psutil
import psycopg
import pytest

from app.catalog.deliveries import sql as deliveries
from app.catalog.relations.change_retention import trim_streams
from app.catalog.stored.queries import set_desired_state
from app.db.database import single_transaction
from app.http.requests.conditions import Preconditions
from app.testing.machines.service import command_of
from engine.deliveries.delivered_rows import gather
from engine.deliveries.deliveries import Result
from engine.expressions.types.types import ColumnType, Schema
from engine.log.storage import find_feed
from engine.postgres.postgres import connect
from tests.api.change_writer import ChangeWriter
from tests.integration.delivering import Processes, connect_broker, definition, forking, make, processes
from tests.integration.driver_tools import driver, fast_settings, stays, until
from tests.kafka.test_delivery import taken
from tests.kafka.topics import Cluster, mock_cluster

NDJSON = {"type": "files", "path": "out", "format": "ndjson", "every": "0s"}
DELTA = {"type": "delta", "path": "out", "every": "0s"}


@pytest.fixture
def dsn(empty_migrated: str) -> str:
    return empty_migrated


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    with forking(tmp_path_factory.mktemp("server") / "deliveries.log") as found:
        yield found


@pytest.fixture
def running(server: subprocess.Popen[str], dsn: str, tmp_path: Path) -> Iterator[Processes]:
    with processes(server, dsn, tmp_path) as found:
        yield found


@pytest.fixture
def mock_broker() -> Cluster:
    return mock_cluster()


def numbers(connector: dict[str, Any], root: Path) -> list[int]:
    """Return the prices that the target has, in the order of its files."""
    directory = root / connector["path"]
    if connector["type"] == "delta":
        return pl.read_delta(str(directory)).sort("_sequence").get_column("price").to_list()
    files = sorted(directory.glob("*.ndjson"))
    return [json.loads(line)["price"] for each in files for line in each.read_text().splitlines()]


@pytest.mark.parametrize(
    ("connector", "points"),
    [(NDJSON, ("planned", "linked", "delivered", "noted")), (DELTA, ("planned", "delivered", "noted"))],
    ids=["files", "delta"],
)
def test_each_result_is_delivered_once_wherever_a_process_is_killed(
    running: Processes, dsn: str, tmp_path: Path, connector: dict[str, Any], points: tuple[str, ...]
) -> None:
    query, owner = make(dsn, definition("out", connector)), uuid4()
    for point in (*points, *points):
        query.commit(7)
        running.await_end(running.start(point, owner))
    query.commit(3)
    running.start("-", owner)
    query.wait()
    assert numbers(connector, tmp_path) == list(range(query.rows))
    assert query.row()["delivered_rows"] == query.rows


def test_a_reader_without_transactions_tells_by_headers_what_it_has_twice(
    running: Processes, dsn: str, mock_broker: Cluster
) -> None:
    connect_broker(dsn, mock_broker.bootstrap)
    topic = mock_broker.topic()
    kafka = {"type": "kafka", "connection": "broker", "topic": topic, "guarantee": "at_least_once"}
    query, owner = make(dsn, definition("out", kafka)), uuid4()
    for point in ("planned", "delivered", "noted"):
        query.commit(7)
        running.await_end(running.start(point, owner))
    query.commit(3)
    running.start("-", owner)
    query.wait()
    messages = taken(mock_broker, topic, query.rows + 7)
    numbers = [int(dict(each.headers() or ())["slackwater-sequence"]) for each in messages]
    assert sorted({*numbers}) == list(range(query.rows))
    assert len(numbers) > query.rows, "what was under way at a kill is there twice"


def test_a_changed_connection_is_used_at_once(running: Processes, dsn: str, mock_broker: Cluster) -> None:
    other, topic = mock_cluster(), mock_broker.topic()
    other.topic(name=topic)
    connect_broker(dsn, mock_broker.bootstrap)
    kafka = {"type": "kafka", "connection": "broker", "topic": topic, "guarantee": "at_least_once"}
    query = make(dsn, definition("out", kafka))
    query.commit(3)
    running.start()
    query.wait()
    connect_broker(dsn, other.bootstrap)
    query.commit(2)
    query.wait()
    assert len(taken(other, topic, 2)) == 2


def test_a_target_that_is_away_stops_the_delivery_and_not_for_ever(running: Processes, dsn: str, tmp_path: Path) -> None:
    blocked = tmp_path / "lake"
    blocked.write_text("a file in the place of a directory")
    connector = {**NDJSON, "path": "lake/out"}
    query = make(dsn, definition("out", connector))
    query.commit(4)
    running.start()
    error = until("it is told that the target is away", lambda: query.row()["error"])
    assert (error["code"], query.row()["is_stopped"]) == ("target_unavailable", False)
    blocked.unlink()
    query.wait()
    until("the trouble is over", lambda: query.row()["error"] is None)
    assert numbers(connector, tmp_path) == [0, 1, 2, 3]
    assert query.row()["failures"] >= 1
    assert query.events() == ["delivery_begun", "delivery_waits", "delivery_resumed"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [({"position": 1, "planned": 2}, "delivery_ahead"), ({"position": 6, "planned": 8}, "delivery_position_lost")],
)
def test_a_delivery_stops_where_target_and_database_differ(
    running: Processes, dsn: str, tmp_path: Path, values: dict[str, int], reason: str
) -> None:
    query = make(dsn, definition("out", DELTA))
    query.commit(4)
    first = running.start()
    query.wait()
    running.stop(first)
    query.set(**values)
    query.commit(4)
    running.start()
    until("it stops", lambda: query.row()["is_stopped"])
    assert query.row()["error"]["code"] == reason
    assert numbers(DELTA, tmp_path) == [0, 1, 2, 3]
    assert query.events()[-1] == "delivery_stopped"
    query.edit(definition("out", {**DELTA, "path": "elsewhere"}))
    query.wait()
    assert numbers({**DELTA, "path": "elsewhere"}, tmp_path) == list(range(8))


def test_what_is_wrong_may_hold_whatever_a_target_says(dsn: str) -> None:
    query = make(dsn, definition("out", NDJSON))
    with connect(dsn, "test") as connection:
        deliveries.claim(connection, owner := uuid4(), 60_000, 1)
        (seen,) = deliveries.look(connection, owner)
        deliveries.note_failed(connection, seen.lease, "target_unavailable", "a\0b \udce9 " + "x" * 9_000, 1_000)
    assert query.row()["error"]["detail"].startswith("a\N{REPLACEMENT CHARACTER}b ? xx")
    assert len(query.row()["error"]["detail"]) <= 2_000


def test_what_is_not_delivered_is_kept_within_a_bound_and_no_longer(running: Processes, dsn: str, tmp_path: Path) -> None:
    query = make(dsn, definition("out", NDJSON, into={"retention": "1h"}))
    query.commit(3)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.batch SET appended_at = now() - interval '2 hours'")
        assert trim_streams(connection, undelivered_ms=3 * 3_600_000) == 0
    first = running.start()
    query.wait()
    running.stop(first)
    query.commit(3)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert trim_streams(connection, undelivered_ms=3 * 3_600_000) == 1, "what was delivered goes by its own retention"
        connection.execute("UPDATE log.batch SET appended_at = now() - interval '4 hours'")
        assert trim_streams(connection, undelivered_ms=3 * 3_600_000) == 1
    query.commit(2)
    running.start()
    until("it stops", lambda: query.row()["is_stopped"])
    assert query.row()["error"]["code"] == "delivery_overtaken"
    assert numbers(NDJSON, tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("connector", [NDJSON, DELTA], ids=["files", "delta"])
def test_a_frozen_process_that_wakes_up_delivers_nothing_twice(
    server: subprocess.Popen[str], dsn: str, tmp_path: Path, connector: dict[str, Any]
) -> None:
    with processes(server, dsn, tmp_path, SLACKWATER_DRIVER__LEASE_TTL_MS="1000") as running:
        query = make(dsn, definition("out", connector))
        query.commit(4)
        frozen = running.start()
        query.wait()
        os.kill(frozen, signal.SIGSTOP)
        query.commit(4)
        running.start()
        query.wait()
        os.kill(frozen, signal.SIGCONT)
        query.commit(4)
        query.wait()
    assert numbers(connector, tmp_path) == list(range(12))


def test_columns_that_a_result_gets_are_delivered_from_then_on(running: Processes, dsn: str, tmp_path: Path) -> None:
    plain = {"item": "item", "price": "price"}
    query = make(dsn, definition("out", DELTA, select=plain))
    query.commit(2)
    running.start()
    query.wait()
    query.edit(definition("out", DELTA, select={**plain, "double": "price * 2"}))
    query.commit(2)
    query.wait()
    frame = pl.read_delta(str(tmp_path / "out"))
    assert "double" in frame.columns
    assert query.events() == ["delivery_begun"]


def test_a_stopped_query_and_a_deleted_one_deliver_nothing_more(running: Processes, dsn: str, tmp_path: Path) -> None:
    query = make(dsn, definition("out", NDJSON))
    query.commit(2)
    running.start()
    query.wait()
    with single_transaction(dsn) as transaction:
        set_desired_state(transaction, "out", "stopped", Preconditions())
    until("the lease is given back", lambda: query.row()["lease_owner"] is None)
    query.commit(2)
    with single_transaction(dsn) as transaction:
        set_desired_state(transaction, "out", "paused", Preconditions())
    query.wait()
    query.delete()
    assert numbers(NDJSON, tmp_path) == [0, 1, 2, 3]


def test_a_tables_changes_are_delivered_with_its_deletes(running: Processes, dsn: str, tmp_path: Path) -> None:
    query = make(dsn, definition("out", NDJSON, is_table=True, group_by=["item"], aggregate={"price": "max(price)"}))
    with ChangeWriter(dsn, "out") as writer:
        writer.commit(
            [("upsert", {"item": "a", "price": 1}, 1), ("delete", {"item": "a"}, 2), ("upsert", {"item": "b", "price": 3}, 3)]
        )
    query.rows = 3
    running.start()
    query.wait()
    lines = [json.loads(line) for each in sorted((tmp_path / "out").glob("*.ndjson")) for line in each.read_text().splitlines()]
    assert [(each["item"], each["_op"]) for each in lines] == [("a", "upsert"), ("a", "delete"), ("b", "upsert")]


@pytest.mark.parametrize("most_rows", [1, 3, 100])
def test_rows_are_gathered_the_same_however_they_are_cut(dsn: str, most_rows: int) -> None:
    query = make(dsn, definition("out", NDJSON))
    for rows in (1, 4, 2, 5):
        query.commit(rows)
    result = Result(uuid4(), "out", Schema((("item", ColumnType("string")), ("price", ColumnType("bigint")))), (), is_table=False)
    found: list[int] = []
    with connect(dsn, "test") as connection:
        feed = find_feed(connection, "out")
        assert feed is not None
        while (gathered := gather(connection, feed.id, len(found), result, most_rows)) is not None:
            assert gathered.rows.height <= max(most_rows, 1)
            found += gathered.rows.get_column("price").to_list()
    assert found == list(range(12))


def delivering(driver_pid: int) -> int | None:
    """Return the process that a driver has for its deliveries."""
    children = psutil.Process(driver_pid).children()
    return next((each.pid for each in children if "app.driver.delivering" in command_of(each)), None)


def test_a_driver_keeps_a_process_that_delivers_and_it_ends_with_its_driver(dsn: str, tmp_path: Path) -> None:
    query = make(dsn, definition("out", NDJSON, desired_state="paused"))
    query.commit(3)
    settings = fast_settings(tmp_path / "data").model_copy(update={"delivery_root": tmp_path})
    settings.data_dir.mkdir()
    with driver(dsn, settings) as started:
        query.wait(120)
        first = delivering(started.process.pid)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        query.commit(3)
        query.wait(120)
        second = delivering(started.process.pid)
        assert second not in (first, None)
        started.kill()
        until("it ends with its driver", lambda: not psutil.pid_exists(second), 60)
    assert numbers(NDJSON, tmp_path) == list(range(6))


def test_a_driver_with_nothing_to_deliver_keeps_no_process(dsn: str, tmp_path: Path) -> None:
    settings = fast_settings(tmp_path / "data")
    settings.data_dir.mkdir()
    with driver(dsn, settings) as started:
        until("the driver is ready", lambda: "driver_ready" in started.log.read_text(), 60)
        assert stays(lambda: delivering(started.process.pid) is None, 1.5)

"""Results delivered to a real broker by processes that are killed between and in the midst of their steps, past kills of the broker."""

from __future__ import annotations

import random
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.api.change_writer import ChangeWriter
from tests.faults.service import seeded
from tests.integration.delivering import Delivered, connect_broker, definition, forking, make, processes
from tests.kafka.broker import Broker
from tests.kafka.test_delivering import by_key
from tests.kafka.test_delivery import taken
from tests.kafka.topics import WAIT_S, Cluster

pytestmark = pytest.mark.timeout(1_500)

# Compaction would take away what an auditor wants to see: the policy of the topics is `delete`.
POINTS = ("planned", "delivered", "noted")
CYCLES = 24


def committed(query: Delivered, table: Delivered, rows: int) -> None:
    """Commit results of both queries: each item of the table is deleted by every third of its changes."""
    numbers = range(table.rows, table.rows + rows)
    with ChangeWriter(table.dsn, table.name) as writer:
        writer.commit(
            [
                ("delete" if number % 3 == 2 else "upsert", {"item": f"i{number % 5}", "price": None if number % 3 == 2 else number}, number)
                for number in numbers
            ]
        )  # fmt: skip
    table.rows += rows
    query.commit(rows)


def test_each_result_is_there_once_wherever_processes_and_the_broker_are_killed(
    own_broker: Broker, empty_migrated: str, tmp_path: Path
) -> None:
    chosen, owner = random.Random(seeded()), uuid4()
    cluster = Cluster(own_broker.bootstrap)
    cluster.topic(3, name="copies")
    connect_broker(empty_migrated, own_broker.bootstrap)
    kafka = {"type": "kafka", "connection": "broker"}
    query = make(empty_migrated, definition("copies", {**kafka, "topic": "copies"}))
    latest = {**kafka, "topic": "latest", "create": {"partitions": 3, "replication": 1, "cleanup_policy": "delete"}}
    table = make(
        empty_migrated, definition("latest", latest, is_table=True, group_by=["item"], aggregate={"price": "max(price)"})
    )
    with forking(tmp_path / "deliveries.log") as server, processes(server, empty_migrated, tmp_path) as running:
        for cycle in range(CYCLES):
            committed(query, table, 40)
            if cycle % 2:
                pid = running.start("-", owner)
                time.sleep(chosen.uniform(0, 1.5))  # in the midst of whatever it does
                running.kill(pid)
            else:
                running.await_end(running.start(chosen.choice(POINTS), owner))
            if cycle % 6 == 5:
                own_broker.kill()
                own_broker.start()
        running.start("-", owner)
        query.wait(120)
        table.wait(120)
    assert by_key(taken(cluster, "copies", query.rows, 60)) == {f"i{key}": list(range(key, query.rows, 5)) for key in range(5)}
    expected = {f"i{key}": [None if n % 3 == 2 else n for n in range(key, table.rows, 5)] for key in range(5)}
    assert by_key(taken(cluster, "latest", table.rows, 60)) == expected


def test_a_position_that_brokers_forgot_meanwhile_is_not_missed_at_the_next_kill(
    kafka: Cluster, empty_migrated: str, tmp_path: Path
) -> None:
    """As after a week without results, where the process is killed right after it has planned the next delivery."""
    owner, topic = uuid4(), kafka.topic()
    connect_broker(empty_migrated, kafka.bootstrap)
    query = make(empty_migrated, definition("copies", {"type": "kafka", "connection": "broker", "topic": topic}))
    with forking(tmp_path / "deliveries.log") as server, processes(server, empty_migrated, tmp_path) as running:
        query.commit(5)
        pid = running.start("planned later", owner)
        query.wait()
        group = f"slackwater-{query.row()['id']}"
        kafka.admin.delete_consumer_groups([group])[group].result(WAIT_S)  # as ``offsets.retention.minutes`` does
        query.commit(3)
        running.await_end(pid)
        assert (query.row()["position"], query.row()["planned"]) == (5, 8)
        running.start("-", owner)
        query.wait()
        query.commit(2)
        query.wait()
    assert by_key(taken(kafka, topic, query.rows)) == {f"i{key}": list(range(key, query.rows, 5)) for key in range(5)}

"""A table of Debezium's change events, read by a whole service: registered, materialised, and read over HTTP."""

from __future__ import annotations

import json

import httpx
import pytest
from slackwater import Client

from tests.faults.service import service, until
from tests.kafka.broker import Broker
from tests.kafka.changes import Database, delivered, described, lived, names_as_of
from tests.kafka.topics import Cluster, Sent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_table_of_change_events_is_the_databases(broker: Broker) -> None:
    cluster = Cluster(broker.bootstrap)
    topic = cluster.topic()
    log = lived(3, 300).log
    sent = delivered(5, len(log))
    half = len(sent) // 2
    cluster.send(topic, [Sent(described(log[place]), key=b'{"id": 1}') for place in sent[:half]])
    value = {"format": "debezium"}
    source = {"type": "kafka", "bootstrap": broker.bootstrap, "topic": topic, "value": value}
    with service() as running, Client(running.url) as client:
        registered = client.table("shop").register({"columns": "infer", "materialize": True, "connector": source})
        assert (registered["key"], registered["columns"]) == (["id"], {"id": "bigint", "name": "string", "at": "timestamp"})

        def names() -> dict[int, str | None]:
            return {row["id"]: row["name"] for row in client.table("shop").each_row()}

        until("the first half is read", lambda: names() == names_as_of(log[: max(sent[:half]) + 1]), 120)
        cluster.send(topic, [Sent(described(log[place])) for place in [*sent[half:], *sent[:half]]])
        cluster.send(topic, [Sent(b"no event"), Sent(b"\xff"), Sent(described(log[0])), Sent(None)])
        until("the second half is read", lambda: names() == names_as_of(log), 120)


def test_the_cure_that_a_truncation_prints_gives_the_databases_table(broker: Broker) -> None:
    cluster = Cluster(broker.bootstrap)
    topic = cluster.topic()
    database = Database()
    for number in range(4):
        database.put(number, f"before {number}")
    truncation = {**(database.log[-1] or {}), "op": "t", "before": None, "after": None}
    cluster.send(topic, [Sent(described(event)) for event in [*database.log, truncation]])
    database.put(9, "after")
    cluster.send(topic, [Sent(described(database.log[-1]))])
    source = {"type": "kafka", "bootstrap": broker.bootstrap, "topic": topic, "value": {"format": "debezium"}}
    copied = {"name": "copied", "from": {"table": "shop"}, "into": {"table": "copied"}}
    with service() as running, Client(running.url) as client:
        client.table("shop").register({"key": ["id"], "columns": {"id": "bigint", "name": "string"}, "connector": source})
        assert httpx.post(f"{running.url}/v1/queries", json=copied).status_code == 201

        def failure() -> dict[str, str] | None:
            found: dict[str, str] | None = client.query("copied").status()["error"]
            return found

        error = until("the truncation stops the query", failure, 120)
        assert error["code"] == "table_truncated"
        (removed,) = json.loads(error["detail"].partition("kafka-delete-records.sh and ")[2].partition("]}")[0] + "]}")[
            "partitions"
        ]
        cluster.remove(removed["topic"], removed["partition"], removed["offset"])
        answer = httpx.put(f"{running.url}/v1/queries/copied?state=discard", json=copied)
        assert answer.status_code == 200, answer.text
        until("the rows behind it are there", lambda: [row["id"] for row in client.table("copied").each_row()] == [9], 120)

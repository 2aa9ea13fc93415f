"""A table of Debezium's change events, read by a whole service: registered, materialised, and read over HTTP."""

from __future__ import annotations

import pytest
from slackwater import Client

from tests.faults.service import service, until
from tests.kafka.broker import Broker
from tests.kafka.changes import delivered, described, lived, names_as_of
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

"""A topic read by a whole service: registered, queried and followed over HTTP, also past the broker's end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from slackwater import Client, ServiceError

from tests.faults.service import Service, service, until
from tests.kafka.broker import Broker
from tests.kafka.topics import Cluster, Sent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PARTITIONS = 3
PATIENT = {"SLACKWATER_DRIVER__LEASE_TTL_MS": "120000"}
"""A driver beside a broker's JVM on a busy machine is slow, not dead: none dies here."""

ORDERS = {
    "key": ["customer"],
    "columns": {"customer": "string", "amount": "bigint", "trace": "string", "place": "bigint"},
}
TOTALS = {
    "name": "totals",
    "from": {"stream": "orders"},
    "group_by": ["customer"],
    "aggregate": {"orders": "count(*)", "amount": "sum(amount)"},
    "into": {"table": "totals"},
}


def connector(broker: Broker | Cluster, topic: str) -> dict[str, Any]:
    return {
        "type": "kafka",
        "bootstrap": broker.bootstrap,
        "topic": topic,
        "key": {"format": "kafka"},
        "value": {"format": "json"},
        "record_columns": {"trace": "header:trace", "place": "offset"},
    }


def orders(start: int, end: int) -> list[Sent]:
    return [
        Sent(
            json.dumps({"amount": number}).encode(),
            key=f"c{number % 7}".encode(),
            timestamp_ms=1_700_000_000_000 + number,
            partition=number % PARTITIONS,
            headers=[("trace", f"t{number}".encode())],
        )
        for number in range(start, end)
    ]


def totals(sent: Sequence[int]) -> dict[str, tuple[int, int]]:
    counts, sums = Counter[str](), Counter[str]()
    for number in sent:
        counts[f"c{number % 7}"] += 1
        sums[f"c{number % 7}"] += number
    return {customer: (counts[customer], sums[customer]) for customer in counts}


def found(client: Client) -> dict[str, tuple[int, int]]:
    return {row["customer"]: (row["orders"], row["amount"]) for row in client.table("totals").each_row()}


def test_each_record_counts_once_past_a_broker_that_is_killed(own_broker: Broker) -> None:
    cluster = Cluster(own_broker.bootstrap)
    topic = cluster.topic(PARTITIONS, flush_messages="1")
    cluster.send(topic, orders(0, 1_000))
    with service(PATIENT) as running, Client(running.url) as client:
        client.stream("orders").register({**ORDERS, "connector": connector(own_broker, topic)})
        client.queries.put(TOTALS)
        until("what was there is counted", lambda: found(client) == totals(range(1_000)), 240)

        cluster.commit(topic, orders(5_000, 5_050), aborts=True)
        cluster.commit(topic, orders(1_000, 1_500))
        # A broker (4.3) that is killed before may never write the markers: it asks itself too early for a connection, and then no more.
        until("the transactions' markers are written", lambda: cluster.is_settled(topic), 60)
        own_broker.kill()
        until(
            "the status tells that the source is away",
            lambda: "source" in json.dumps(client.query("totals").status().raw["error"]),
            60,
        )
        own_broker.start()
        cluster.send(topic, orders(1_500, 2_000))
        until("what came before and after the kill is counted", lambda: found(client) == totals(range(2_000)), 240)
        status = client.query("totals").status()
    assert status["state"] == "running", status


@contextmanager
def counted(broker: Broker, **said: str) -> Iterator[tuple[Service, Client, Cluster, str]]:
    """Run a service that has counted a hundred orders of a topic; ``said`` is said of its connector as well."""
    cluster = Cluster(broker.bootstrap)
    topic = cluster.topic(flush_messages="1")
    with service(PATIENT) as running, Client(running.url) as client:
        client.stream("orders").register({**ORDERS, "connector": {**connector(broker, topic), **said}})
        client.queries.put(TOTALS)
        cluster.send(topic, in_partition(0, range(100)))
        until("what was there is counted", lambda: found(client) == totals(range(100)), 180)
        yield running, client, cluster, topic


def test_what_cannot_be_read_is_refused_with_field_and_cure(own_broker: Broker) -> None:
    cluster = Cluster(own_broker.bootstrap)
    topic = cluster.topic()
    cluster.send(topic, [Sent(b"no json", key=b"a")])
    with service(PATIENT) as running, Client(running.url) as client:

        def refusal(**changed: Any) -> tuple[int, list[tuple[str, str]]]:
            with pytest.raises(ServiceError) as caught:
                client.stream("orders").register({**ORDERS, "connector": {**connector(own_broker, topic), **changed}})
            body = caught.value.problem
            return caught.value.status, [(each["pointer"], each["code"]) for each in body["errors"]]

        assert refusal(topic="nowhere") == (422, [("/connector/topic", "topic_missing")])
        assert refusal() == (422, [("/connector/value", "format_differs")])
        assert refusal(connection="nobody", bootstrap=None) == (422, [("/connector/connection", "connection_missing")])
        own_broker.kill()
        with pytest.raises(ServiceError) as caught:
            client.stream("orders").register({**ORDERS, "connector": connector(own_broker, topic)})
        assert (caught.value.status, caught.value.problem["code"]) == (503, "source_unavailable")


def test_partitions_that_come_records_that_go_and_an_end_that_recedes(own_broker: Broker) -> None:
    with counted(own_broker, on_lost="skip") as (running, client, cluster, topic):
        cluster.grow(topic, 3)
        cluster.send(topic, in_partition(2, range(100, 200)))
        until("what the new partition has is counted", lambda: found(client) == totals(range(200)), 60)

        running.stop()  # a query that is paused may have fetched ahead
        cluster.send(topic, in_partition(0, range(200, 300)))
        cluster.remove(topic, 0, 150)
        running.start()
        kept = [*range(200), *range(250, 300)]
        until("what retention has left is counted", lambda: found(client) == totals(kept), 180)
        counters = client.query("totals").status()["counters"]
        assert [each["count"] for each in counters if each["reason"] == "records_lost"] == [50], counters

        own_broker.stop()
        own_broker.lose(topic)
        own_broker.start()
        until("the query says that its records are gone", lambda: client.query("totals").status()["state"] == "failed", 180)
        error = client.query("totals").status()["error"]
        assert (error["code"], "unclean election" in error["detail"]) == ("records_replaced", True), error
        assert found(client) == totals(kept)


def test_a_query_that_retention_overtook_goes_on_as_its_error_says(own_broker: Broker) -> None:
    with counted(own_broker) as (running, client, cluster, topic):
        running.stop()
        cluster.send(topic, in_partition(0, range(100, 200)))
        cluster.remove(topic, 0, 150)
        running.start()
        until("it stops", lambda: client.query("totals").status()["state"] == "failed", 180)
        error = client.query("totals").status()["error"]
        assert error["code"] == "offset_out_of_range", error
        assert "PUT the source orders with" in error["detail"], error
        assert found(client) == totals(range(100))

        client.stream("orders").register({**ORDERS, "connector": {**connector(own_broker, topic), "on_lost": "skip"}})
        client.query("totals").restart()
        kept = [*range(100), *range(150, 200)]
        until("what retention has left is counted", lambda: found(client) == totals(kept), 180)
        counters = client.query("totals").status()["counters"]
        assert [each["count"] for each in counters if each["reason"] == "records_lost"] == [50], counters


def test_records_that_took_the_place_of_others_before_anybody_looked_stop_the_query(own_broker: Broker) -> None:
    with counted(own_broker) as (running, client, cluster, topic):
        running.stop()
        own_broker.stop()
        own_broker.start()
        running.start()
        cluster.send(topic, in_partition(0, range(100, 150)))
        until("a new leader of the same log changes nothing", lambda: found(client) == totals(range(150)), 180)

        running.stop()
        own_broker.stop()
        own_broker.lose(topic)
        own_broker.start()
        cluster.send(topic, in_partition(0, range(1_000, 1_300)))
        running.start()
        until("the query says that its records are gone", lambda: client.query("totals").status()["state"] == "failed", 180)
        error = client.query("totals").status()["error"]
        assert (error["code"], "leader epoch" in error["detail"]) == ("records_replaced", True), error
        assert found(client) == totals(range(150))


def in_partition(partition: int, numbers: Iterable[int]) -> list[Sent]:
    return [replace(each, partition=partition) for number in numbers for each in orders(number, number + 1)]

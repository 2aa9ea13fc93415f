"""Results delivered to a real broker by a whole service, while everything of it is killed at random: each once, in order per key."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from typing import Any

import httpx
import pytest
from confluent_kafka import Message
from slackwater import Client

from tests.faults.chaos import SETTINGS
from tests.faults.service import Body, Feeder, Service, seeded, service, until
from tests.kafka.broker import Broker
from tests.kafka.test_delivery import taken
from tests.kafka.topics import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_000)]

CYCLES = int(os.environ.get("KAFKA_CYCLES", "20"))
RECORDS, KEYS = 25, 7
CALM_S = 4.0
PATIENT = {"SLACKWATER_DRIVER__LEASE_TTL_MS": "60000"}
"""A supervisor waits for two of them before it takes a driver for dead: on a machine that others share its imports take half a minute."""

COLUMNS = {"item": "string", "price": "bigint", "at": "bigint"}


def bodies(is_enough: threading.Event) -> Iterator[Body]:
    """Yield records of a stream, and upserts and deletes of a table, as long as wanted; ``price`` is the number of a record among all."""
    for body in takewhile(lambda _: not is_enough.is_set(), count()):
        numbers = range(body * RECORDS, (body + 1) * RECORDS)
        plain = [{"item": f"i{number % KEYS}", "price": number, "at": 1_700_000_000_000 + number} for number in numbers]
        yield "streams", "prices", lines(plain)
        changes = [{**row, "$op": "delete"} if row["price"] % 11 == 10 else row for row in plain]
        yield "tables", "latest_prices", lines(changes)


def lines(records: list[dict[str, Any]]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


def query(name: str, source: dict[str, str], into: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "from": source, "select": {"item": "item", "price": "price"}, "into": into}


def made(client: Client, running: Service, broker: Broker, cluster: Cluster) -> None:
    """Register what is read, and the queries that deliver."""
    connection = {"type": "kafka", "bootstrap": broker.bootstrap}
    httpx.put(f"{running.url}/v1/connections/broker", json=connection, timeout=30).raise_for_status()
    client.stream("prices").register({"key": ["item"], "columns": COLUMNS, "event_time": "at"})
    client.table("latest_prices").register({"key": ["item"], "columns": COLUMNS, "event_time": "at"})
    kafka = {"type": "kafka", "connection": "broker"}
    cluster.topic(3, name="copies")
    cluster.topic(3, name="repeated")
    client.queries.put(query("copies", {"stream": "prices"}, {"stream": "copies", "connector": {**kafka, "topic": "copies"}}))
    often = {**kafka, "topic": "repeated", "guarantee": "at_least_once"}
    client.queries.put(query("repeated", {"stream": "prices"}, {"stream": "repeated", "connector": often}))
    table = {
        **kafka,
        "topic": "latest",
        "create": {"partitions": 3, "replication": 1, "cleanup_policy": "delete"},
        "value": {"format": "json", "has_key": False},
    }
    client.queries.put(query("latest", {"table": "latest_prices"}, {"table": "latest", "connector": table}))


def is_delivered(client: Client, name: str, least: int) -> bool:
    found = client.query(name).status()["delivery"]
    assert found["state"] != "stopped", found
    return bool(found["lag_rows"] == 0 and found["position"] >= least)


def test_a_reader_sees_each_result_once_and_in_order_past_kills_of_everything(own_broker: Broker) -> None:
    chosen = random.Random(seeded())
    cluster = Cluster(own_broker.bootstrap)
    with service(SETTINGS | PATIENT) as running, Client(running.url, timeout=30) as client:
        made(client, running, own_broker, cluster)
        is_enough = threading.Event()
        feeder = Feeder(running.url, bodies(is_enough), 0.2)
        feeder.start()
        until("something is delivered", lambda: client.query("copies").status()["delivery"]["position"] > 0, 400)
        kills: dict[str, Callable[[], None]] = {
            "delivering": running.kill_delivering,
            "driver": running.kill_driver,
            "api": running.kill_api,
            "all": running.kill_everything,
            "broker": lambda: (own_broker.kill(), time.sleep(chosen.uniform(0, 2)), own_broker.start())[0],
        }
        wanted = [name for name in kills for _ in range({"delivering": 2, "broker": 2}.get(name, 1))]
        order = [wanted[number % len(wanted)] for number in range(CYCLES)]
        chosen.shuffle(order)
        for cycle, what in enumerate(order):
            time.sleep(chosen.uniform(0, CALM_S))
            before = client_position(client)
            print(f"{cycle:>3} {what:12} at {before}", flush=True)
            kills[what]()
            until(f"results are delivered again behind {before}", lambda: client_position(client) > before, 400)  # noqa: B023
        is_enough.set()
        until("all is acknowledged", lambda: feeder.is_done, 600)
        rows = feeder.acknowledged // 2 * RECORDS
        for name in ("copies", "repeated"):
            until(f"{name} is delivered", lambda: is_delivered(client, name, rows), 300)  # noqa: B023
        until("latest is delivered", lambda: is_delivered(client, "latest", 1), 300)
        time.sleep(1)
        until("latest is delivered", lambda: is_delivered(client, "latest", 1), 300)
        position = client.query("latest").status()["delivery"]["position"]
        changes = changes_of(running, "latest", position)
        metrics = httpx.get(f"{running.url}/metrics", timeout=30).text
    assert f'slackwater_delivered_rows_total{{query="copies"}} {float(rows)}' in metrics
    audit_stream(cluster, rows)
    audit_repeated(cluster, rows)
    audit_table(cluster, changes)


def client_position(client: Client) -> int:
    return int(until("the status is there", lambda: client.query("copies").status(), 400)["delivery"]["position"])


def changes_of(running: Service, table: str, wanted: int) -> dict[str, list[int | None]]:
    """Return the values of each key in the order of a table's changes; None: it was deleted."""
    found: dict[str, list[int | None]] = defaultdict(list)
    params, number = {"from": "earliest", "limit": "1000"}, 0
    while number < wanted:
        page = httpx.get(f"{running.url}/v1/tables/{table}/changes", params=params, timeout=60).raise_for_status().json()
        for each in page["changes"]:
            found[each["key"]["item"]].append(None if each["row"] is None else each["row"]["price"])
        number, params = number + len(page["changes"]), {"cursor": page["next"], "limit": "1000"}
    return dict(found)


def by_key(messages: list[Message]) -> dict[str, list[Any]]:
    """Return the values of each key in the order of the topic; all records of a key are in one partition."""
    places: dict[str, set[int]] = defaultdict(set)
    found: dict[str, list[Any]] = defaultdict(list)
    for each in sorted(messages, key=lambda message: (message.partition(), message.offset())):
        item = json.loads(each.key())["item"]
        places[item].add(each.partition())
        found[item].append(None if each.value() is None else json.loads(each.value())["price"])
    assert all(len(each) == 1 for each in places.values()), places
    return dict(found)


def audit_stream(cluster: Cluster, rows: int) -> None:
    found = by_key(taken(cluster, "copies", rows, 120))
    assert found == {f"i{key}": list(range(key, rows, KEYS)) for key in range(KEYS)}


def audit_repeated(cluster: Cluster, rows: int) -> None:
    first: dict[str, Message] = {}
    for each in sorted(taken(cluster, "repeated", rows, 120), key=lambda message: (message.partition(), message.offset())):
        headers = dict(each.headers() or ())
        first.setdefault(headers["slackwater-delivery"].decode() + headers["slackwater-sequence"].decode(), each)
    assert by_key([*first.values()]) == {f"i{key}": list(range(key, rows, KEYS)) for key in range(KEYS)}


def audit_table(cluster: Cluster, changes: dict[str, list[int | None]]) -> None:
    found = by_key(taken(cluster, "latest", sum(map(len, changes.values())), 120))
    assert found == changes
    assert any(None in each for each in found.values())

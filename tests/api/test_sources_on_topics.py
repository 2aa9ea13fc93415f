"""Sources on topics that change while queries read them. On librdkafka's mock."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psycopg
import pytest

from app.catalog.stored.catalog import load_catalog
from tests.kafka.topics import Cluster, Sent, mock_cluster

COPIED = {"name": "copied", "from": {"stream": "orders"}, "into": {"stream": "copied"}}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return mock_cluster()


def orders(cluster: Cluster, topic: str, **said: Any) -> dict[str, Any]:
    connector = {"type": "kafka", "bootstrap": cluster.bootstrap, "topic": topic, "value": {"format": "json"}, **said}
    return {"columns": {"amount": "bigint"}, "connector": connector}


def feed(dsn: str, name: str) -> str:
    with psycopg.connect(dsn) as connection:
        return load_catalog(connection)[name].feed.name


async def test_what_happens_to_lost_records_changes_while_a_query_reads(
    client: httpx.AsyncClient, cluster: Cluster, dsn: str
) -> None:
    topic = cluster.topic()
    cluster.send(topic, [Sent(b'{"amount": 1}')])
    assert (await client.put("/v1/streams/orders", json=orders(cluster, topic))).status_code == 201
    first = feed(dsn, "orders")
    assert (await client.post("/v1/queries", json=COPIED)).status_code == 201
    for said in ("skip", "stop"):
        answer = await client.put("/v1/streams/orders", json=orders(cluster, topic, on_lost=said))
        assert answer.status_code == 200, answer.text
        assert (answer.json()["definition"]["connector"]["on_lost"], feed(dsn, "orders")) == (said, first)


async def test_a_source_that_has_its_order_apart_keeps_it_whatever_is_put(
    client: httpx.AsyncClient, cluster: Cluster, dsn: str
) -> None:
    """As migration 0033 leaves it. A file of definitions that was written before knows nothing of that."""
    topic = cluster.topic()
    cluster.send(topic, [Sent(b'{"amount": 1}')])
    await client.put("/v1/streams/shared", json=orders(cluster, topic))
    await client.put("/v1/streams/orders", json=orders(cluster, topic, on_lost="skip"))
    assert feed(dsn, "orders") == feed(dsn, "shared")
    with psycopg.connect(dsn) as connection:
        (stored,) = connection.execute("SELECT definition FROM slackwater.relation WHERE name = 'orders'").fetchone() or ()
        stored["connector"]["order"] = "apart"
        connection.execute("UPDATE slackwater.relation SET definition = %s WHERE name = 'orders'", (json.dumps(stored),))
    before = (await client.get("/v1/streams/orders")).json()
    apart = feed(dsn, "orders")
    assert apart != feed(dsn, "shared")
    assert (await client.post("/v1/queries", json=COPIED)).status_code == 201
    same = await client.put("/v1/streams/orders", json=orders(cluster, topic, on_lost="skip"))
    assert (same.json()["version"], feed(dsn, "orders")) == (before["version"], apart)
    stops = await client.put("/v1/streams/orders", json=orders(cluster, topic))
    assert stops.status_code == 200, stops.text
    assert feed(dsn, "orders") == apart

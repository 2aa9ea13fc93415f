"""Sources on topics that change while queries read them. On librdkafka's mock."""

from __future__ import annotations

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

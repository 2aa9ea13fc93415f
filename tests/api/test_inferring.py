"""``"columns": "infer"`` over HTTP, and statements without columns: what is found is stored spelled out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import Problem
from tests.kafka.topics import Cluster, Sent, mock_cluster

RECORD = {"id": 7, "at": 1_700_000_000_000, "_meta": {"x": 1}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1").write_text(json.dumps(RECORD))
    return tmp_path


@pytest.fixture
def cluster() -> Cluster:
    return mock_cluster()


@pytest.fixture
async def client(settings: Settings, root: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings.model_copy(update={"files_root": root}))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


def of_files(root: Path, **more: Any) -> dict[str, Any]:
    connector = {"type": "files", "path": str(root / "orders"), "format": "ndjson"}
    return {"columns": "infer", "event_time": "at", "connector": connector, **more}


async def test_columns_of_files_are_stored_spelled_out(client: httpx.AsyncClient, root: Path) -> None:
    answer = await client.put("/v1/streams/orders", json=of_files(root, key=["id"]))
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body["definition"]["columns"] == body["columns"] == {"id": "bigint", "at": "bigint"}
    assert (body["key"], body["definition"]["event_time_unit"]) == (["id"], "ms")
    assert [(each["pointer"], each["code"]) for each in body["warnings"]] == [("/columns", "field_left_out")]
    assert "_meta" in body["warnings"][0]["detail"]
    (root / "orders" / "2").write_text(json.dumps({**RECORD, "item": "tea"}))
    again = (await client.put("/v1/streams/orders", json=of_files(root, key=["id"]))).json()
    assert (again["columns"], again["version"]) == ({"id": "bigint", "at": "bigint", "item": "string"}, 2)


async def test_columns_can_be_looked_at_before_anything_is_registered(client: httpx.AsyncClient, root: Path) -> None:
    answer = await client.put("/v1/streams/orders", params={"validate": True}, json=of_files(root, key=["id"]))
    assert answer.status_code == 200, answer.text
    assert answer.json()["definition"]["columns"] == {"id": "bigint", "at": "bigint"}
    assert "_meta" in answer.json()["warnings"][0]["detail"]
    assert (await client.get("/v1/streams/orders")).status_code == 404


async def test_a_broker_that_is_away_is_told_at_its_field(client: httpx.AsyncClient, problem: Problem) -> None:
    for where, pointer in (
        ({"connection": "none"}, "/connector/connection"),
        ({"bootstrap": "localhost"}, "/connector/bootstrap"),
    ):
        connector = {"type": "kafka", "topic": "clicks", "value": {"format": "json"}, **where}
        answer = await client.put("/v1/streams/clicks?validate=true", json={"columns": {"a": "int"}, "connector": connector})
        assert answer.status_code == 422, answer.text
        assert pointer in [each["pointer"] for each in answer.json()["errors"]]
    connector = {"type": "kafka", "topic": "clicks", "value": {"format": "json"}, "bootstrap": "127.0.0.1:1"}
    answer = await client.put("/v1/streams/clicks?validate=true", json={"columns": {"a": "int"}, "connector": connector})
    problem(answer, 503, "source_unavailable")


async def test_columns_of_a_topic_are_stored_spelled_out(client: httpx.AsyncClient, cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, [Sent(json.dumps({"item": "tea", "price": 1.5}).encode(), key=b"a")])
    connector = {"type": "kafka", "bootstrap": cluster.bootstrap, "topic": topic}
    sides = {"key": {"format": "kafka"}, "value": {"format": "json"}}
    body = (
        await client.put("/v1/tables/prices", json={"columns": "infer", "key": ["id"], "connector": {**connector, **sides}})
    ).json()
    assert body["columns"] == {"id": "string", "item": "string", "price": "double"}
    assert body["definition"]["columns"] == body["columns"]


async def test_what_is_wrong_beside_the_columns_is_told(client: httpx.AsyncClient, root: Path, problem: Problem) -> None:
    asked = {"columns": "infer", "key": ["id"]}
    problem(await client.put("/v1/tables/t", json=asked), 422, "columns_not_inferred", "/columns")
    problem(await client.put("/v1/streams/t", json=of_files(root, evnt_time="at")), 422, "unknown_field", "/evnt_time")
    problem(await client.put("/v1/streams/t", json=of_files(root, event_time="on")), 422, "unknown_column", "/event_time")
    problem(await client.put("/v1/tables/t", json=of_files(root)), 422, "field_missing", "/key")
    problem(await client.put("/v1/streams/t", json=of_files(root.parent)), 422, "path_not_allowed", "/connector/path")
    connector = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": {"format": "avro"}}
    broker = {"columns": "infer", "connector": connector}
    problem(await client.put("/v1/streams/t", json=broker), 422, "invalid_value", "/connector/value/registry")
    problem(await client.put("/v1/streams/t", json={**of_files(root), "columns": "guess"}), 422, "invalid_value", "/columns")
    assert (await client.get("/v1/streams")).json()["items"] == []


async def test_a_statement_without_columns_has_those_that_are_found(
    client: httpx.AsyncClient, root: Path, cluster: Cluster
) -> None:
    topic = cluster.topic()
    cluster.send(topic, [Sent(json.dumps({"item": "tea", "price": 1.5}).encode(), key=b"a")])
    of_topic = f"""WITH (KAFKA_TOPIC='{topic}', BOOTSTRAP='{cluster.bootstrap}', VALUE_FORMAT='JSON', VALUE_READER='{{"format": "json"}}')"""
    of_files = f"WITH (KAFKA_TOPIC='o', VALUE_FORMAT='JSON', FILES_PATH='{root}/orders', TIMESTAMP='`at`')"
    sql = f"CREATE TABLE prices (id STRING PRIMARY KEY) {of_topic}; CREATE STREAM orders {of_files};"
    for path in ("/v1/statements?validate=true", "/v1/statements"):
        response = await client.post(path, json={"sql": sql})
        assert response.status_code == 200, response.text
    prices, orders = response.json()["results"]
    assert prices["definition"]["columns"] == {"ID": "string", "item": "string", "price": "double"}
    assert (prices["definition"]["key"], orders["definition"]["event_time"]) == (["ID"], "at")
    assert orders["definition"]["columns"] == {"id": "bigint", "at": "bigint"}
    assert [each["code"] for each in orders["warnings"]] == ["field_left_out"]


async def test_a_statement_without_columns_over_the_log_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    sql = "CREATE STREAM s WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');"
    problem(await client.post("/v1/statements", json={"sql": sql}), 422, "columns_missing")

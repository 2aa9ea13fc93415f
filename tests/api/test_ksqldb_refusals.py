"""What the port for clients of ksqlDB refuses is logged and audited as at the main port, and no body holds the others up."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import httpx
import psycopg
import pytest
import structlog
from fastapi import FastAPI

from app.ksqldb.listener import create_listener
from app.settings.settings import Settings
from tests.api.stored_keys import store_keys

SOURCES = (
    "CREATE STREAM orders (id STRING KEY, n INT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
    "CREATE STREAM secrets (id STRING KEY, n INT) WITH (KAFKA_TOPIC='secrets', VALUE_FORMAT='JSON', PARTITIONS=1);"
)


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"auth": "on"})


@pytest.fixture
async def keys(dsn: str) -> dict[str, dict[str, str]]:
    """Headers by the name of a key: an administrator, a reader, and a writer with a scope."""
    texts = store_keys(dsn, [("boss", "admin", None), ("reader", "read", None), ("team", "write", ["orders*"])])
    return {
        name: {"Authorization": f"Basic {base64.b64encode(f'{name}:{text}'.encode()).decode()}"} for name, text in texts.items()
    }


@pytest.fixture
async def http(app: FastAPI, keys: dict[str, dict[str, str]]) -> AsyncIterator[httpx.AsyncClient]:
    listener = create_listener(app.state.services, app.state.door, app.state.refusals, None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(listener), base_url="http://localhost") as client:
        made = await client.post("/ksql", json={"ksql": SOURCES}, headers=keys["boss"])
        assert made.status_code == 200, made.text
        yield client


def noted(dsn: str) -> list[tuple[str, str, str]]:
    """Actors, actions and codes of what was refused."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT actor, action, code FROM slackwater.audit WHERE outcome = 'refused' ORDER BY id")
        return list(rows.fetchall())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ksql", json.dumps({"ksql": "DROP STREAM orders;"}).encode()),
        ("/inserts-stream", b'{"target": "ORDERS"}\n{"ID": "1", "N": 1}\n'),
    ],
)
async def test_who_has_too_low_a_role_is_in_the_audit_log(
    http: httpx.AsyncClient, keys: dict[str, dict[str, str]], dsn: str, caplog: pytest.LogCaptureFixture, path: str, body: bytes
) -> None:
    caplog.set_level("INFO")
    with structlog.testing.capture_logs() as lines:
        refused = await http.post(path, content=body, headers=keys["reader"])
    assert refused.status_code == 403
    assert noted(dsn) == [("reader", f"POST {path}", "role_too_low")]
    told = [line for line in lines if line["event"] == "request_answered"]
    assert [(line["route"], line["status"], line["api_key"]) for line in told] == [(path, 403, "reader")]
    assert refused.headers["x-request-id"]


async def test_what_is_outside_of_a_scope_is_in_the_audit_log(
    http: httpx.AsyncClient, keys: dict[str, dict[str, str]], dsn: str
) -> None:
    refused = await http.post(
        "/ksql", json={"ksql": SOURCES.replace("orders", "orders_2").replace("secrets", "beyond")}, headers=keys["team"]
    )
    assert refused.status_code == 403, refused.text
    assert noted(dsn) == [("team", "POST /ksql", "out_of_scope")]


async def test_print_shows_no_topic_outside_of_a_scope(http: httpx.AsyncClient, keys: dict[str, dict[str, str]]) -> None:
    shown = await http.post("/query", json={"ksql": "PRINT 'orders' LIMIT 0;"}, headers=keys["team"])
    assert (shown.status_code, shown.text.splitlines()[0]) == (200, "Key format: KAFKA")
    refused = await http.post("/query", json={"ksql": "PRINT 'secrets' LIMIT 0;"}, headers=keys["team"])
    assert (refused.status_code, "there is no topic secrets" in refused.text) == (400, True)


async def test_a_change_names_its_request_in_the_audit_log(
    http: httpx.AsyncClient, keys: dict[str, dict[str, str]], dsn: str
) -> None:
    await http.post("/ksql", json={"ksql": "DROP STREAM secrets;"}, headers=keys["boss"] | {"X-Request-Id": "mine"})
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT action, request_id FROM slackwater.audit ORDER BY id DESC LIMIT 1").fetchone()
    assert found == ("delete", "mine")


async def test_lines_that_are_no_records_hold_nobody_up(http: httpx.AsyncClient, keys: dict[str, dict[str, str]]) -> None:
    body = b'{"target": "ORDERS"}\n' + b"x\n" * 20_000
    inserting = asyncio.create_task(http.post("/inserts-stream", content=body, headers=keys["boss"]))
    turns = 0
    while not inserting.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20_000
    assert (await inserting).status_code == 200


@pytest.mark.parametrize("path", ["/ksql", "/query", "/query-stream", "/inserts-stream", "/close-query"])
async def test_a_body_of_megabytes_is_refused_by_a_bound(
    http: httpx.AsyncClient, keys: dict[str, dict[str, str]], path: str
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(33):
            yield b" " * 65_536

    for content in (b" " * 2_000_000, parts()):
        refused = await http.post(path, content=content, headers=keys["boss"])
        assert (refused.status_code, "SLACKWATER_MAX_CONTROL_BODY_BYTES" in refused.text) == (413, True)

"""What keys may say in SQL: by their role, and of what is outside their scope."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.settings.settings import Settings
from tests.api.stored_keys import store_keys

PATH = "/v1/statements"
SOURCES = (
    "CREATE STREAM orders (id STRING KEY, amount DOUBLE) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
    "CREATE STREAM secrets (id STRING KEY, amount DOUBLE) WITH (KAFKA_TOPIC='secrets', VALUE_FORMAT='JSON', PARTITIONS=1);"
    "CREATE TABLE orders_n AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id;"
    "CREATE TABLE secret_n AS SELECT id, COUNT(*) AS n FROM secrets GROUP BY id;"
    "CREATE STREAM orders_own AS SELECT id, amount FROM orders;"
)


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    sql = settings.sql.model_copy(update={"python_functions": True})
    return settings.model_copy(update={"auth": "on", "sql": sql})


@pytest.fixture
async def keys(app: FastAPI, dsn: str) -> dict[str, dict[str, str]]:
    """Headers of an administrator, a reader, and a writer with a scope; there are sources and results within it and outside."""
    texts = store_keys(dsn, [("boss", "admin", None), ("reader", "read", None), ("team", "write", ["orders*"])])
    found = {name: {"Authorization": f"Bearer {text}"} for name, text in texts.items()}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        assert (await http.post(PATH, json={"sql": SOURCES}, headers=found["boss"])).status_code == 200
    return found


async def said(client: httpx.AsyncClient, headers: dict[str, str], sql: str, **params: Any) -> httpx.Response:
    more = {"Accept": "application/x-ndjson"} if "EMIT" in sql and "CREATE" not in sql else {}
    return await client.post(PATH, json={"sql": sql}, headers=headers | more, params=params)


FUNCTION = "CREATE FUNCTION f(a DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$ a $$;"
CHANGES = [
    "INSERT INTO orders (id) VALUES ('1');",
    "INSERT INTO orders SELECT * FROM orders;",
    "CREATE STREAM s (id STRING KEY) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);",
    "CREATE STREAM s AS SELECT id, amount FROM orders;",
    "CREATE OR REPLACE STREAM orders_own AS SELECT id, amount FROM orders;",
    "ALTER STREAM orders ADD COLUMN z INT;",
    "DROP STREAM orders_own;",
    "TERMINATE orders_own;",
    "TERMINATE ALL;",
    "PAUSE orders_own;",
    "PAUSE ALL;",
    "RESUME orders_own;",
    "CREATE TYPE t AS STRUCT<a INT>;",
    "DROP TYPE IF EXISTS t;",
    FUNCTION,
    "DROP FUNCTION f;",
]


@pytest.mark.parametrize("validate", [False, True])
async def test_a_reader_changes_nothing(client: httpx.AsyncClient, keys: dict[str, dict[str, str]], validate: bool) -> None:
    for sql in CHANGES:
        response = await said(client, keys["reader"], sql, validate=validate)
        assert (response.status_code, response.json()["code"]) == (403, "role_too_low"), (sql, response.text)


@pytest.mark.parametrize("validate", [False, True])
async def test_only_administrators_make_functions(
    client: httpx.AsyncClient, keys: dict[str, dict[str, str]], validate: bool
) -> None:
    assert (await said(client, keys["boss"], FUNCTION)).status_code == 200
    for sql in (FUNCTION.replace(" f(", " g("), "DROP FUNCTION f;"):
        response = await said(client, keys["team"], sql, validate=validate)
        assert response.json().get("code") == "role_too_low", (sql, response.text)


NOT_THERE = ("out_of_scope", "unknown_relation", "unknown_query", "unknown_topic", "query_not_found", "assertion_failed")
OUTSIDE = [
    "SELECT * FROM secrets;",
    "SELECT * FROM secret_n WHERE id = 'x';",
    "SELECT * FROM secrets EMIT CHANGES LIMIT 0;",
    "SELECT id, COUNT(*) FROM secrets GROUP BY id EMIT CHANGES LIMIT 0;",
    "SELECT o.id FROM orders o JOIN secret_n s ON o.id = s.id EMIT CHANGES LIMIT 0;",
    "PRINT secrets;",
    "PRINT 'secrets';",
    "DESCRIBE secrets;",
    "DESCRIBE secret_n EXTENDED;",
    "EXPLAIN secret_n;",
    "EXPLAIN CREATE STREAM orders_x AS SELECT * FROM secrets;",
    "EXPLAIN WHY secret_n KEY ('x');",
    "SHOW LATE RECORDS OF secret_n;",
    "TERMINATE secret_n;",
    "PAUSE secret_n;",
    "RESUME secret_n;",
    "INSERT INTO secrets (id) VALUES ('1');",
    "INSERT INTO secrets SELECT * FROM orders;",
    "INSERT INTO orders SELECT * FROM secrets;",
    "CREATE STREAM orders_x AS SELECT * FROM secrets;",
    "CREATE STREAM secret_x AS SELECT * FROM orders;",
    "CREATE STREAM secret_y (id STRING KEY) WITH (KAFKA_TOPIC='y', VALUE_FORMAT='JSON', PARTITIONS=1);",
    "CREATE OR REPLACE TABLE secret_n AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id;",
    "DROP STREAM secrets;",
    "DROP TABLE secret_n;",
    "ALTER STREAM secrets ADD COLUMN z INT;",
    "ASSERT TOPIC secrets;",
]


@pytest.mark.parametrize("validate", [False, True])
async def test_what_is_outside_of_a_scope_is_not_there(
    client: httpx.AsyncClient, keys: dict[str, dict[str, str]], validate: bool
) -> None:
    there = []
    for sql in OUTSIDE:
        response = await said(client, keys["team"], sql, validate=validate)
        is_look = sql.startswith(("PRINT", "EXPLAIN", "SHOW", "DESCRIBE", "ASSERT", "SELECT"))
        if response.json().get("code") not in NOT_THERE and not (validate and is_look):
            there.append((sql, response.text))
    assert not there


async def test_lists_hold_what_is_within_a_scope(client: httpx.AsyncClient, keys: dict[str, dict[str, str]]) -> None:
    for what in ("SHOW STREAMS", "SHOW TABLES", "SHOW QUERIES", "SHOW TOPICS", "DESCRIBE STREAMS", "DESCRIBE TABLES"):
        text = (await said(client, keys["team"], f"{what};")).text.lower()
        assert "orders" in text, what
        assert "secret" not in text, what
        assert "secret" in (await said(client, keys["boss"], f"{what};")).text.lower(), what


async def test_all_queries_are_those_within_a_scope(client: httpx.AsyncClient, keys: dict[str, dict[str, str]]) -> None:
    assert (await said(client, keys["team"], "PAUSE ALL;")).status_code == 200
    shown = (await said(client, keys["boss"], "SHOW QUERIES;")).json()["results"][0]["rows"]
    assert {row[0]: row[3] for row in shown} == {"orders_n": "paused", "orders_own": "paused", "secret_n": "running"}

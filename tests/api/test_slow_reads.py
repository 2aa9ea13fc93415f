"""What is slow is ended: after its limit, and when its client leaves; and what is quick is answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg import sql
from pydantic import SecretStr

from app.main.main import create_app
from app.settings.limit_settings import LimitSettings, SqlSettings
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import Problem
from tests.api.live_server import live

POOL_SIZE = 2
TOTALS = {"from": {"stream": "departures"}, "group_by": ["origin"], "aggregate": {"flights": "count(*)"}}
ROWS = "/v1/tables/totals/rows"
SCAN = f"{ROWS}?where.flights.ge=1"
REJECTS = "/v1/streams/departures/rejects"
LATE = "/v1/queries/totals/late-records"
RUNS = "/v1/queries/totals/runs"
SLOW = [(SCAN, "views.totals"), (REJECTS, "log.reject"), (LATE, "log.late_record"), (RUNS, "slackwater.query_run")]


@pytest.fixture(scope="module")
def settings(settings: Settings) -> Settings:
    """Few connections, so that few slow reads use them up; statements may take long."""
    return settings.model_copy(update={"pool_size": POOL_SIZE, "limits": LimitSettings(read_timeout_ms=60_000)})


@pytest.fixture
async def totals(client: httpx.AsyncClient, dsn: str, sources: None) -> None:
    """Two result tables with one row each."""
    for name in ("totals", "others"):
        assert (await client.post("/v1/queries", json={"name": name, **TOTALS, "into": {"table": name}})).status_code == 201
        with ChangeWriter(dsn, name) as writer:
            writer.commit([("upsert", {"origin": "JFK", "flights": 1}, 1_000)])


@contextmanager
def slow(dsn: str, *tables: str) -> Iterator[None]:
    """Let every look into these tables take a minute."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in tables:
            schema, name = table.split(".")
            given = sql.Identifier(schema, name), sql.Identifier("kept"), sql.Identifier(schema, "kept")
            connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(*given[:2]))
            connection.execute(
                sql.SQL("CREATE VIEW {} AS SELECT k.* FROM (SELECT pg_sleep(60)) s LEFT JOIN {} k ON true").format(
                    given[0], given[2]
                )
            )
        try:
            yield
        finally:
            for table in tables:
                schema, name = table.split(".")
                connection.execute(sql.SQL("DROP VIEW {}").format(sql.Identifier(schema, name)))
                connection.execute(
                    sql.SQL("ALTER TABLE {} RENAME TO {}").format(sql.Identifier(schema, "kept"), sql.Identifier(name))
                )


def sleeping(dsn: str) -> int:
    """Count the statements that sleep."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
        return int((row.fetchone() or (0,))[0])


async def until_sleeping(dsn: str, count: int) -> None:
    async with asyncio.timeout(20):
        while await asyncio.to_thread(sleeping, dsn) != count:
            await asyncio.sleep(0.02)


@asynccontextmanager
async def asked(client: httpx.AsyncClient, dsn: str, path: str, count: int) -> AsyncIterator[None]:
    """Ask for something slow so often, for the length of the block; as many of them sleep as may."""
    asking = [asyncio.create_task(client.get(path)) for _ in range(count)]
    try:
        await until_sleeping(dsn, min(count, POOL_SIZE if path == SCAN else POOL_SIZE // 2))
        yield
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not all(task.done() for task in asking):
                connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
                await asyncio.sleep(0.02)


async def test_slow_scans_keep_no_read_by_key_waiting(client: httpx.AsyncClient, dsn: str, totals: None) -> None:
    with slow(dsn, "views.totals"):
        async with asked(client, dsn, SCAN, 8):
            began = time.monotonic()
            for path in ("/v1/tables/others/rows/JFK", "/v1/tables/others/rows?key.origin=JFK", "/v1/queries/totals"):
                assert (await client.get(path)).status_code == 200
            assert (await client.post("/v1/tables/others/rows:lookup", json={"keys": ["JFK"]})).status_code == 200
            assert time.monotonic() - began < 30


@pytest.mark.parametrize(("path", "table"), SLOW[1:])
async def test_slow_pages_keep_nothing_quick_waiting(
    client: httpx.AsyncClient, dsn: str, totals: None, path: str, table: str
) -> None:
    with slow(dsn, table):
        async with asked(client, dsn, path, 8):
            began = time.monotonic()
            for quick in ("/v1/queries/totals/status", "/v1/queries", "/v1/streams/departures", "/v1/tables/others/rows"):
                assert (await client.get(quick)).status_code == 200
            assert "slackwater_database_up 1.0" in (await client.get("/metrics")).text
            assert (await client.put("/v1/queries/totals/desired-state", json={"state": "paused"})).status_code == 202
            assert time.monotonic() - began < 30


@pytest.mark.parametrize(("path", "table"), SLOW)
async def test_a_statement_ends_in_the_database_when_its_client_leaves(
    app: FastAPI, dsn: str, totals: None, settings: Settings, path: str, table: str
) -> None:
    with slow(dsn, table), live(create_app(settings)) as url:
        parts = urlsplit(url)
        opened = await asyncio.to_thread(socket.create_connection, (str(parts.hostname), int(parts.port or 0)), 20)
        with closing(opened):
            opened.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await until_sleeping(dsn, 1)
        await until_sleeping(dsn, 0)


@pytest.mark.parametrize(("path", "table"), SLOW)
async def test_a_read_that_takes_too_long_is_ended_and_told_what_to_do(
    dsn: str, totals: None, settings: Settings, problem: Problem, path: str, table: str
) -> None:
    built = create_app(settings.model_copy(update={"limits": LimitSettings(read_timeout_ms=200)}))
    async with (
        built.router.lifespan_context(built),
        httpx.AsyncClient(transport=httpx.ASGITransport(built), base_url="http://localhost") as client,
    ):
        with slow(dsn, table):
            body = problem(await client.get(path), 504, "read_too_expensive")
            assert not body["retryable"]
            assert "200 ms" in body["detail"]
            assert "SLACKWATER_LIMITS__READ_TIMEOUT_MS" in body["detail"]
            if path == SCAN:
                assert [fault["pointer"] for fault in body["errors"]] == ["?where.flights.ge"]
                assert "`key.<column>=…`" in body["detail"]
            assert sleeping(dsn) == 0


@pytest.mark.parametrize("script", ["SELECT * FROM totals;", "SHOW QUERIES; SELECT * FROM totals LIMIT 1; SHOW TABLES;"])
async def test_statements_that_look_have_one_limit_together(
    dsn: str, totals: None, settings: Settings, problem: Problem, script: str
) -> None:
    built = create_app(settings.model_copy(update={"sql": SqlSettings(read_seconds=0.5)}))
    async with (
        built.router.lifespan_context(built),
        httpx.AsyncClient(transport=httpx.ASGITransport(built), base_url="http://localhost") as client,
    ):
        assert (await client.post("/v1/statements", json={"sql": script})).status_code == 200
        with slow(dsn, "views.totals"):
            began = time.monotonic()
            body = problem(await client.post("/v1/statements", json={"sql": script}), 504, "read_too_expensive")
            assert time.monotonic() - began < 20
            assert "SLACKWATER_SQL__READ_SECONDS" in body["detail"]
            assert body["errors"][0]["place"]["line"] == 1
            assert sleeping(dsn) == 0


async def test_a_read_that_waits_for_an_edit_says_busy_and_not_away(
    dsn: str, totals: None, settings: Settings, problem: Problem
) -> None:
    built = create_app(settings.model_copy(update={"limits": LimitSettings(read_timeout_ms=400)}))
    async with (
        built.router.lifespan_context(built),
        httpx.AsyncClient(transport=httpx.ASGITransport(built), base_url="http://localhost") as client,
    ):
        with psycopg.connect(dsn) as connection:
            connection.execute("LOCK TABLE views.totals IN ACCESS EXCLUSIVE MODE")
            assert problem(await client.get(f"{ROWS}/JFK"), 503, "database_busy")["retryable"]


async def test_a_database_that_has_no_connection_left_is_busy(
    dsn: str, postgres_dsn: str, totals: None, settings: Settings, problem: Problem
) -> None:
    role = "few_connections"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'x' CONNECTION LIMIT 0")
        connection.execute(f"ALTER ROLE {role} NOSUPERUSER")
        try:
            given = psycopg.conninfo.conninfo_to_dict(dsn)
            url = f"postgresql://{role}:x@/{given['dbname']}?host={given.get('host', 'localhost')}"
            if "port" in given:
                url += f"&port={given['port']}"
            built = create_app(settings.model_copy(update={"database_url": SecretStr(url)}))
            transport = httpx.ASGITransport(built)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                assert "max_connections" in problem(await client.get("/v1/queries"), 503, "database_busy")["detail"]
        finally:
            connection.execute(f"DROP ROLE {role}")

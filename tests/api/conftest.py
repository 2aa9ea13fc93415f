"""A service without a driver, spoken to over ASGI, on a database of the test module's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.errors.error_list import ERRORS
from app.main.main import create_app
from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from engine.postgres.incarnation import renew

MAX_BODY_BYTES = 64 * 1024 * 1024
STREAM: dict[str, Any] = {
    "key": ["origin"],
    "columns": {"origin": "string", "flight": "bigint", "delay": "double", "departed_at": "timestamp"},
    "event_time": "departed_at",
    "connector": {"type": "log", "partitions": 2},
}
TABLE: dict[str, Any] = {
    "key": ["origin"],
    "columns": {"origin": "string", "temp": "double", "observed_at": "timestamp"},
    "event_time": "observed_at",
    "versioned": {"history_retention": "2d"},
    "connector": {"type": "log", "partitions": 1},
}
JOIN: dict[str, Any] = {
    "name": "joined",
    "from": {"stream": "departures"},
    "joins": [{"table": "weather", "as": "w", "type": "left", "on": "departures.origin = w.origin", "grace": "1h"}],
    "select": {"origin": "departures.origin", "flight": "departures.flight", "temp": "w.temp"},
    "into": {"stream": "joined"},
}
WINDOWS: dict[str, Any] = {
    "name": "delays",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "window": {"type": "tumbling", "size": "1h", "grace": "30m"},
    "aggregate": {"flights": "count(*)", "mean_delay": "avg(delay)"},
    "suppress": {"mode": "until_window_closes"},
    "into": {"table": "delays"},
}
RECORD: dict[str, Any] = {"origin": "JFK", "flight": 725, "delay": 2.5, "departed_at": "2013-01-01T10:44:00Z"}

_MADE_TABLES = (
    "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' "
    "AND relnamespace IN ('views'::regnamespace, 'history'::regnamespace, 'open'::regnamespace)"
)
# With the rows of a feed or query go those that cascade from them. To truncate takes 25 ms: new files for 25 tables and their indices.
_DELETE_ROWS = """
    WITH _1 AS (DELETE FROM slackwater.query), _2 AS (DELETE FROM slackwater.query_read), _3 AS (DELETE FROM slackwater.relation),
        _4 AS (DELETE FROM slackwater.driver), _5 AS (DELETE FROM slackwater.idempotency), _6 AS (DELETE FROM slackwater.audit),
        _7 AS (DELETE FROM slackwater.python_function), _8 AS (DELETE FROM slackwater.sql_type), _9 AS (DELETE FROM slackwater.connection),
        _10 AS (DELETE FROM log.feed), _11 AS (DELETE FROM log.commit), _12 AS (DELETE FROM log.retained_commit),
        _13 AS (DELETE FROM log.counter), _14 AS (DELETE FROM log.late_record), _15 AS (DELETE FROM log.reject)
    SELECT
    """


@pytest.fixture(scope="module")
def settings(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    data_dir = Path(tmp_path_factory.mktemp("data"))
    limits = LimitSettings(read_timeout_ms=120_000)  # on a machine that other tests share, slow is no news
    return Settings(
        database_url=SecretStr(dsn), data_dir=data_dir, max_body_bytes=MAX_BODY_BYTES, files_root=Path("/"), limits=limits
    )


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[FastAPI]:
    built = create_app(settings)
    async with built.router.lifespan_context(built):
        yield built


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


@pytest.fixture(autouse=True)
def _clean(dsn: str) -> Iterator[None]:
    """Leave an empty database behind."""
    yield
    with psycopg.connect(dsn, autocommit=True) as connection:
        if made := [table for (table,) in connection.execute(_MADE_TABLES).fetchall()]:
            connection.execute(f"DROP TABLE {', '.join(made)}")
        connection.execute(_DELETE_ROWS)


@pytest.fixture
async def sources(client: httpx.AsyncClient) -> None:
    """The stream `departures` and the table `weather`."""
    assert (await client.put("/v1/streams/departures", json=STREAM)).status_code == 201
    assert (await client.put("/v1/tables/weather", json=TABLE)).status_code == 201


Problem = Callable[..., dict[str, Any]]


@pytest.fixture
def problem() -> Problem:
    """Check that an answer is a problem of this status and code, and return its body."""

    def check(response: httpx.Response, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        body: dict[str, Any] = response.json()
        assert body["code"] == code, body
        assert {code, *(fault["code"] for fault in body["errors"])} <= ERRORS.keys(), "every code has its page"
        assert body["type"] == f"/v1/errors/{code}"
        assert body["status"] == status
        assert body["request_id"] == response.headers["x-request-id"]
        assert body["detail"]
        if pointer is not None:
            assert pointer in [fault["pointer"] for fault in body["errors"]], body
        return body

    return check


@pytest.fixture
def put_back(dsn: str) -> Iterator[Callable[[], None]]:
    """Let the database be known as one that was put back; each call once more."""

    def call() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            renew(connection)

    yield call
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.incarnation SET id = NULL")

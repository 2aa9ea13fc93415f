"""Health, readiness, metrics, version; what happens without a database."""

from __future__ import annotations

from pathlib import Path

import httpx
import psycopg
import pytest
from alembic.script import ScriptDirectory
from fastapi import FastAPI
from pydantic import SecretStr

from app import __version__
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import RECORD, WINDOWS, Problem
from tests.conftest import ROOT


def newest_migration() -> str | None:
    return ScriptDirectory(str(ROOT / "migrations")).get_current_head()


@pytest.fixture
def without_database(tmp_path: Path) -> FastAPI:
    """A service whose database does not answer; its lifespan is not entered."""
    url = f"postgresql://nobody@/nothing?host={tmp_path}&connect_timeout=1"
    return create_app(Settings(database_url=SecretStr(url), data_dir=tmp_path))


async def test_a_live_and_ready_service_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {
        "status": "ready",
        "checks": {"database": "ok", "schema": newest_migration(), "driver": "none"},
    }
    version = (await client.get("/v1/version")).json()
    assert (version["version"], version["api"]) == (__version__, "v1")


async def test_a_service_whose_own_driver_does_not_come_up_is_ready_for_reads_only(
    app: FastAPI, client: httpx.AsyncClient, problem: Problem
) -> None:
    app.state.driver_trouble = lambda: "3 drivers in a row ended"
    body = problem(await client.get("/readyz"), 503, "driver_not_ready")
    assert "3 drivers in a row ended" in body["detail"]
    assert [fault["pointer"] for fault in body["errors"]] == ["/checks/driver"]
    for_reads = await client.get("/readyz", params={"for": "reads"})
    assert (for_reads.status_code, for_reads.json()["checks"]["driver"]) == (200, "failing")
    assert (await client.get("/readyz", params={"for": "writes"})).status_code == 400


@pytest.mark.parametrize(
    ("setting", "says"),
    [("default_transaction_read_only = on", "takes no writes"), ("temp_file_limit = '64kB'", "did not answer")],
    ids=["read only", "no room"],
)
async def test_a_service_whose_database_refuses_writes_is_ready_for_reads_only(
    app: FastAPI, client: httpx.AsyncClient, problem: Problem, dsn: str, setting: str, says: str
) -> None:
    def alter(change: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {connection.info.dbname} {change}")

    pool = app.state.services.database.reads
    alter(f"SET {setting}")
    try:
        await pool.dispose()
        body = problem(await client.get("/readyz"), 503, "not_ready")
        assert says in body["detail"]
        assert [fault["pointer"] for fault in body["errors"]] == ["/checks/database"]
        assert (await client.get("/readyz", params={"for": "reads"})).status_code == 200
    finally:
        alter(f"RESET {setting.split(' ')[0]}")
        await pool.dispose()


async def test_a_service_is_ready_for_queries_with_its_own_driver_alone(
    app: FastAPI, client: httpx.AsyncClient, problem: Problem
) -> None:
    body = problem(await client.get("/readyz", params={"for": "driver"}), 503, "driver_not_ready")
    assert "--no-driver" in body["detail"]
    app.state.has_ready_driver = lambda: True
    assert (await client.get("/readyz", params={"for": "driver"})).status_code == 200


async def test_metrics_count_requests_records_and_queries(client: httpx.AsyncClient, sources: None) -> None:
    await client.post("/v1/streams/departures/records", json=[RECORD, {}])
    await client.post("/v1/queries", json=WINDOWS)
    text = (await client.get("/metrics")).text
    assert 'slackwater_http_requests_total{method="POST",route="/v1/streams/{name}/records",status="200"} 1.0' in text
    assert 'slackwater_appended_records_total{relation="departures"} 1.0' in text
    assert 'slackwater_rejected_records_total{reason="event_time_missing",relation="departures"} 1.0' in text
    assert 'slackwater_queries{state="stopped"} 1.0' in text
    assert 'slackwater_query_state{query="delays",state="stopped"} 1.0' in text


async def test_without_its_database_the_service_lives_but_is_not_ready(without_database: FastAPI, problem: Problem) -> None:
    transport = httpx.ASGITransport(without_database, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert (await http.get("/healthz")).status_code == 200
        problem(await http.get("/readyz"), 503, "not_ready")
        response = await http.get("/v1/queries")
        assert problem(response, 503, "database_unavailable")["retryable"] is True
        assert response.headers["retry-after"] == "1"
    await without_database.state.services.database.close()


async def test_a_request_id_is_taken_over_or_made(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz", headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
    made = (await client.get("/healthz", headers={"x-request-id": "a b\tc"})).headers["x-request-id"]
    assert len(made) == 36


def test_an_application_needs_a_database_url(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="database_url"):
        create_app(Settings(data_dir=tmp_path))

"""What the service runs with: drivers with their queries and slots, and the settings in force."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from app.main.main import create_app
from app.settings.effective_settings import in_force
from app.settings.settings import Settings
from tests.api.conftest import JOIN, WINDOWS

DRIVER = "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11"
SILENT = "0193f1d2-7c1e-7000-8000-3f0c7c9d2b12"
CARRIED = {"is_shared": True, "moves": 1, "cpu_share": 0.02, "largest_batch": 400, "shares": {}}


def beat(dsn: str, driver: str, age: str, detail: dict[str, Any]) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO slackwater.driver (id, host, pid, create_time, started_at, heartbeat_at, phase, detail) "
            "VALUES (%s, 'worker-1', 42, 1.5, now() - interval '1 hour', now() - %s::interval, 'ready', %s)",
            (driver, age, Jsonb(detail)),
        )


async def test_drivers_are_listed_with_their_queries_and_what_waits(client: httpx.AsyncClient, sources: None, dsn: str) -> None:
    for definition in (JOIN, WINDOWS):
        assert (await client.post("/v1/queries", json=definition)).status_code == 201
    beat(dsn, DRIVER, "1 second", {"max_queries": 100})
    beat(dsn, SILENT, "1 hour", {"max_queries": 7})
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.query_status s SET lease_owner = %s, lease_expires_at = now() + interval '10 seconds', state = 'running' "
            "FROM slackwater.query q WHERE q.id = s.query_id AND q.name = 'delays'",
            (DRIVER,),
        )
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "SELECT id, checkpoint_id, 3, 0, now(), '{}', 7000, %s FROM slackwater.query WHERE name = 'delays'",
            (Jsonb({"execution": CARRIED}),),
        )
    answer = (await client.get("/v1/drivers")).json()
    alive, silent = sorted(answer["drivers"], key=lambda each: each["id"])
    assert (alive["host"], alive["pid"], alive["phase"], alive["silent"], alive["max_queries"]) == (
        "worker-1",
        42,
        "ready",
        False,
        100,
    )
    (query,) = alive["queries"]
    assert (query["name"], query["state"], query["internal"]) == ("delays", "running", False)
    assert query["committed_at"] is not None
    told = {
        "mode": "shared",
        "is_waiting": False,
        "moves": 1,
        "cpu_share": 0.02,
        "largest_batch": 400,
        "max_rows": None,
        "deferred": 0,
    }
    assert query["execution"] == told
    assert (silent["silent"], silent["max_queries"], silent["queries"]) == (True, 7, [])
    assert answer["waiting"] == ["joined"]


async def test_a_held_query_that_has_not_committed_has_no_slot(client: httpx.AsyncClient, sources: None, dsn: str) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    beat(dsn, DRIVER, "1 second", {"max_queries": 100})
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE slackwater.query_status SET lease_owner = %s", (DRIVER,))
    ((query,),) = [each["queries"] for each in (await client.get("/v1/drivers")).json()["drivers"]]
    assert (query["execution"], query["committed_at"]) == (None, None)


async def test_settings_say_their_values_and_where_they_come_from(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_DRIVER__MAX_QUERIES", "7")
    told = settings.model_copy(update={"driver": Settings().driver, "api_key": SecretStr("sw_quiet"), "port": 9_000})
    app = create_app(told)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        answer = await http.get("/v1/settings")
    await app.state.services.database.close()
    found = {each["name"]: each for each in answer.json()["settings"]}
    assert found["driver.max_queries"] == {
        "name": "driver.max_queries", "variable": "SLACKWATER_DRIVER__MAX_QUERIES", "value": "7", "origin": "environment",
    }  # fmt: skip
    assert (found["port"]["value"], found["port"]["origin"]) == ("9000", "command line")
    assert (found["pool_size"]["origin"], found["database_url"]["value"]) == ("default", "")
    assert "sw_quiet" not in answer.text


def test_a_database_that_the_environment_names_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", "postgresql://somebody:of-the-shop@db/slackwater")
    shown = {each.name: each for each in in_force(Settings())}
    assert (shown["database_url"].value, shown["database_url"].origin) == ("**********", "environment")

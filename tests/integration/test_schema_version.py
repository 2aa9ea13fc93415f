"""A version works only on a schema that it knows: service and drivers wait on another one, and say why."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import psycopg
import pytest
from pydantic import SecretStr
from slackwater.cli.options.failing import CommandFailed

from app.cli.opening import make_current
from app.db.database import migrate
from app.db.schema_version import SchemaVersionUnknown, look_at_schema, refuse_unknown
from app.driver.process import EXIT_SCHEMA
from app.driver.supervisor.supervisor import Supervisor
from app.main.main import create_app
from app.settings.settings import Settings
from tests.integration.driver_tools import STUB, Control, driver, fast_settings, until


@pytest.fixture
def newest(empty: str) -> str:
    migrate(empty)
    return empty


def revision_of(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        return str(look_at_schema(connection).found)


def set_revision(dsn: str, revision: str) -> None:
    """Do as another version does that migrates the schema."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE slackwater.alembic_version SET version_num = %s", (revision,))


async def readiness(dsn: str, data_dir: Path) -> httpx.Response:
    app = create_app(Settings(database_url=SecretStr(dsn), data_dir=data_dir))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        response = await http.get("/readyz")
    await app.state.services.database.close()
    return response


async def test_a_version_refuses_a_schema_that_it_does_not_know(newest: str, tmp_path: Path) -> None:
    set_revision(newest, "0002_later")
    detail = "0002_later.*another version.*Run that version"
    with pytest.raises(SchemaVersionUnknown, match=detail):
        migrate(newest)
    with psycopg.connect(newest) as connection, pytest.raises(SchemaVersionUnknown, match=detail):
        refuse_unknown(connection)
    with pytest.raises(CommandFailed, match=detail):
        make_current(newest)
    refused = await readiness(newest, tmp_path)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (503, "/checks/schema")
    assert re.search(detail, refused.json()["detail"])


def test_a_database_of_before_is_refused_with_the_way_to_go_on(newest: str) -> None:
    set_revision(newest, "0001_initial")
    with pytest.raises(
        SchemaVersionUnknown, match=r"0001_initial,.*run `slackwater export` there and start this one on an empty database"
    ):
        migrate(newest)


async def test_a_supervisor_waits_for_a_schema_that_its_drivers_know(newest: str, tmp_path: Path) -> None:
    current = revision_of(newest)
    set_revision(newest, "0002_later")
    control = Control(newest)
    async with Supervisor(fast_settings(tmp_path), newest, STUB) as supervisor:
        trouble = await asyncio.to_thread(until, "the supervisor says why", supervisor.trouble)
        assert "0002_later" in str(trouble)
        assert control.drivers() == []
        set_revision(newest, current)
        await asyncio.to_thread(until, "a driver is ready", control.drivers)
        assert supervisor.trouble() is None
    assert not (tmp_path / "driver.log").read_text().count("driver_crashed")
    control.close()


def test_a_driver_alone_waits_until_the_schema_is_there(empty: str, tmp_path: Path) -> None:
    with driver(empty, fast_settings(tmp_path)) as waiting:
        until("it says so", lambda: b"slackwater migrate" in waiting.log.read_bytes())
        migrate(empty)
        control = Control(empty)
        query = control.add()
        control.reaches(query, "running")
        assert waiting.process.poll() is None
        control.close()


def test_a_driver_gives_its_queries_back_when_the_schema_becomes_one_that_it_does_not_know(newest: str, tmp_path: Path) -> None:
    control = Control(newest)
    query = control.add()
    with driver(newest, fast_settings(tmp_path)) as old:
        control.reaches(query, "running")
        set_revision(newest, "0002_later")
        assert old.process.wait(30) == EXIT_SCHEMA
        assert b"schema_unknown" in old.log.read_bytes()
    assert control.status(query)["lease_owner"] is None
    assert control.drivers() == []
    control.close()

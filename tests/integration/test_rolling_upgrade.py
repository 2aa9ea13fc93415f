"""Two versions on one database: a version works on the schema of the next one that only adds, and waits on any other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from pydantic import SecretStr

from app.catalog.queries.edits import create_query
from app.catalog.relations.edits import put_source
from app.db.database import engine_for, migrate
from app.db.schema_version import SchemaTooNew, look_at_schema, refuse_newer
from app.driver.process import EXIT_SCHEMA
from app.driver.supervisor.supervisor import Supervisor
from app.http.requests.preconditions import Preconditions
from app.main.main import create_app
from app.settings.settings import Settings
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from tests.conftest import ROOT
from tests.conftest import migrate as migrate_to
from tests.integration.driver_tools import STUB, Control, driver, fast_settings, until
from tests.integration.schema_shape import shape_of, taken_away

LAST_THAT_SAYS_NOTHING = "0011"


@pytest.fixture
def newest(empty: str) -> str:
    migrate(empty)
    return empty


def upgrade(dsn: str, oldest_code: str | None = None) -> None:
    """Do as the next version does: add a column, and say whose code goes on working (None: that of today's version)."""
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE slackwater.query ADD of_the_next_version text")
        connection.execute(
            "UPDATE slackwater.schema_support SET oldest_code = %s", (oldest_code or look_at_schema(connection).needed,)
        )
        connection.execute("UPDATE slackwater.alembic_version SET version_num = '9999'")


def support(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        needed = look_at_schema(connection).needed
        connection.execute("UPDATE slackwater.schema_support SET oldest_code = %s", (needed,))


async def readiness(dsn: str, data_dir: Path) -> httpx.Response:
    app = create_app(Settings(database_url=SecretStr(dsn), data_dir=data_dir))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        response = await http.get("/readyz")
    await app.state.services.database.close()
    return response


async def test_a_version_starts_and_works_on_the_next_schema_that_only_adds(newest: str, tmp_path: Path) -> None:
    upgrade(newest)
    migrate(newest)
    with psycopg.connect(newest) as connection:
        assert connection.execute("SELECT version_num FROM slackwater.alembic_version").fetchone() == ("9999",)
    ready = await readiness(newest, tmp_path)
    assert (ready.status_code, ready.json()["checks"]["schema"]) == (200, "9999")
    control = Control(newest)
    query = control.add()
    with driver(newest, fast_settings(tmp_path)) as old:
        control.reaches(query, "running")
        assert old.terminate() == 0
    control.close()


async def test_a_version_says_that_it_cannot_work_on_a_schema_of_a_later_one(newest: str, tmp_path: Path) -> None:
    upgrade(newest, "9998")
    with pytest.raises(SchemaTooNew, match="9999"):
        migrate(newest)
    with psycopg.connect(newest) as connection, pytest.raises(SchemaTooNew, match="Run that version"):
        refuse_newer(connection)
    refused = await readiness(newest, tmp_path)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (503, "/checks/schema")
    assert "9999" in refused.json()["detail"]


async def test_a_supervisor_waits_for_a_schema_that_its_drivers_know(newest: str, tmp_path: Path) -> None:
    upgrade(newest, "9998")
    control = Control(newest)
    async with Supervisor(fast_settings(tmp_path), newest, STUB) as supervisor:
        trouble = await asyncio.to_thread(until, "the supervisor says why", supervisor.trouble)
        assert "9999" in str(trouble)
        assert control.drivers() == []
        support(newest)
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
        upgrade(newest, "9998")
        assert old.process.wait(30) == EXIT_SCHEMA
        assert b"schema_too_new" in old.log.read_bytes()
    assert control.status(query)["lease_owner"] is None
    assert control.drivers() == []
    control.close()


def test_migrations_that_say_that_older_code_goes_on_only_add(empty: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    scripts = {script.revision: script for script in ScriptDirectory.from_config(config).walk_revisions()}
    shapes = {}
    for revision in sorted(each for each in scripts if each >= LAST_THAT_SAYS_NOTHING):
        migrate_to(empty, revision)
        with psycopg.connect(empty) as connection:
            shapes[revision] = shape_of(connection)
            if revision == LAST_THAT_SAYS_NOTHING:
                continue
            (supported,) = connection.execute("SELECT oldest_code FROM slackwater.schema_support").fetchone() or ("",)
        oldest = getattr(scripts[revision].module, "oldest_code", revision)
        assert oldest <= supported <= revision
        assert taken_away(shapes[oldest], shapes[revision]) == [], f"{revision} says that code of {oldest} goes on"
    assert len(shapes) > 1


def test_what_users_store_stops_older_code_for_good(empty: str) -> None:
    migrate_to(empty)
    engine = engine_for(empty, poolclass=sa.NullPool)
    for name in ("orders", "web"):
        with engine.begin() as connection:
            put_source(connection, "stream", name, StreamDefinition.model_validate({"columns": {"n": "int"}}), Preconditions())
    assert needed_by_use(empty) is None, "a stream is what older code knows"
    into = {"stream": "web_orders", "append_to": "orders"}
    with engine.begin() as connection:
        create_query(connection, QueryDefinition.model_validate({"name": "web_orders", "from": {"stream": "web"}, "into": into}))
    engine.dispose()
    assert needed_by_use(empty) == "0021"
    migrate_to(empty)
    assert needed_by_use(empty) == "0021", "a migration does not forget it"
    assert supported(empty) >= "0021"


def test_a_source_that_a_statement_made_read_only_is_so_by_its_definition(empty: str) -> None:
    migrate_to(empty, "0020")
    columns = '{"key": [], "columns": {"z": "int", "a": "int"}}'
    with psycopg.connect(empty) as connection:
        connection.execute(
            "INSERT INTO slackwater.relation (id, name, kind, origin, definition, sql) VALUES (gen_random_uuid(), 's', 'stream', 'source', %s, "
            """'{"topic": {}, "is_read_only": true}')""",
            (columns,),
        )
    migrate_to(empty)
    with psycopg.connect(empty) as connection:
        found = connection.execute("SELECT definition, sql FROM slackwater.relation").fetchone()
    assert found == ({"key": [], "columns": {"z": "int", "a": "int"}, "read_only": True}, {"topic": {}})
    assert list(found[0]["columns"]) == ["z", "a"]
    assert supported(empty) == "0023"


def needed_by_use(dsn: str) -> str | None:
    with psycopg.connect(dsn) as connection:
        (needed,) = connection.execute("SELECT needed_by_use FROM slackwater.schema_support").fetchone() or (None,)
        return needed


def supported(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        (oldest,) = connection.execute("SELECT oldest_code FROM slackwater.schema_support").fetchone() or ("",)
        return str(oldest)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE slackwater.query DROP desired_state",
        "ALTER TABLE slackwater.query RENAME name TO title",
        "ALTER TABLE slackwater.query ALTER name TYPE varchar(20)",
        "ALTER TABLE slackwater.query ALTER deleted_at SET NOT NULL",
        "ALTER TABLE slackwater.query ALTER version DROP DEFAULT",
        "ALTER TABLE slackwater.query ADD owner text NOT NULL",
        "ALTER TABLE slackwater.query ADD CHECK (version > 0)",
        "CREATE UNIQUE INDEX ON slackwater.driver (host)",
        "DROP TABLE slackwater.query_event",
        "DROP TRIGGER ring_wish ON slackwater.query",
    ],
)
def test_what_older_code_would_miss_is_found(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as connection:
        before = shape_of(connection)
        connection.execute("DELETE FROM slackwater.query")
        connection.execute(statement)
        assert taken_away(before, shape_of(connection)) != []
        connection.rollback()


def test_what_only_adds_is_let_through(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        before = shape_of(connection)
        connection.execute("ALTER TABLE slackwater.query ADD owner text, ADD priority int NOT NULL DEFAULT 0")
        connection.execute("CREATE INDEX ON slackwater.query (version)")
        assert taken_away(before, shape_of(connection)) == []
        connection.rollback()

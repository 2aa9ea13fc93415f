"""Alembic's entry: runs migrations on the caller's connection, on the database of its DSN, or on ``-x url=…``.

Migrations write plain names of schemas, and connections of ours translate them (``engine.postgres.schemas``).
"""

from __future__ import annotations

from typing import Any, cast

import psycopg
import sqlalchemy as sa
from alembic import context

from engine.postgres.links import LinkedConnection
from engine.postgres.schemas import Schemas, schemas_of

MOVE_VERSION_TABLE = """
DO $$
DECLARE home text;
BEGIN
    IF to_regclass('slackwater.alembic_version') IS NULL AND to_regclass('slackwater.relation') IS NOT NULL THEN
        SELECT n.nspname INTO home FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid = to_regclass('alembic_version') AND c.relkind = 'r';
        IF home IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %I.alembic_version SET SCHEMA slackwater', home);
            EXECUTE format('CREATE VIEW %I.alembic_version AS SELECT version_num FROM slackwater.alembic_version', home);
        END IF;
    END IF;
END $$
"""
"""Takes the table with the revision out of the schema that users' own tables are in.

It was the first one of the search path, where another program's Alembic keeps its own. Code of before this move goes on reading it
there: a view stands in its place, which a migration of the next release drops. A database that is new has no such view, and an
installation with a prefix is newer than the move.
"""
LOCK_TIMEOUT = "5s"
"""A migration that waits for a lock makes everybody behind it wait too; failing and trying again is kinder."""


def _migrate(connection: sa.Connection) -> None:
    schemas = schemas_of(cast("psycopg.Connection[Any]", connection.connection.driver_connection))
    context.configure(
        connection=connection,
        target_metadata=None,
        transactional_ddl=True,
        version_table_schema=schemas.named("slackwater"),  # Alembic asks the catalog for it
    )
    with context.begin_transaction():
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.execute(sa.text("CREATE SCHEMA IF NOT EXISTS slackwater"))
        if not schemas.prefix:
            connection.execute(sa.text(MOVE_VERSION_TABLE))
        context.run_migrations()
        _note_support(connection)


def _note_support(connection: sa.Connection) -> None:
    """Write down which code may work on the schema: the newest of what the applied migrations say in ``oldest_code``.

    One that says nothing supports no older code; nor does one that does not know what users have stored (``app.catalog.stored.older_code``).
    """
    if not connection.execute(sa.text("SELECT to_regclass('slackwater.schema_support') IS NOT NULL")).scalar():
        return
    (head,) = context.get_context().get_current_heads()
    applied = context.script.walk_revisions("base", head)
    oldest = max(str(getattr(script.module, "oldest_code", script.revision)) for script in applied)
    # As JSON, for a schema from before 0021 does not have the column.
    used = connection.execute(sa.text("SELECT to_jsonb(s) ->> 'needed_by_use' FROM slackwater.schema_support s")).scalar()
    oldest = max(oldest, str(used or ""))
    connection.execute(
        sa.text(
            "INSERT INTO slackwater.schema_support (oldest_code) VALUES (:oldest) ON CONFLICT (id) DO UPDATE SET oldest_code = :oldest"
        ),
        {"oldest": oldest},
    )


def _dsn() -> str:
    asked = context.get_x_argument(as_dictionary=True)
    given = context.config.attributes.get("dsn") or asked.get("url")
    if not given:
        raise SystemExit(
            "migrations need a database: alembic -x url=postgresql://… [-x schema_prefix=…] upgrade head, or: slackwater migrate"
        )
    return Schemas(asked.get("schema_prefix", "")).carried_by(given)


def run() -> None:
    """Run what the command asks for. Offline mode (SQL text) is not supported: there is one database, and it is reachable."""
    if context.is_offline_mode():
        raise SystemExit("offline migrations are not supported; pass -x url=…")
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    dsn = _dsn()
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: LinkedConnection.connect(dsn), poolclass=sa.NullPool)
    with engine.connect() as own:
        _migrate(own)
    engine.dispose()


run()

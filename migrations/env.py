"""Alembic's entry: runs migrations on the caller's connection, on ``-x url=…``, or on ``sqlalchemy.url``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

VERSION_SCHEMA = "slackwater"
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
LOCK_TIMEOUT = "5s"
"""A migration that waits for a lock makes everybody behind it wait too; failing and trying again is kinder."""


def _migrate(connection: sa.Connection) -> None:
    context.configure(connection=connection, target_metadata=None, transactional_ddl=True, version_table_schema=VERSION_SCHEMA)
    with context.begin_transaction():
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
        _own_version_table(connection)
        context.run_migrations()
        _note_support(connection)


def _own_version_table(connection: sa.Connection) -> None:
    """Take the table with the revision out of the schema that users' own tables are in.

    It was the first one of the search path, where another program's Alembic keeps its own. Code of before this move goes on reading it
    there: a view stands in its place, which a migration of the next release drops. A database that is new has no such view.
    """
    connection.execute(sa.text("CREATE SCHEMA IF NOT EXISTS slackwater"))
    connection.execute(sa.text(MOVE_VERSION_TABLE))


def _note_support(connection: sa.Connection) -> None:
    """Write down which code may work on the schema: the newest of what the applied migrations say in ``oldest_code``.

    One that says nothing supports no older code.
    """
    if not connection.execute(sa.text("SELECT to_regclass('slackwater.schema_support') IS NOT NULL")).scalar():
        return
    (head,) = context.get_context().get_current_heads()
    applied = context.script.walk_revisions("base", head)
    oldest = max(str(getattr(script.module, "oldest_code", script.revision)) for script in applied)
    connection.execute(
        sa.text(
            "INSERT INTO slackwater.schema_support (oldest_code) VALUES (:oldest) ON CONFLICT (id) DO UPDATE SET oldest_code = :oldest"
        ),
        {"oldest": oldest},
    )


def _url() -> sa.URL:
    given = context.get_x_argument(as_dictionary=True).get("url") or context.config.get_main_option("sqlalchemy.url")
    if not given:
        raise SystemExit("migrations need a database: alembic -x url=postgresql://… upgrade head, or: slackwater migrate")
    url = sa.make_url(given)
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def run() -> None:
    """Run what the command asks for. Offline mode (SQL text) is not supported: there is one database, and it is reachable."""
    if context.is_offline_mode():
        raise SystemExit("offline migrations are not supported; pass -x url=…")
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    engine = sa.create_engine(_url(), poolclass=sa.NullPool)
    with engine.connect() as own:
        _migrate(own)
    engine.dispose()


run()

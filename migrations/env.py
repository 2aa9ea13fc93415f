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
        context.run_migrations()


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

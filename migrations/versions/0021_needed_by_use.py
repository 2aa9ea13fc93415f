"""Keep which code knows what users have stored, so that an older version stops only where they use what it would silently pass over.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
oldest_code = "0012"


def upgrade() -> None:
    """Add the column, and say so of what is stored already; what is read only becomes a part of the definition."""
    # Beside `oldest_code`, which each migration writes anew (`migrations/env.py`); null: nothing of the kind is stored.
    op.execute("ALTER TABLE slackwater.schema_support ADD needed_by_use text")
    # Who follows a stream looks for its parts each time.
    op.execute(
        "CREATE INDEX relation_part ON slackwater.relation ((definition ->> 'append_to')) "
        "WHERE origin = 'derived' AND definition ->> 'append_to' IS NOT NULL"
    )
    _write("sql ->> 'is_read_only' = 'true'", lambda definition: {**definition, "read_only": True})
    op.execute("UPDATE slackwater.relation SET sql = sql - 'is_read_only' WHERE sql ? 'is_read_only'")
    op.execute(
        """
        UPDATE slackwater.schema_support SET needed_by_use = '0021' WHERE EXISTS (
            SELECT FROM slackwater.relation WHERE definition ->> 'append_to' IS NOT NULL OR definition ->> 'read_only' = 'true'
        )
        """
    )


def downgrade() -> None:
    """Take it away; what is read only is said where it was."""
    read_only = "origin = 'source' AND definition ->> 'read_only' = 'true'"
    op.execute(f"UPDATE slackwater.relation SET sql = sql || '{{\"is_read_only\": true}}' WHERE {read_only}")  # noqa: S608 - a constant
    _write(read_only, lambda definition: {name: value for name, value in definition.items() if name != "read_only"})
    op.execute("DROP INDEX slackwater.relation_part")
    op.execute("ALTER TABLE slackwater.schema_support DROP needed_by_use")


def _write(condition: str, change: Any) -> None:
    """Change definitions. Here and not in the database, for the order of columns is kept."""
    connection = op.get_bind()
    rows = connection.execute(sa.text(f"SELECT id, definition FROM slackwater.relation WHERE {condition}"))  # noqa: S608 - a constant
    for row in rows.all():
        values = {"id": row.id, "definition": json.dumps(change(row.definition))}
        connection.execute(
            sa.text("UPDATE slackwater.relation SET definition = CAST(:definition AS json) WHERE id = :id"), values
        )

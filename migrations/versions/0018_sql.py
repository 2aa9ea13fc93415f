"""Keep what statements of SQL say beside definitions: how a relation's topic is written, the text of a query, named types.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
oldest_code = "0012"


def upgrade() -> None:
    """Add two columns and a table; code that does not know them goes on without."""
    op.execute("ALTER TABLE slackwater.relation ADD COLUMN sql jsonb")
    op.execute("ALTER TABLE slackwater.query ADD COLUMN statement text")
    op.execute(
        """
        CREATE TABLE slackwater.sql_type (
            name text PRIMARY KEY,
            type text NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )


def downgrade() -> None:
    """Take them away."""
    op.execute("DROP TABLE slackwater.sql_type")
    op.execute("ALTER TABLE slackwater.query DROP COLUMN statement")
    op.execute("ALTER TABLE slackwater.relation DROP COLUMN sql")

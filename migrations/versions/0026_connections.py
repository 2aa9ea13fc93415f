"""Keep connections to brokers, registries, object stores and databases, their secrets encrypted.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the table."""
    op.execute(
        """
        CREATE TABLE slackwater.connection (
            name text PRIMARY KEY,
            type text NOT NULL,
            definition jsonb NOT NULL,
            secrets jsonb NOT NULL,
            version integer NOT NULL DEFAULT 1,
            created_at timestamptz NOT NULL DEFAULT now(),
            updated_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )


def downgrade() -> None:
    """Take it away."""
    op.execute("DROP TABLE slackwater.connection")

"""Keep deliveries of results: who brings them out, how far, and what is in the way.

Revision ID: 0028
Revises: 0026
"""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0026"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the table."""
    op.execute(
        """
        CREATE TABLE slackwater.delivery (
            id uuid PRIMARY KEY,
            query_id uuid NOT NULL UNIQUE REFERENCES slackwater.query (id) ON DELETE CASCADE,
            feed text NOT NULL,
            definition jsonb NOT NULL,
            position bigint NOT NULL,
            planned bigint NOT NULL,
            state text NOT NULL DEFAULT 'delivering',
            failure jsonb,
            attempt integer NOT NULL DEFAULT 0,
            next_attempt_at timestamptz,
            delivered_rows bigint NOT NULL DEFAULT 0,
            delivered_at timestamptz,
            epoch bigint NOT NULL DEFAULT 0,
            lease_owner uuid,
            lease_expires_at timestamptz,
            created_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )


def downgrade() -> None:
    """Take it away."""
    op.execute("DROP TABLE slackwater.delivery")

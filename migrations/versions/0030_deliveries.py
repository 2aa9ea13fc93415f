"""Deliver results elsewhere: how far each delivery has come, who is at it, and what is in its way.

Revision ID: 0030
Revises: 0029
"""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the table."""
    op.execute(
        """
        CREATE TABLE slackwater.delivery (
            query_id uuid PRIMARY KEY REFERENCES slackwater.query ON DELETE CASCADE,
            id uuid NOT NULL UNIQUE,
            definition jsonb NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            position bigint NOT NULL,
            planned bigint NOT NULL,
            planned_at timestamptz,
            is_known boolean NOT NULL DEFAULT false,
            event_time_ms bigint,
            delivered_at timestamptz,
            delivered_rows bigint NOT NULL DEFAULT 0,
            failures bigint NOT NULL DEFAULT 0,
            attempt integer NOT NULL DEFAULT 0,
            next_attempt_at timestamptz,
            error jsonb,
            is_stopped boolean NOT NULL DEFAULT false,
            state_since timestamptz NOT NULL DEFAULT now(),
            lease_owner uuid,
            lease_expires_at timestamptz,
            epoch bigint NOT NULL DEFAULT 0,
            CHECK (position <= planned)
        )
        """
    )


def downgrade() -> None:
    """Take it away; results stay in the log."""
    op.execute("DROP TABLE slackwater.delivery")

"""Note where the state of a query is, how often its driver was lost, and which incarnation of the log this is.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
oldest_code = "0012"

UP = (
    """
    ALTER TABLE slackwater.query_status
        ADD losses smallint NOT NULL DEFAULT 0, ADD state_root uuid, ADD state_checkpoint_id uuid
    """,
    """
    CREATE TABLE log.incarnation (
        is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
        id uuid,
        fingerprint text,
        began_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "INSERT INTO log.incarnation DEFAULT VALUES",
)
DOWN = (
    "DROP TABLE log.incarnation",
    "ALTER TABLE slackwater.query_status DROP losses, DROP state_root, DROP state_checkpoint_id",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

"""Keep API keys: of each only what tells that a presented one is it.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE TABLE slackwater.api_key (
        id uuid PRIMARY KEY,
        name text NOT NULL,
        prefix text NOT NULL,
        digest bytea NOT NULL UNIQUE,
        role text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
        created_at timestamptz NOT NULL DEFAULT now(),
        last_used_at timestamptz,
        expires_at timestamptz,
        revoked_at timestamptz
    )
    """,
    # A revoked key stays, for who looks up what it did; its name is free.
    "CREATE UNIQUE INDEX api_key_name ON slackwater.api_key (name) WHERE revoked_at IS NULL",
)
DOWN = ("DROP TABLE slackwater.api_key",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

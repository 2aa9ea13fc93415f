"""Keep answers by idempotency key, results without their query, and requests to release what waits at once.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UP = (
    # The body is json, not jsonb: a repeat gets the first answer with its columns in their order.
    """
    CREATE TABLE slackwater.idempotency (
        principal text NOT NULL,
        key text NOT NULL,
        request_digest bytea NOT NULL,
        status integer,
        body json,
        headers json,
        expires_at timestamptz NOT NULL,
        PRIMARY KEY (principal, key)
    )
    """,
    "CREATE INDEX idempotency_expires_at ON slackwater.idempotency (expires_at)",
    "ALTER TABLE slackwater.relation ADD COLUMN kept json",
    "ALTER TABLE slackwater.relation DROP CONSTRAINT relation_check",
    """
    ALTER TABLE slackwater.relation ADD CONSTRAINT relation_check
    CHECK (CASE origin WHEN 'source' THEN produced_by IS NULL AND kept IS NULL ELSE (produced_by IS NULL) <> (kept IS NULL) END)
    """,
    "ALTER TABLE slackwater.query ADD COLUMN release_nonce integer NOT NULL DEFAULT 0",
)
DOWN = (
    "DELETE FROM slackwater.query_read WHERE relation_id IN (SELECT id FROM slackwater.relation WHERE kept IS NOT NULL)",
    "DELETE FROM slackwater.relation WHERE kept IS NOT NULL",
    "ALTER TABLE slackwater.query DROP COLUMN release_nonce",
    "ALTER TABLE slackwater.relation DROP CONSTRAINT relation_check",
    "ALTER TABLE slackwater.relation DROP COLUMN kept",
    """
    ALTER TABLE slackwater.relation ADD CONSTRAINT relation_check
    CHECK ((origin = 'derived') = (produced_by IS NOT NULL))
    """,
    "DROP TABLE slackwater.idempotency",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

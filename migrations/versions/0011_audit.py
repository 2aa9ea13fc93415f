"""Keep what was changed, by whom, from what to what.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Bodies are json, not jsonb: the order of columns is part of what the user said.
UP = (
    """
    CREATE TABLE slackwater.audit (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT now(),
        actor_kind text NOT NULL,
        actor text NOT NULL,
        actor_id text,
        request_id text,
        action text NOT NULL,
        resource_kind text,
        resource text,
        outcome text NOT NULL CHECK (outcome IN ('done', 'refused')),
        code text,
        repeats integer NOT NULL DEFAULT 0,
        before json,
        after json
    )
    """,
    "CREATE INDEX audit_at ON slackwater.audit (at)",
    "CREATE INDEX audit_resource ON slackwater.audit (resource, id)",
    "CREATE INDEX audit_actor ON slackwater.audit (actor, id)",
    "CREATE INDEX audit_refused ON slackwater.audit (id) WHERE outcome = 'refused'",
)
DOWN = ("DROP TABLE slackwater.audit",)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

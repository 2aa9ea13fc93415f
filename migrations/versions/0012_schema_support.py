"""Keep which code may work on the schema, so that a version one step older goes on while a service is upgraded.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
oldest_code = "0011"


def upgrade() -> None:
    # One row, which migrations/env.py writes after each migration.
    op.execute(
        """
        CREATE TABLE slackwater.schema_support (
            id boolean PRIMARY KEY DEFAULT true CHECK (id),
            oldest_code text NOT NULL
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE slackwater.schema_support")

"""Keep functions in Python that administrators register.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
oldest_code = "0012"


def upgrade() -> None:
    """Add the table."""
    op.execute(
        """
        CREATE TABLE slackwater.python_function (
            name text PRIMARY KEY,
            definition jsonb NOT NULL,
            created_by text NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )


def downgrade() -> None:
    """Take it away."""
    op.execute("DROP TABLE slackwater.python_function")

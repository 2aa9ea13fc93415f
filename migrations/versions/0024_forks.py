"""Keep of which query, as of which commit, a query is a fork.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE slackwater.query ADD fork_of jsonb")


def downgrade() -> None:
    """Take it away; forks go on as queries like any other."""
    op.execute("ALTER TABLE slackwater.query DROP fork_of")

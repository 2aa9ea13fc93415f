"""Note who reads the queries that live as long as their readers (SELECT ... EMIT).

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
oldest_code = "0012"


def upgrade() -> None:
    """Add the table."""
    op.execute(
        """
        CREATE TABLE slackwater.transient_reader (
            id uuid PRIMARY KEY,
            query text NOT NULL,
            expires_at timestamptz NOT NULL
        )
        """
    )
    op.execute("CREATE INDEX transient_reader_query ON slackwater.transient_reader (query)")


def downgrade() -> None:
    """Take it away."""
    op.execute("DROP TABLE slackwater.transient_reader")

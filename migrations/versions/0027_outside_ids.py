"""Know which topic a feed reads: one that was deleted and made again has the same name and another id.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE log.feed ADD COLUMN outside_id text")


def downgrade() -> None:
    """Take it away."""
    op.execute("ALTER TABLE log.feed DROP COLUMN outside_id")

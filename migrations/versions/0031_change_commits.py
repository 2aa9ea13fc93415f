"""Remember when the newest change of each key was committed, for the log's order is not always that of commits; and what rows came.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the columns. Of changes before this revision nobody knows the commit: one of them that comes again counts once more."""
    op.execute("ALTER TABLE log.change_position ADD COLUMN committed_us bigint")
    op.execute("""
        ALTER TABLE log.change_source ADD COLUMN floor_us bigint, ADD COLUMN columns text[] NOT NULL DEFAULT '{}', ADD COLUMN source_table text
        """)


def downgrade() -> None:
    """Take them away."""
    op.execute("ALTER TABLE log.change_source DROP COLUMN source_table, DROP COLUMN columns, DROP COLUMN floor_us")
    op.execute("ALTER TABLE log.change_position DROP COLUMN committed_us")

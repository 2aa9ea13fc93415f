"""Make the schema that keeps every version of results that are versioned tables.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE SCHEMA IF NOT EXISTS history")


def downgrade() -> None:
    op.execute("DROP SCHEMA history CASCADE")

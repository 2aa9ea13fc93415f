"""Make the schema that keeps the open windows of results that show final ones alone.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE SCHEMA IF NOT EXISTS open")


def downgrade() -> None:
    op.execute("DROP SCHEMA open CASCADE")

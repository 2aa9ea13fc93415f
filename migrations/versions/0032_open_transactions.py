"""Keep what open transactions hold back of a topic: how many offsets behind a partition's end, and since when the end stands still for them.

Revision ID: 0032
Revises: 0031
"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the columns; the next look at each topic fills them."""
    op.execute("ALTER TABLE log.head ADD COLUMN open_records bigint NOT NULL DEFAULT 0, ADD COLUMN open_since timestamptz")


def downgrade() -> None:
    """Take them away."""
    op.execute("ALTER TABLE log.head DROP COLUMN open_since, DROP COLUMN open_records")

"""Count the launches in a row that ended because a system outside was away: the wait grows with them, and no attempt is spent.

Revision ID: 0034
Revises: 0033
"""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the column; drivers of earlier versions leave it at 0."""
    op.execute("ALTER TABLE slackwater.query_status ADD outages smallint NOT NULL DEFAULT 0")


def downgrade() -> None:
    """Take it away: the next launch of a query in an outage follows soon, and spends an attempt if it ends so, too."""
    op.execute("ALTER TABLE slackwater.query_status DROP outages")

"""Let an API key have a scope: patterns of the names that it may see; null: everything.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
# Older code does not know scopes: keys with one are made once it is gone.
oldest_code = "0012"


def upgrade() -> None:
    op.execute("ALTER TABLE slackwater.api_key ADD scope text[]")


def downgrade() -> None:
    op.execute("ALTER TABLE slackwater.api_key DROP scope")

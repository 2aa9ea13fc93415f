"""Find the relations of a feed by an index: each append of a key with a scope asks who shares the feed.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
oldest_code = "0012"


def upgrade() -> None:
    """Add the index. Its expression is that of ``app.access.scopes_sql``."""
    op.execute("CREATE INDEX relation_feed ON slackwater.relation (coalesce(definition #>> '{connector,feed}', name))")


def downgrade() -> None:
    """Take it away."""
    op.execute("DROP INDEX slackwater.relation_feed")

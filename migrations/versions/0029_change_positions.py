"""Remember where the newest change of each key stands in its database's log, so that an older one that comes again does not win.

Revision ID: 0029
Revises: 0027
"""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the tables. They name relations without a foreign key: what a deleted one leaves is removed in steps."""
    op.execute(
        """
        CREATE TABLE log.change_source (
            relation uuid NOT NULL,
            origin text NOT NULL,
            floor text COLLATE "C",
            PRIMARY KEY (relation, origin)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE log.change_position (
            relation uuid NOT NULL,
            origin text NOT NULL,
            key bytea NOT NULL,
            position text COLLATE "C" NOT NULL,
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (relation, origin, key)
        )
        """
    )
    op.execute("CREATE INDEX change_position_at ON log.change_position (at)")


def downgrade() -> None:
    """Take them away."""
    op.execute("DROP TABLE log.change_position")
    op.execute("DROP TABLE log.change_source")

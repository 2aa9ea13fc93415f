"""Note which segments no manifest names, so that they stay for a while and then go.

Manifests hold tiny segments themselves from here on, which older code cannot read; so it does not work beside this.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.execute(
        """
        CREATE TABLE log.unnamed_segment (
            query_id uuid NOT NULL,
            root uuid NOT NULL,
            name text NOT NULL,
            size_bytes bigint NOT NULL,
            since timestamptz NOT NULL DEFAULT now(),
            epoch bigint NOT NULL,
            batch_id bigint,
            PRIMARY KEY (query_id, root, name)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE log.state_retention (
            query_id uuid PRIMARY KEY,
            since timestamptz NOT NULL
        )
        """
    )
    op.execute("CREATE TABLE log.deleted_state (query_id uuid NOT NULL, root uuid NOT NULL, PRIMARY KEY (query_id, root))")


def downgrade() -> None:
    """Take them away."""
    op.execute("DROP TABLE log.unnamed_segment, log.state_retention, log.deleted_state")

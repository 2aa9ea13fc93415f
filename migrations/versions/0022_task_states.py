"""Keep the state of queries' tasks, and where their next batch begins, with the results: one commit for all.

Older code kept them in files of Spark's, which the first launch reads and leaves behind; so it does not work beside this.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the columns."""
    op.execute("ALTER TABLE log.commit ADD COLUMN cursor jsonb, ADD COLUMN layout jsonb")
    op.execute(
        """
        CREATE TABLE log.task_state (
            query_id uuid NOT NULL,
            stage integer NOT NULL,
            task integer NOT NULL,
            token text NOT NULL,
            manifest text NOT NULL,
            PRIMARY KEY (query_id, stage, task)
        ) WITH (
            fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.1
        )
        """
    )


def downgrade() -> None:
    """Take them away; state that was kept there is lost."""
    op.execute("DROP TABLE log.task_state")
    op.execute("ALTER TABLE log.commit DROP COLUMN cursor, DROP COLUMN layout")

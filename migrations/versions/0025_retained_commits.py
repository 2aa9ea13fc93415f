"""Keep some earlier commits of each query, to which it can be rewound.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
oldest_code = "0023"


def upgrade() -> None:
    """Add the tables, and what tells a log that was cut off from itself before."""
    op.execute(
        """
        CREATE TABLE log.retained_commit (
            query_id uuid NOT NULL,
            batch_id bigint NOT NULL,
            checkpoint_id uuid NOT NULL,
            is_of_launch boolean NOT NULL,
            retained_at timestamptz NOT NULL DEFAULT now(),
            committed_at timestamptz NOT NULL,
            position jsonb NOT NULL,
            stream_time_ms bigint,
            detail jsonb NOT NULL,
            cursor jsonb NOT NULL,
            layout jsonb NOT NULL,
            counters jsonb NOT NULL,
            next_sequence bigint NOT NULL,
            reached_ms bigint,
            replayed_to bigint,
            last_late_id bigint,
            PRIMARY KEY (query_id, batch_id)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE log.retained_state (
            query_id uuid NOT NULL,
            batch_id bigint NOT NULL,
            stage integer NOT NULL,
            task integer NOT NULL,
            manifest text NOT NULL,
            PRIMARY KEY (query_id, batch_id, stage, task),
            FOREIGN KEY (query_id, batch_id) REFERENCES log.retained_commit ON DELETE CASCADE
        )
        """
    )
    op.execute("ALTER TABLE log.feed ADD rewound uuid")


def downgrade() -> None:
    """Take them away; queries go on from where they are."""
    op.execute("DROP TABLE log.retained_state, log.retained_commit")
    op.execute("ALTER TABLE log.feed DROP rewound")

"""Note which late records were replayed; find late records by their event time.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UP = (
    # What was replayed leaves with the other kept rows; a row names only its last replay.
    "ALTER TABLE log.late_record ADD COLUMN replayed_at timestamptz, ADD COLUMN replay_id uuid",
    "CREATE INDEX late_record_event_time ON log.late_record (query_id, event_time_ms)",
)
DOWN = (
    "DROP INDEX log.late_record_event_time",
    "ALTER TABLE log.late_record DROP COLUMN replayed_at, DROP COLUMN replay_id",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

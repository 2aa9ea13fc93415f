"""Key late records by query and number: an index less to write for each of them. Nobody looks for a number alone.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UP = (
    "ALTER TABLE log.late_record DROP CONSTRAINT late_record_pkey, ADD PRIMARY KEY (query_id, id)",
    "DROP INDEX log.late_record_query",
)
DOWN = (
    "ALTER TABLE log.late_record DROP CONSTRAINT late_record_pkey, ADD PRIMARY KEY (id)",
    "CREATE INDEX late_record_query ON log.late_record (query_id, id)",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

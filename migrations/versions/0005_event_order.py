"""Give the events of one query their ids in the order in which they are committed.

A reader that follows a query by event id would pass over an event with a lower id that is committed later. The lock is the query's
own row, which the service holds while it edits and which the event's foreign key asks for anyway; the id is drawn behind it.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UP = (
    """
    CREATE FUNCTION slackwater.order_events() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM slackwater.query WHERE id = NEW.query_id FOR NO KEY UPDATE;
        NEW.id := nextval(pg_get_serial_sequence('slackwater.query_event', 'id'));
        RETURN NEW;
    END
    $$
    """,
    """
    CREATE TRIGGER query_event_order BEFORE INSERT ON slackwater.query_event
    FOR EACH ROW EXECUTE FUNCTION slackwater.order_events()
    """,
)
DOWN = (
    "DROP TRIGGER query_event_order ON slackwater.query_event",
    "DROP FUNCTION slackwater.order_events",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

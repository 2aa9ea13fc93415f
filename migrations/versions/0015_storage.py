"""Leave room on the pages of what is updated often, vacuum it soon, and let windows leave versioned results by an index.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
oldest_code = "0012"

# A few rows each, which every heartbeat, commit or append replaces: the new version finds room beside the old one, and
# what was replaced is removed after some hundred updates, not after a share of a table that is small.
_SMALL = (
    "slackwater.query_status", "slackwater.driver", "slackwater.query", "slackwater.api_key",
    "log.feed", "log.head", "log.commit", "log.counter",
)  # fmt: skip
_ROOM = {"log.head": 25, "slackwater.query": 80, "slackwater.api_key": 80}
# Rows come and go: by a share that is worth the walk.
_LARGE = ("log.batch", "log.late_record", "log.reject", "log.append_key", "slackwater.query_event", "slackwater.idempotency")
_VIEWS = """
    DO $$
    DECLARE found record;
    BEGIN
        FOR found IN
            SELECT oid::regclass AS name, relnamespace FROM pg_class
            WHERE relkind = 'r' AND relnamespace IN ('views'::regnamespace, 'history'::regnamespace, 'open'::regnamespace)
        LOOP
            EXECUTE format(
                'ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)', found.name
            );
            IF found.relnamespace <> 'history'::regnamespace THEN
                EXECUTE format('ALTER TABLE %s SET (fillfactor = 80)', found.name);
            END IF;
        END LOOP;
    END $$
"""
# Of a windowed view the one index beside its key is on the end of the window.
_EXPIRY = """
    DO $$
    DECLARE found record;
    BEGIN
        FOR found IN
            SELECT to_regclass(format('history.%I', c.relname)) AS name, a.attname FROM pg_index i
            JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'views'::regnamespace
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
            WHERE NOT i.indisprimary AND i.indnatts = 1 AND to_regclass(format('history.%I', c.relname)) IS NOT NULL
        LOOP
            EXECUTE format('CREATE INDEX ON %s (%I)', found.name, found.attname);
        END LOOP;
    END $$
"""


def upgrade() -> None:
    for table in _SMALL:
        op.execute(
            f"ALTER TABLE {table} SET (fillfactor = {_ROOM.get(table, 50)}, autovacuum_vacuum_scale_factor = 0, "
            "autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.1)"
        )
    for table in _LARGE:
        op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)")
    op.execute(_VIEWS)
    op.execute(_EXPIRY)


def downgrade() -> None:
    for table in (*_SMALL, *_LARGE):
        op.execute(
            f"ALTER TABLE {table} RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor)"
        )

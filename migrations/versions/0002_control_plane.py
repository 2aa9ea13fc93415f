"""Make the control plane: relations, queries, their status, runs, events; drivers; the two bells.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Definitions are json, not jsonb: the order of columns is part of what the user said, and jsonb forgets it.
TABLES = (
    """
    CREATE TABLE slackwater.query (
        id uuid PRIMARY KEY,
        name text NOT NULL,
        definition json NOT NULL,
        generation integer NOT NULL DEFAULT 1,
        desired_state text NOT NULL CHECK (desired_state IN ('running', 'paused', 'stopped')),
        restart_nonce integer NOT NULL DEFAULT 0,
        checkpoint_id uuid NOT NULL,
        version integer NOT NULL DEFAULT 1,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        deleted_at timestamptz
    )
    """,
    "CREATE UNIQUE INDEX query_name ON slackwater.query (name) WHERE deleted_at IS NULL",
    """
    CREATE TABLE slackwater.relation (
        id uuid PRIMARY KEY,
        name text NOT NULL,
        kind text NOT NULL CHECK (kind IN ('stream', 'table')),
        definition json NOT NULL,
        origin text NOT NULL CHECK (origin IN ('source', 'derived')),
        produced_by uuid REFERENCES slackwater.query (id),
        version integer NOT NULL DEFAULT 1,
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        CHECK ((origin = 'derived') = (produced_by IS NOT NULL))
    )
    """,
    "CREATE UNIQUE INDEX relation_name ON slackwater.relation (name)",
    "CREATE INDEX relation_produced_by ON slackwater.relation (produced_by) WHERE produced_by IS NOT NULL",
    """
    CREATE TABLE slackwater.query_read (
        query_id uuid NOT NULL REFERENCES slackwater.query (id) ON DELETE CASCADE,
        relation_id uuid NOT NULL REFERENCES slackwater.relation (id),
        PRIMARY KEY (query_id, relation_id)
    )
    """,
    "CREATE INDEX query_read_relation ON slackwater.query_read (relation_id)",
    """
    CREATE TABLE slackwater.query_status (
        query_id uuid PRIMARY KEY REFERENCES slackwater.query (id) ON DELETE CASCADE,
        state text NOT NULL
            CHECK (state IN ('stopped', 'starting', 'running', 'paused', 'stopping', 'backoff', 'failed')),
        phase text,
        outcome text,
        state_since timestamptz NOT NULL DEFAULT now(),
        observed_generation integer NOT NULL DEFAULT 0,
        observed_restart_nonce integer NOT NULL DEFAULT 0,
        epoch bigint NOT NULL DEFAULT 0,
        attempt integer NOT NULL DEFAULT 0,
        next_attempt_at timestamptz,
        lease_owner uuid,
        lease_expires_at timestamptz,
        heartbeat_at timestamptz,
        error jsonb,
        version integer NOT NULL DEFAULT 1
    )
    """,
    """
    CREATE TABLE slackwater.query_run (
        query_id uuid NOT NULL REFERENCES slackwater.query (id) ON DELETE CASCADE,
        epoch bigint NOT NULL,
        generation integer NOT NULL,
        driver_id uuid,
        started_at timestamptz NOT NULL DEFAULT now(),
        running_at timestamptz,
        ended_at timestamptz,
        end_reason text,
        error jsonb,
        PRIMARY KEY (query_id, epoch)
    )
    """,
    """
    CREATE TABLE slackwater.query_event (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        query_id uuid NOT NULL REFERENCES slackwater.query (id) ON DELETE CASCADE,
        at timestamptz NOT NULL DEFAULT now(),
        kind text NOT NULL,
        from_state text,
        to_state text,
        epoch bigint,
        actor text NOT NULL,
        detail jsonb
    )
    """,
    "CREATE INDEX query_event_query ON slackwater.query_event (query_id, id)",
    """
    CREATE TABLE slackwater.driver (
        id uuid PRIMARY KEY,
        host text NOT NULL,
        pid integer NOT NULL,
        create_time double precision NOT NULL,
        started_at timestamptz NOT NULL DEFAULT now(),
        heartbeat_at timestamptz NOT NULL DEFAULT now(),
        phase text NOT NULL,
        detail jsonb
    )
    """,
)

# A bell only shortens polling: nothing relies on a notification arriving.
BELLS = (
    """
    CREATE FUNCTION slackwater.ring() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify(TG_ARGV[0], to_jsonb(NEW) ->> TG_ARGV[1]);
        RETURN NULL;
    END
    $$
    """,
    """
    CREATE TRIGGER ring_wish AFTER INSERT OR UPDATE ON slackwater.query
    FOR EACH ROW EXECUTE FUNCTION slackwater.ring('slackwater_wish', 'id')
    """,
    """
    CREATE TRIGGER ring_fact AFTER INSERT OR UPDATE ON slackwater.query_status
    FOR EACH ROW EXECUTE FUNCTION slackwater.ring('slackwater_fact', 'query_id')
    """,
)


def upgrade() -> None:
    op.execute("CREATE SCHEMA IF NOT EXISTS slackwater")
    for statement in (*TABLES, *BELLS):
        op.execute(statement)


def downgrade() -> None:
    for table in ("driver", "query_event", "query_run", "query_status", "query_read", "relation", "query"):
        op.execute(f"DROP TABLE slackwater.{table}")
    op.execute("DROP FUNCTION slackwater.ring()")
    # The schema stays: it holds the table with the revision.

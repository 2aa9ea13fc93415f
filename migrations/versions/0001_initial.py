"""Make the whole schema: ``slackwater`` (the control plane), ``log`` (the data plane), and the schemas of materialised tables.

Revision ID: 0001_initial_2
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "0001_initial_2"  # another one with each change before 1.0: a database of before is refused
down_revision = None
branch_labels = None
depends_on = None

# Definitions and bodies are json, not jsonb: the order of columns is part of what the user said, and jsonb forgets it.
DEFINITIONS = """
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
    deleted_at timestamptz,
    release_nonce integer NOT NULL DEFAULT 0,
    statement text,
    fork_of jsonb
);
CREATE UNIQUE INDEX query_name ON slackwater.query (name) WHERE deleted_at IS NULL;

-- A derived relation has a query that produces it, or the definition that is left of a deleted one (kept).
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
    kept json,
    sql jsonb,
    CHECK (CASE origin WHEN 'source' THEN produced_by IS NULL AND kept IS NULL ELSE (produced_by IS NULL) <> (kept IS NULL) END)
);
CREATE UNIQUE INDEX relation_name ON slackwater.relation (name);
CREATE INDEX relation_produced_by ON slackwater.relation (produced_by) WHERE produced_by IS NOT NULL;
-- Each append of a key with a scope asks who shares the feed. The expression is that of app.access.scopes_sql.
CREATE INDEX relation_feed ON slackwater.relation (coalesce(definition #>> '{connector,feed}', name));
-- A reader of a stream looks for its parts each time.
CREATE INDEX relation_part ON slackwater.relation ((definition ->> 'append_to'))
    WHERE origin = 'derived' AND definition ->> 'append_to' IS NOT NULL;

CREATE TABLE slackwater.query_read (
    query_id uuid NOT NULL REFERENCES slackwater.query (id) ON DELETE CASCADE,
    relation_id uuid NOT NULL REFERENCES slackwater.relation (id),
    PRIMARY KEY (query_id, relation_id)
);
CREATE INDEX query_read_relation ON slackwater.query_read (relation_id);

CREATE TABLE slackwater.sql_type (
    name text PRIMARY KEY,
    type text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE slackwater.python_function (
    name text PRIMARY KEY,
    definition jsonb NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Connections to brokers, registries, object stores and databases; their secrets are encrypted.
CREATE TABLE slackwater.connection (
    name text PRIMARY KEY,
    type text NOT NULL,
    definition jsonb NOT NULL,
    secrets jsonb NOT NULL,
    version integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
"""

RUNNING = """
-- losses: how often its driver was lost. outages: launches in a row that ended because a system outside was away.
-- state_root, state_checkpoint_id: where its state is.
CREATE TABLE slackwater.query_status (
    query_id uuid PRIMARY KEY REFERENCES slackwater.query (id) ON DELETE CASCADE,
    state text NOT NULL CHECK (state IN ('stopped', 'starting', 'running', 'paused', 'stopping', 'backoff', 'failed')),
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
    version integer NOT NULL DEFAULT 1,
    losses smallint NOT NULL DEFAULT 0,
    state_root uuid,
    state_checkpoint_id uuid,
    outages smallint NOT NULL DEFAULT 0
);

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
);

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
);
CREATE INDEX query_event_query ON slackwater.query_event (query_id, id);

CREATE TABLE slackwater.driver (
    id uuid PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    create_time double precision NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    phase text NOT NULL,
    detail jsonb
);

-- Deliveries of results elsewhere. Rows up to position are delivered, those up to planned are on their way.
CREATE TABLE slackwater.delivery (
    query_id uuid PRIMARY KEY REFERENCES slackwater.query ON DELETE CASCADE,
    id uuid NOT NULL UNIQUE,
    definition jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    position bigint NOT NULL,
    planned bigint NOT NULL,
    planned_at timestamptz,
    is_known boolean NOT NULL DEFAULT false,
    event_time_ms bigint,
    delivered_at timestamptz,
    delivered_rows bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    error jsonb,
    is_stopped boolean NOT NULL DEFAULT false,
    state_since timestamptz NOT NULL DEFAULT now(),
    lease_owner uuid,
    lease_expires_at timestamptz,
    epoch bigint NOT NULL DEFAULT 0,
    CHECK (position <= planned)
);

-- Readers of the queries that live as long as their readers (SELECT ... EMIT).
CREATE TABLE slackwater.transient_reader (
    id uuid PRIMARY KEY,
    query text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX transient_reader_query ON slackwater.transient_reader (query);
"""

REQUESTS = """
-- scope: patterns of the names that a key may see; null: everything.
CREATE TABLE slackwater.api_key (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    prefix text NOT NULL,
    digest bytea NOT NULL UNIQUE,
    role text NOT NULL CHECK (role IN ('read', 'write', 'admin')),
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    scope text[]
);
-- A revoked key stays, for who looks up what it did; its name is free.
CREATE UNIQUE INDEX api_key_name ON slackwater.api_key (name) WHERE revoked_at IS NULL;

CREATE TABLE slackwater.idempotency (
    principal text NOT NULL,
    key text NOT NULL,
    request_digest bytea NOT NULL,
    status integer,
    body json,
    headers json,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_expires_at ON slackwater.idempotency (expires_at);

CREATE TABLE slackwater.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    actor_kind text NOT NULL,
    actor text NOT NULL,
    actor_id text,
    request_id text,
    action text NOT NULL,
    resource_kind text,
    resource text,
    outcome text NOT NULL CHECK (outcome IN ('done', 'refused')),
    code text,
    repeats integer NOT NULL DEFAULT 0,
    before json,
    after json
);
CREATE INDEX audit_at ON slackwater.audit (at);
CREATE INDEX audit_resource ON slackwater.audit (resource, id);
CREATE INDEX audit_actor ON slackwater.audit (actor, id);
CREATE INDEX audit_refused ON slackwater.audit (id) WHERE outcome = 'refused';
"""

# Notifications only shorten polling: nothing relies on one arriving.
# A reader that follows a query by event id would pass over an event with a lower id that is committed later: events of one query get their
# ids in the order in which they are committed. The lock is the query's own row, which the service holds while it edits and which the event's
# foreign key asks for anyway; the id is drawn behind it.
TRIGGERS = """
CREATE FUNCTION slackwater.ring() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify(TG_ARGV[0], to_jsonb(NEW) ->> TG_ARGV[1]);
        RETURN NULL;
    END
    $$;
CREATE TRIGGER ring_wish AFTER INSERT OR UPDATE ON slackwater.query
    FOR EACH ROW EXECUTE FUNCTION slackwater.ring('slackwater_desired_state', 'id');
CREATE TRIGGER ring_fact AFTER INSERT OR UPDATE ON slackwater.query_status
    FOR EACH ROW EXECUTE FUNCTION slackwater.ring('slackwater_fact', 'query_id');

CREATE FUNCTION slackwater.order_events() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM slackwater.query WHERE id = NEW.query_id FOR NO KEY UPDATE;
        NEW.id := nextval(pg_get_serial_sequence('slackwater.query_event', 'id'));
        RETURN NEW;
    END
    $$;
CREATE TRIGGER query_event_order BEFORE INSERT ON slackwater.query_event
    FOR EACH ROW EXECUTE FUNCTION slackwater.order_events();
"""

FEEDS = """
CREATE SCHEMA log;
COMMENT ON SCHEMA log IS 'Slackwater: feeds as Arrow record batches, and what queries commit beside their results';

-- start_sequence, next_sequence, reached_ms, last_mark_ms, producer: of derived feeds, whose rows are numbered across their partitions.
-- last_mark_ms: the time of the last mark.
-- rewound: another one after each rewind.
-- outside_id: of a topic; one that was deleted and made again has the same name and another id.
CREATE TABLE log.feed (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    partitions integer NOT NULL CHECK (partitions > 0),
    retention_ms bigint CHECK (retention_ms > 0),
    start_sequence bigint,
    next_sequence bigint,
    reached_ms bigint,
    last_mark_ms bigint,
    producer uuid,
    rewound uuid,
    outside_id text
);

-- open_records, open_since: what unfinished transactions hold back of a topic, in offsets behind the partition's end, and since when.
CREATE TABLE log.head (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    partition integer NOT NULL,
    start_offset bigint NOT NULL DEFAULT 0,
    next_offset bigint NOT NULL DEFAULT 0,
    open_records bigint NOT NULL DEFAULT 0,
    open_since timestamptz,
    PRIMARY KEY (feed_id, partition)
);

-- marks: running maxima of event time inside large batches.
CREATE TABLE log.batch (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    partition integer NOT NULL,
    base_offset bigint NOT NULL,
    rows integer NOT NULL CHECK (rows > 0),
    min_ts bigint NOT NULL,
    max_ts bigint NOT NULL,
    payload bytea NOT NULL,
    appended_at timestamptz NOT NULL DEFAULT now(),
    marks bigint[],
    sequence bigint,
    sequence_rows integer,
    head_ms bigint,
    PRIMARY KEY (feed_id, partition, base_offset)
);
-- Payloads are read whole and once: compressing them costs more than it saves, and sizes are known without reading them.
ALTER TABLE log.batch ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX batch_sequence ON log.batch (feed_id, sequence) WHERE sequence IS NOT NULL;

-- The marks of a derived feed (P14), one row for a commit: those between the numbers first and last, of which the last tells time_ms.
-- head_ms: how far the merge of the producer's inputs had come with the last one. wait_ms: how far behind the time of the sources this time
-- is at most. cut: of the rows before.
CREATE TABLE log.mark (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    time_ms bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    head_ms bigint NOT NULL,
    wait_ms bigint NOT NULL,
    cut bigint,
    payload bytea NOT NULL,
    appended_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (feed_id, time_ms)
);
CREATE INDEX mark_last ON log.mark (feed_id, last);

CREATE TABLE log.append_key (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    key text NOT NULL,
    digest bytea NOT NULL,
    response jsonb NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (feed_id, key)
);
CREATE INDEX append_key_expires_at ON log.append_key (expires_at);

-- Stretches of files in the order of their discovery; an offset of a files feed is (seq << 40) + byte or row.
CREATE TABLE log.file (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    seq bigint NOT NULL,
    name text NOT NULL,
    start bigint NOT NULL,
    "end" bigint NOT NULL,
    size_bytes bigint NOT NULL,
    discovered_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (feed_id, seq)
);
CREATE INDEX file_name ON log.file (feed_id, name, seq);

-- Position of the newest change of each key in its database, and when it was committed, for positions are not always in the order of
-- commits: an older change that comes again does not win. There is no foreign key: what a deleted relation leaves is removed in steps.
CREATE TABLE log.change_source (
    relation uuid NOT NULL,
    origin text NOT NULL,
    floor text COLLATE "C",
    floor_us bigint,
    columns text[] NOT NULL DEFAULT '{}',
    source_table text,
    PRIMARY KEY (relation, origin)
);
CREATE TABLE log.change_position (
    relation uuid NOT NULL,
    origin text NOT NULL,
    key bytea NOT NULL,
    position text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    committed_us bigint,
    PRIMARY KEY (relation, origin, key)
);
CREATE INDEX change_position_at ON log.change_position (at);

-- Which incarnation this is: another one where a dump was put back.
CREATE TABLE log.incarnation (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id uuid,
    fingerprint text,
    began_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO log.incarnation DEFAULT VALUES;
"""

RESULTS = """
CREATE TABLE log.commit (
    query_id uuid PRIMARY KEY,
    checkpoint_id uuid NOT NULL,
    epoch bigint NOT NULL,
    batch_id bigint,
    committed_at timestamptz,
    position jsonb NOT NULL DEFAULT '{}',
    stream_time_ms bigint,
    detail jsonb NOT NULL DEFAULT '{}',
    cursor jsonb,
    layout jsonb
);

CREATE TABLE log.counter (
    owner uuid NOT NULL,
    input text NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (owner, input, reason)
);

CREATE TABLE log.task_state (
    query_id uuid NOT NULL,
    stage integer NOT NULL,
    task integer NOT NULL,
    token text NOT NULL,
    manifest text NOT NULL,
    PRIMARY KEY (query_id, stage, task)
);

-- Segments that no manifest names: they stay for a while and then go.
CREATE TABLE log.orphan_segment (
    query_id uuid NOT NULL,
    root uuid NOT NULL,
    name text NOT NULL,
    size_bytes bigint NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    epoch bigint NOT NULL,
    batch_id bigint,
    PRIMARY KEY (query_id, root, name)
);
CREATE TABLE log.state_retention (
    query_id uuid PRIMARY KEY,
    since timestamptz NOT NULL
);
CREATE TABLE log.deleted_state (query_id uuid NOT NULL, root uuid NOT NULL, PRIMARY KEY (query_id, root));

-- Earlier commits of each query, to which it can be rewound.
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
);
CREATE TABLE log.retained_state (
    query_id uuid NOT NULL,
    batch_id bigint NOT NULL,
    stage integer NOT NULL,
    task integer NOT NULL,
    manifest text NOT NULL,
    PRIMARY KEY (query_id, batch_id, stage, task),
    FOREIGN KEY (query_id, batch_id) REFERENCES log.retained_commit ON DELETE CASCADE
);

-- The key begins with the query, for nobody looks for a number alone. A row names only its last replay.
CREATE TABLE log.late_record (
    id bigint GENERATED ALWAYS AS IDENTITY,
    query_id uuid NOT NULL,
    input text NOT NULL,
    reason text NOT NULL,
    event_time_ms bigint NOT NULL,
    stream_time_ms bigint,
    "offset" bigint,
    record text NOT NULL,
    at timestamptz NOT NULL,
    replayed_at timestamptz,
    replay_id uuid,
    PRIMARY KEY (query_id, id)
);
CREATE INDEX late_record_event_time ON log.late_record (query_id, event_time_ms);

-- Posted records that were refused have no place in the feed: partition and offset are null.
CREATE TABLE log.reject (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text NOT NULL,
    feed text NOT NULL,
    partition integer,
    "offset" bigint,
    reason text NOT NULL,
    detail text NOT NULL,
    excerpt text NOT NULL,
    at timestamptz NOT NULL,
    UNIQUE (owner, feed, partition, "offset")
);
CREATE INDEX reject_owner ON log.reject (owner, id);
"""

# Views show results, history keeps every version of those that are versioned tables, open has windows of results that show final ones alone.
TABLES = """
CREATE SCHEMA views;
COMMENT ON SCHEMA views IS 'Slackwater: materialised tables, one per derived table; read them with any client';
CREATE SCHEMA history;
CREATE SCHEMA open;
"""

# A few rows each, which every heartbeat, commit or append replaces: the new version finds room on the page beside the old one, off the index,
# and what was replaced is removed after some hundred updates, not after a share of a table that is small. Per table: its fillfactor.
REPLACED_OFTEN = {
    "slackwater.query_status": 50, "slackwater.driver": 50, "slackwater.query": 80, "slackwater.api_key": 80,
    "log.feed": 50, "log.head": 25, "log.commit": 50, "log.counter": 50, "log.task_state": 50,
}  # fmt: skip
# Rows come and go: these tables are vacuumed once a share of them has gone that is worth the walk.
COMING_AND_GOING = (
    "log.batch", "log.mark", "log.late_record", "log.reject", "log.append_key", "slackwater.query_event", "slackwater.idempotency",
)  # fmt: skip


def upgrade() -> None:
    op.execute("CREATE SCHEMA IF NOT EXISTS slackwater")  # it holds the table with the revision already
    for statements in (DEFINITIONS, RUNNING, REQUESTS, TRIGGERS, FEEDS, RESULTS, TABLES):
        op.execute(statements)
    for table, fillfactor in REPLACED_OFTEN.items():
        op.execute(
            f"ALTER TABLE {table} SET (fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = 0, "
            "autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.1)"
        )
    for table in COMING_AND_GOING:
        op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)")

"""The data plane: the log, what the sink commits beside its results, and the schema of the materialised tables."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LOG = """
CREATE SCHEMA log;
COMMENT ON SCHEMA log IS 'Slackwater: feeds as Arrow record batches, and what queries commit beside their results';

CREATE TABLE log.feed (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    partitions integer NOT NULL CHECK (partitions > 0),
    retention_ms bigint CHECK (retention_ms > 0)
);

-- One row per partition is updated by every append: room on the page keeps those updates off the index.
CREATE TABLE log.head (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    partition integer NOT NULL,
    start_offset bigint NOT NULL DEFAULT 0,
    next_offset bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (feed_id, partition)
) WITH (fillfactor = 25);

CREATE TABLE log.batch (
    feed_id integer NOT NULL REFERENCES log.feed ON DELETE CASCADE,
    partition integer NOT NULL,
    base_offset bigint NOT NULL,
    rows integer NOT NULL CHECK (rows > 0),
    min_ts bigint NOT NULL,
    max_ts bigint NOT NULL,
    payload bytea NOT NULL,
    appended_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (feed_id, partition, base_offset)
);
-- Payloads are read whole and once: compressing them costs more than it saves, and sizes are known without reading them.
ALTER TABLE log.batch ALTER COLUMN payload SET STORAGE EXTERNAL;

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
    detail jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

CREATE TABLE log.counter (
    owner uuid NOT NULL,
    input text NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (owner, input, reason)
) WITH (fillfactor = 50);

CREATE TABLE log.late_record (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    query_id uuid NOT NULL,
    input text NOT NULL,
    reason text NOT NULL,
    event_time_ms bigint NOT NULL,
    stream_time_ms bigint,
    "offset" bigint,
    record text NOT NULL,
    at timestamptz NOT NULL
);
CREATE INDEX late_record_query ON log.late_record (query_id, id);

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

CREATE SCHEMA views;
COMMENT ON SCHEMA views IS 'Slackwater: materialised tables, one per derived table; read them with any client';
"""


def upgrade() -> None:
    op.execute(LOG)
    op.execute(RESULTS)


def downgrade() -> None:
    op.execute("DROP SCHEMA views CASCADE")
    op.execute("DROP SCHEMA log CASCADE")

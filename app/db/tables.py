"""The tables of the control plane and of the log in SQLAlchemy Core. The migrations create them; a test compares both."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from engine.plan.catalog import CHANGES

SCHEMA = "slackwater"
metadata = sa.MetaData(schema=SCHEMA)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[object]:
    default = None if nullable else sa.text("now()")
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=default)


query = sa.Table(
    "query",
    metadata,
    sa.Column("id", sa.Uuid, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False, server_default=sa.text("1")),
    sa.Column("desired_state", sa.Text, nullable=False),
    sa.Column("restart_nonce", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("checkpoint_id", sa.Uuid, nullable=False),
    sa.Column("release_nonce", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
    _moment("created_at"),
    _moment("updated_at"),
    _moment("deleted_at", nullable=True),
    sa.Column("statement", sa.Text),
    sa.Column("fork_of", JSONB(none_as_null=True)),
)

relation = sa.Table(
    "relation",
    metadata,
    sa.Column("id", sa.Uuid, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("produced_by", sa.Uuid, sa.ForeignKey(query.c.id)),
    sa.Column("kept", sa.JSON),
    sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
    _moment("created_at"),
    _moment("updated_at"),
    sa.Column("sql", JSONB),
)

sql_type = sa.Table(
    "sql_type",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    _moment("created_at"),
)

python_function = sa.Table(
    "python_function",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("definition", JSONB, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    _moment("created_at"),
)

connection = sa.Table(
    "connection",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("definition", JSONB, nullable=False),
    sa.Column("secrets", JSONB, nullable=False),
    sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
    _moment("created_at"),
    _moment("updated_at"),
)

transient_reader = sa.Table(
    "transient_reader",
    metadata,
    sa.Column("id", sa.Uuid, primary_key=True),
    sa.Column("query", sa.Text, nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
)

query_read = sa.Table(
    "query_read",
    metadata,
    sa.Column("query_id", sa.Uuid, sa.ForeignKey(query.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("relation_id", sa.Uuid, sa.ForeignKey(relation.c.id), primary_key=True),
)

query_status = sa.Table(
    "query_status",
    metadata,
    sa.Column("query_id", sa.Uuid, sa.ForeignKey(query.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("phase", sa.Text),
    sa.Column("outcome", sa.Text),
    _moment("state_since"),
    sa.Column("observed_generation", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("observed_restart_nonce", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("losses", sa.SmallInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("outages", sa.SmallInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("state_root", sa.Uuid),
    sa.Column("state_checkpoint_id", sa.Uuid),
    _moment("next_attempt_at", nullable=True),
    sa.Column("lease_owner", sa.Uuid),
    _moment("lease_expires_at", nullable=True),
    _moment("heartbeat_at", nullable=True),
    sa.Column("error", JSONB),
    sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
)

query_run = sa.Table(
    "query_run",
    metadata,
    sa.Column("query_id", sa.Uuid, sa.ForeignKey(query.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("driver_id", sa.Uuid),
    _moment("started_at"),
    _moment("running_at", nullable=True),
    _moment("ended_at", nullable=True),
    sa.Column("end_reason", sa.Text),
    sa.Column("error", JSONB),
)

query_event = sa.Table(
    "query_event",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("query_id", sa.Uuid, sa.ForeignKey(query.c.id, ondelete="CASCADE"), nullable=False),
    _moment("at"),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("from_state", sa.Text),
    sa.Column("to_state", sa.Text),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("detail", JSONB),
)

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("query_id", sa.Uuid, sa.ForeignKey(query.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("id", sa.Uuid, nullable=False, unique=True),
    sa.Column("definition", JSONB, nullable=False),
    _moment("created_at"),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("planned", sa.BigInteger, nullable=False),
    _moment("planned_at", nullable=True),
    sa.Column("is_known", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("event_time_ms", sa.BigInteger),
    _moment("delivered_at", nullable=True),
    sa.Column("delivered_rows", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("failures", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("0")),
    _moment("next_attempt_at", nullable=True),
    sa.Column("error", JSONB(none_as_null=True)),
    sa.Column("is_stopped", sa.Boolean, nullable=False, server_default=sa.text("false")),
    _moment("state_since"),
    sa.Column("lease_owner", sa.Uuid),
    _moment("lease_expires_at", nullable=True),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)

driver = sa.Table(
    "driver",
    metadata,
    sa.Column("id", sa.Uuid, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("create_time", sa.Double, nullable=False),
    _moment("started_at"),
    _moment("heartbeat_at"),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("detail", JSONB),
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("principal", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.LargeBinary, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("body", sa.JSON),
    sa.Column("headers", sa.JSON),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    _moment("at"),
    sa.Column("actor_kind", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("actor_id", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("resource_kind", sa.Text),
    sa.Column("resource", sa.Text),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("code", sa.Text),
    sa.Column("repeats", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("before", sa.JSON),
    sa.Column("after", sa.JSON),
)

api_key = sa.Table(
    "api_key",
    metadata,
    sa.Column("id", sa.Uuid, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("scope", ARRAY(sa.Text)),
    _moment("created_at"),
    _moment("last_used_at", nullable=True),
    _moment("expires_at", nullable=True),
    _moment("revoked_at", nullable=True),
)


RESULT_FEED: Final = f"CASE r.kind WHEN 'table' THEN '{CHANGES}' || r.name ELSE r.name END"
"""SQL for the name of the feed of a result; ``r`` is its relation. See ``named_result_feed``."""

_METADATA = sa.MetaData(schema="log")

feed = sa.Table(
    "feed",
    _METADATA,
    sa.Column("id", sa.Integer),
    sa.Column("name", sa.Text),
    sa.Column("partitions", sa.Integer),
    sa.Column("retention_ms", sa.BigInteger),
    sa.Column("start_sequence", sa.BigInteger),
    sa.Column("next_sequence", sa.BigInteger),
    sa.Column("reached_ms", sa.BigInteger),
    sa.Column("producer", sa.Uuid),
    sa.Column("rewound", sa.Uuid),
)

incarnation = sa.Table("incarnation", _METADATA, sa.Column("id", sa.Uuid))

head = sa.Table(
    "head",
    _METADATA,
    sa.Column("feed_id", sa.Integer),
    sa.Column("partition", sa.Integer),
    sa.Column("start_offset", sa.BigInteger),
    sa.Column("next_offset", sa.BigInteger),
    sa.Column("open_records", sa.BigInteger),
    sa.Column("open_since", sa.DateTime(timezone=True)),
)

commit = sa.Table(
    "commit",
    _METADATA,
    sa.Column("query_id", sa.Uuid),
    sa.Column("checkpoint_id", sa.Uuid),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("batch_id", sa.BigInteger),
    sa.Column("committed_at", sa.DateTime(timezone=True)),
    sa.Column("position", JSONB),
    sa.Column("stream_time_ms", sa.BigInteger),
    sa.Column("detail", JSONB),
    sa.Column("cursor", JSONB(none_as_null=True)),
    sa.Column("layout", JSONB(none_as_null=True)),
)

state_retention = sa.Table(
    "state_retention", _METADATA, sa.Column("query_id", sa.Uuid), sa.Column("since", sa.DateTime(timezone=True))
)

task_state = sa.Table("task_state", _METADATA, sa.Column("query_id", sa.Uuid))

counter = sa.Table(
    "counter",
    _METADATA,
    sa.Column("owner", sa.Uuid),
    sa.Column("input", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("count", sa.BigInteger, key="total"),
)

late_record = sa.Table(
    "late_record",
    _METADATA,
    sa.Column("id", sa.BigInteger),
    sa.Column("query_id", sa.Uuid),
    sa.Column("input", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("event_time_ms", sa.BigInteger),
    sa.Column("stream_time_ms", sa.BigInteger),
    sa.Column("offset", sa.BigInteger),
    sa.Column("record", sa.Text),
    sa.Column("at", sa.DateTime(timezone=True)),
    sa.Column("replayed_at", sa.DateTime(timezone=True)),
    sa.Column("replay_id", sa.Uuid),
)

reject = sa.Table(
    "reject",
    _METADATA,
    sa.Column("id", sa.BigInteger),
    sa.Column("owner", sa.Text),
    sa.Column("feed", sa.Text),
    sa.Column("partition", sa.Integer),
    sa.Column("offset", sa.BigInteger),
    sa.Column("reason", sa.Text),
    sa.Column("detail", sa.Text),
    sa.Column("excerpt", sa.Text),
    sa.Column("at", sa.DateTime(timezone=True)),
)

"""The tables of the data plane that the service reads. They belong to the engine, which writes them."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from engine.plan.result_feeds import CHANGES

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

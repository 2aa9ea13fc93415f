"""Number the rows of derived feeds across their partitions; mark running maxima of event time inside large batches.

A derived log that was written before has one partition: its offsets become the numbers. Its producer is known from the relation.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UP = (
    """
    ALTER TABLE log.feed ADD start_sequence bigint, ADD next_sequence bigint, ADD reached_ms bigint, ADD producer uuid
    """,
    """
    ALTER TABLE log.batch ADD marks bigint[], ADD sequence bigint, ADD sequence_rows integer, ADD head_ms bigint
    """,
    """
    UPDATE log.feed f SET producer = made.producer,
        start_sequence = (SELECT h.start_offset FROM log.head h WHERE h.feed_id = f.id AND h.partition = 0),
        next_sequence = (SELECT h.next_offset FROM log.head h WHERE h.feed_id = f.id AND h.partition = 0),
        reached_ms = (SELECT max(b.max_ts) FROM log.batch b WHERE b.feed_id = f.id)
    FROM (
        SELECT CASE r.kind WHEN 'table' THEN 'changes:' || r.name ELSE r.name END AS feed, r.produced_by AS producer
        FROM slackwater.relation r WHERE r.origin = 'derived'
        UNION ALL
        SELECT 'changes:' || r.name, q.id FROM slackwater.relation r
        LEFT JOIN slackwater.query q ON q.name = 'materialize:' || r.name AND q.deleted_at IS NULL
        WHERE r.origin <> 'derived' AND r.definition ->> 'materialize' = 'true'
    ) made WHERE made.feed = f.name
    """,
    """
    UPDATE log.batch b SET sequence = b.base_offset, sequence_rows = b.rows, head_ms = old.head_ms
    FROM (
        SELECT o.feed_id, o.base_offset, max(o.max_ts) OVER (PARTITION BY o.feed_id ORDER BY o.base_offset) AS head_ms
        FROM log.batch o JOIN log.feed f ON f.id = o.feed_id WHERE f.next_sequence IS NOT NULL
    ) old WHERE old.feed_id = b.feed_id AND old.base_offset = b.base_offset
    """,
    "CREATE INDEX batch_sequence ON log.batch (feed_id, sequence) WHERE sequence IS NOT NULL",
)
DOWN = (
    "DROP INDEX log.batch_sequence",
    "ALTER TABLE log.batch DROP marks, DROP sequence, DROP sequence_rows, DROP head_ms",
    "ALTER TABLE log.feed DROP start_sequence, DROP next_sequence, DROP reached_ms, DROP producer",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)

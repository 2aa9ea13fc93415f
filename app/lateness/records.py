"""Stored late records: read them, and replay some through the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.catalog.queries.plans import PlannedQuery
from app.catalog.stored.queries import add_event
from app.db.database import raw
from app.db.page_bounds import Most, bounded
from app.db.tables import counter, late_record
from app.lateness.record_rules import Refusal, refusal_of
from engine.expressions.types.types import Schema
from engine.log.storage import append_batches, encode_batches, ensure_feed, heads
from engine.operators.tasks.replay import OPERATOR, RECORD, STAGE
from engine.plan.model import Plan
from engine.sources.log.replay_reader import replay_feed

# One replay is one transaction and one batch of the query. This number does not delay it noticeably.
MAX_REPLAYED = 10_000


@dataclass(frozen=True, slots=True)
class LateFilter:
    """A filter of late records. None matches all.

    Attributes:
        from_ms: first event time.
        to_ms: end of the range of event times, exclusive.
        key: for each requested column, the qualified columns it may be, each with its token.
    """

    reason: str | None = None
    input: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: Sequence[Mapping[str, str]] = ()

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the conditions on rows of ``log.late_record``; the record is JSON without spaces."""
        clauses: list[sa.ColumnElement[bool]] = []
        if self.reason is not None:
            clauses.append(late_record.c.reason == self.reason)
        if self.input is not None:
            clauses.append(late_record.c.input == self.input)
        if self.from_ms is not None:
            clauses.append(late_record.c.event_time_ms >= self.from_ms)
        if self.to_ms is not None:
            clauses.append(late_record.c.event_time_ms < self.to_ms)
        for names in self.key:
            tokens = [token + end for token in names.values() for end in (",", "}")]
            clauses.append(sa.or_(*(sa.func.strpos(late_record.c.record, token) > 0 for token in tokens)))
        return clauses


def key_tokens(columns: Mapping[str, object], types: Schema) -> dict[str, str]:
    """Return for each column the text of this value in a late record's JSON, as the engine writes it."""
    written = {}
    for name, value in columns.items():
        frame = pl.DataFrame({name: pl.Series([value], dtype=types[name].polars)})
        written[name] = str(frame.select(pl.struct(name).struct.json_encode()).item())[1:-1]
    return written


@dataclass(frozen=True, slots=True)
class PageOf:
    """A page by id.

    Attributes:
        beyond: the last id of the page before.
    """

    most: Most
    beyond: int | None = None
    is_ascending: bool = False


def late_records_of(connection: sa.Connection, query_id: UUID, wanted: LateFilter, page: PageOf) -> Sequence[sa.Row[Any]]:
    """Return stored late records in the order of arrival, or the reverse; the last one may be beyond the page (``page_bounds``)."""
    statement = sa.select(late_record).where(late_record.c.query_id == query_id, *wanted.conditions()).limit(page.most.items)
    if page.beyond is not None:
        is_beyond = late_record.c.id > page.beyond if page.is_ascending else late_record.c.id < page.beyond
        statement = statement.where(is_beyond)
    ordered = statement.order_by(late_record.c.id if page.is_ascending else late_record.c.id.desc())
    return connection.execute(bounded(ordered, ("record",), page.most.bytes)).all()


def counted_for(connection: sa.Connection, query_id: UUID) -> list[tuple[str, str, int]]:
    """Return (input, reason, count) of each counter of a query."""
    columns = counter.c.input, counter.c.reason, counter.c.total
    rows = connection.execute(sa.select(*columns).where(counter.c.owner == query_id).order_by(*columns[:2]))
    return [tuple(row) for row in rows]


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay request.

    Attributes:
        id: of the replay; None if no record was accepted.
        accepted: ids that go through the query again.
        already: ids that were replayed before.
        refused: (id, why).
        missing: unknown ids.
        position: of the query's replays, after these: feed → partition → offset.
        has_more: more records match than one request replays.
    """

    id: UUID | None
    accepted: Sequence[int]
    already: Sequence[int]
    refused: Sequence[tuple[int, Refusal]]
    missing: Sequence[int] = ()
    position: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    has_more: bool = False


def replay(
    connection: sa.Connection, query: PlannedQuery, wanted: LateFilter, ids: Sequence[int] | None, *, is_again: bool
) -> Replay:
    """Append late records to the query's replay feed and mark them, in this one transaction.

    Args:
        connection: in the caller's transaction.
        query: which query.
        wanted: which records.
        ids: only these, if not None.
        is_again: include records that were replayed before.
    """
    statement = sa.select(late_record).where(late_record.c.query_id == query.row.id, *wanted.conditions())
    if ids is not None:
        statement = statement.where(late_record.c.id.in_(ids))
    elif not is_again:
        statement = statement.where(late_record.c.replayed_at.is_(None))
    # A concurrent request waits here, and then sees the marks of the first one.
    rows = connection.execute(statement.order_by(late_record.c.id).limit(MAX_REPLAYED + 1).with_for_update()).all()
    has_more, rows = len(rows) > MAX_REPLAYED, rows[:MAX_REPLAYED]
    already = [] if is_again else [row.id for row in rows if row.replayed_at is not None]
    fresh = [row for row in rows if row.id not in set(already)]
    refused = [(row.id, why) for row in fresh if (why := refusal_of(row.reason, row.input, row.record, query.plan)) is not None]
    chosen = [row for row in fresh if row.id not in {number for number, _ in refused}]
    missing = sorted(set(ids or ()) - {row.id for row in rows})
    if not chosen or missing or (refused and ids is not None):
        return Replay(None, [], already, refused, missing, {}, has_more)
    replay_id = uuid4()
    accepted = [row.id for row in chosen]
    position = _append(connection, query, chosen)
    connection.execute(
        sa.update(late_record)
        .where(late_record.c.query_id == query.row.id, late_record.c.id.in_(accepted))
        .values(replayed_at=sa.func.now(), replay_id=replay_id)
    )
    done = {"replay_id": str(replay_id), "count": len(accepted)}
    add_event(connection, query.row.id, "late_records_replayed", done)
    note(connection, Change(Action.REPLAY, "query", query.row.name, None, done))
    return Replay(replay_id, accepted, already, refused, (), position, has_more)


def _append(connection: sa.Connection, query: PlannedQuery, rows: Sequence[sa.Row[Any]]) -> dict[str, dict[str, int]]:
    stages = _stages(query.plan)
    name = replay_feed(query.row.id)
    feed = ensure_feed(raw(connection), name, 1)
    frame = pl.DataFrame(
        {
            "_ts": [row.event_time_ms for row in rows],
            "_op": pl.Series([0] * len(rows), dtype=pl.Int8),
            STAGE: pl.Series([stages[row.input] for row in rows], dtype=pl.Int32),
            OPERATOR: [row.input for row in rows],
            RECORD: [row.record for row in rows],
        }
    )
    append_batches(raw(connection), feed.id, [(0, batch) for batch in encode_batches(frame, 0)])
    return {name: {str(head.partition): head.next_offset for head in heads(raw(connection), feed.id)}}


def _stages(plan: Plan) -> dict[str, int]:
    return {operator.name: stage.index for stage in plan.stages for operator in stage.operators if operator.name is not None}

"""The facts of an explanation, from one snapshot of Postgres; each is read only when a rule needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from app.access.rules import WITHHELD, may_see_files
from app.access.scopes_sql import is_feed_within_scope
from app.catalog.queries.columns import Values
from app.catalog.queries.plans import PlannedQuery
from app.db.database import raw
from app.db.tables import late_record, reject
from app.explain.record_search import ALL_TIME, RecordSearch
from app.explain.rules.facts import Committed, FoundRecords, LateFact, Place, Record, RejectFact, ResultFact, Versions
from app.lateness.record_rules import event_time_of, has_all, matches, names_in
from engine.commit.views import RESULT_TIME, view_identifier
from engine.log.sequences import LANE_PARTITION
from engine.log.storage import find_feed, heads
from engine.plan.model import Feed, Input, RelationSchema
from engine.postgres.column_names import bound_column

# Limit of stored late records and rejects that are searched for one key.
LOOKED_THROUGH = 1_000
RESULTS = 20


class StoredFacts:
    """See ``Facts``.

    Args:
        connection: in the transaction that found ``query``.
    """

    def __init__(self, connection: sa.Connection, query: PlannedQuery) -> None:
        self._connection = connection
        self._query = query
        detail = query.committed.detail
        self.committed = Committed(
            clocks=detail.get("clocks", {}),
            buffered=detail.get("buffered", {}),
            wakes=detail.get("wakes", {}),
            position=query.committed.position,
            ends={item.feed.name: _ends(raw(connection), item.feed) for item in query.plan.inputs if item.feed.traits.has_heads},
        )
        self._search = RecordSearch(raw(connection), query.committed.position)

    def record_at(self, source: Input, place: Place) -> Record | None:
        part = (
            None if place.part is None else next((lane for lane in self._parts(source) if lane.source_name == place.part), None)
        )
        if place.part is not None and part is None:
            return None
        return self._search.at(part or source, place)

    def records(self, source: Input, values: Values, from_ms: int, to_ms: int) -> FoundRecords:
        lanes = self._query.plan.lanes_of(source)
        searches = [self._search.between(lane, values, from_ms, to_ms) for lane in lanes]
        records = [record for each in searches for record in each.records]
        is_trimmed = not records and any(map(self._search.is_trimmed, lanes))
        return FoundRecords(records, all(each.is_complete for each in searches), is_trimmed)

    def nearest(self, source: Input, values: Values, at_ms: int) -> Sequence[Record]:
        neighbours = [self._search.around(lane, values, at_ms) for lane in self._query.plan.lanes_of(source)]
        before = [record for each in neighbours for record in each if record.event_time_ms <= at_ms]
        after = [record for each in neighbours for record in each if record.event_time_ms > at_ms]
        return [
            *([max(before, key=lambda record: record.event_time_ms)] if before else []),
            *([min(after, key=lambda record: record.event_time_ms)] if after else []),
        ]

    def _parts(self, source: Input) -> Sequence[Input]:
        return [lane for lane in self._query.plan.lanes_of(source) if lane.part_of is not None]

    def versions(self, source: Input, key: Values, at_ms: int) -> Versions:
        rows = self._late_rows(
            {f"{source.alias}.{name}": value for name, value in key.items()}, 0, ALL_TIME, "table_history_expired"
        )
        return self._search.versions(source, key, at_ms, {(row.event_time_ms, row.offset) for row in rows})

    def read_to_ms(self, source: Input) -> int | None:
        return self._search.read_to_ms(source)

    def late(self, values: Values, from_ms: int, to_ms: int) -> Sequence[LateFact]:
        return [
            LateFact(
                row.input,
                row.reason,
                row.event_time_ms,
                row.stream_time_ms,
                is_replayed=row.replayed_at is not None,
                offset=row.offset,
                columns=names_in(row.record),
            )
            for row in self._late_rows(values, from_ms, to_ms)
        ]

    def _late_rows(self, values: Values, from_ms: int, to_ms: int, reason: str | None = None) -> list[sa.Row[Any]]:
        conditions = [late_record.c.query_id == self._query.row.id, late_record.c.event_time_ms.between(from_ms, to_ms)]
        if reason is not None:
            conditions.append(late_record.c.reason == reason)
        statement = sa.select(late_record).where(*conditions).order_by(late_record.c.id.desc()).limit(LOOKED_THROUGH)
        return [row for row in self._connection.execute(statement) if matches(row.record, values)]

    def rejects(self, source: Input, values: Values, place: Place | None) -> Sequence[RejectFact]:
        statement = sa.select(reject).where(reject.c.owner == source.relation.name)
        feeds = {lane.feed.name: lane.source_name for lane in self._parts(source)}
        if place is not None:
            feed = next((name for name, part in feeds.items() if part == place.part), source.feed.name)
            at = reject.c.partition == place.partition, reject.c.offset == place.offset, reject.c.feed == feed
            statement = statement.where(*at)
        rows = self._connection.execute(statement.order_by(reject.c.id.desc()).limit(LOOKED_THROUGH))
        is_shown = may_see_files() or not source.feed.traits.is_of_host
        is_feed_shown = is_feed_within_scope(self._connection, source.relation.name)
        return [
            RejectFact(
                row.reason,
                row.detail if is_shown else WITHHELD,
                None if row.partition is None else Place(row.partition, row.offset, feeds.get(row.feed)),
                event_time_of(row.excerpt, source.relation, row.at),
            )
            for row in rows
            if place is not None or (is_shown and (is_feed_shown or row.partition is None) and has_all(row.excerpt, values))
        ]

    def results(self, values: Values, from_ms: int, to_ms: int) -> Sequence[ResultFact]:
        if self._query.plan.output.kind == "stream":
            return self._records_of_result(values, from_ms, to_ms)
        return self._rows_of_result(values, from_ms, to_ms)

    def _rows_of_result(self, values: Values, from_ms: int, to_ms: int) -> Sequence[ResultFact]:
        """Return rows of the view; of a windowed one only windows that overlap the range."""
        output = self._query.plan.output
        bounds = [bound_column(name) for name in output.key[-2:]] if output.is_windowed else [sql.NULL, sql.NULL]
        parameters = {f"v{place}": value for place, value in enumerate(values.values())}
        equal, absent = sql.SQL("{} = {}"), sql.SQL("{} IS NULL")
        conditions = [
            absent.format(bound_column(name))
            if values[name] is None
            else equal.format(bound_column(name), sql.Placeholder(placeholder))
            for name, placeholder in zip(values, parameters, strict=True)
        ]
        if output.is_windowed:
            meets = "{} >= to_timestamp(%(from)s / 1000.0) AND {} <= to_timestamp(%(to)s / 1000.0)"
            conditions.append(sql.SQL(meets).format(bounds[1], bounds[0]))
        statement = sql.SQL("SELECT {}, {}, {} FROM {} WHERE {} ORDER BY 1 DESC LIMIT %(limit)s").format(
            sql.Identifier(RESULT_TIME),
            *bounds,
            view_identifier(output.name),
            sql.SQL(" AND ").join([sql.SQL("true"), *conditions]),
        )
        params = {**parameters, "from": from_ms, "to": to_ms, "limit": RESULTS}
        rows = raw(self._connection).execute(statement, params).fetchall()
        return [
            ResultFact(ts, *(None if bound is None else round(bound.timestamp() * 1000) for bound in placeholder))
            for ts, *placeholder in rows
        ]

    def _records_of_result(self, values: Values, from_ms: int, to_ms: int) -> Sequence[ResultFact]:
        output = self._query.plan.output
        relation = RelationSchema(output.name, "stream", output.columns, output.key, None, None, None, None, None)
        feed = Feed.in_log(output.name, is_derived=True)
        result_input = Input(0, output.name, relation, feed, output.columns.names, ())
        searched = self._search.between(result_input, values, from_ms, to_ms)
        return [ResultFact(record.event_time_ms) for record in searched.records[:RESULTS]]


def _ends(connection: psycopg.Connection[Any], feed: Feed) -> Mapping[int, int]:
    log_feed = find_feed(connection, feed.log_feed)
    if log_feed is None:
        return {}
    if log_feed.next_sequence is not None:
        return {LANE_PARTITION: log_feed.next_sequence}
    return {head.partition: head.next_offset for head in heads(connection, log_feed.id)}

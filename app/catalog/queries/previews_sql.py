"""The rows and late records that an edit in place would remove from reads, counted in the tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from app.catalog.queries.previews import Effect, effects_at_once
from app.catalog.stored.catalog import load_catalog
from app.catalog.stored.definitions import planned
from app.catalog.stored.queries import QueryRow
from app.db.log_tables import commit
from app.db.transactions import raw
from engine.commit.views import RESULT_TIME, history_identifier, view_identifier
from engine.definition.queries import QueryDefinition
from engine.plan.model import LateRecords, Output, Plan
from engine.postgres.column_names import bound_column, bound_columns

Connection = psycopg.Connection[Any]
_LATE_BEYOND_RETENTION = sql.SQL(
    "SELECT count(*), min(event_time_ms), max(event_time_ms) FROM log.late_record WHERE query_id = %s "
    "AND at < now() - %s * interval '1 millisecond'"
)
_LATE_BEYOND_CAP = sql.SQL(
    "SELECT count(*), min(event_time_ms), max(event_time_ms) FROM (SELECT event_time_ms FROM log.late_record WHERE query_id = %s "
    "AND reason NOT LIKE '%%diverted' ORDER BY id DESC OFFSET %s) beyond"
)


def effects_of(connection: sa.Connection, stored: QueryRow, definition: QueryDefinition, plan: Plan) -> list[Effect]:
    """Return the effects of an edit in place on stored data, as of the last commit; none before the first."""
    committed = connection.execute(
        sa.select(
            commit.c.stream_time_ms,
            commit.c.detail,
            sa.cast(sa.extract("epoch", sa.func.now()) * 1000, sa.BigInteger).label("now_ms"),
        ).where(commit.c.query_id == stored.id, commit.c.checkpoint_id == stored.checkpoint_id)
    ).one_or_none()
    if committed is None:
        return []
    conn = raw(connection)
    before = planned(stored.definition, load_catalog(conn))
    new_definition = definition.model_dump(mode="json", by_alias=True)
    effects = effects_at_once(before, plan, new_definition, committed.detail or {}, committed.now_ms)
    if committed.stream_time_ms is not None:
        effects += _removed_rows(conn, before.output, plan.output, committed.stream_time_ms)
        effects += _unreadable_versions(conn, before.output, plan.output, committed.stream_time_ms)
    return [*effects, *_removed_late_records(conn, stored, before.late_records, plan.late_records)]


def last_commit_at(connection: sa.Connection, stored: QueryRow) -> datetime | None:
    """Return the time of the query's last commit with its present state; None if there is none."""
    return connection.execute(
        sa.select(commit.c.committed_at).where(commit.c.query_id == stored.id, commit.c.checkpoint_id == stored.checkpoint_id)
    ).scalar_one_or_none()


def _removed_rows(conn: Connection, before: Output, after: Output, stream_time_ms: int) -> Iterator[Effect]:
    """Count the windows' rows that a shorter retention of windows removes with the next commit."""
    if before.retention_ms is None or after.retention_ms is None or after.retention_ms >= before.retention_ms:
        return
    end = bound_column(after.key[-1])
    statement = sql.SQL(
        "SELECT count(*), (extract(epoch FROM min({end})) * 1000)::bigint, (extract(epoch FROM max({end})) * 1000)::bigint FROM {view} "
        "WHERE {end} < to_timestamp(%s / 1000.0)"
    ).format(end=end, view=view_identifier(after.name))
    yield _counted(
        conn, statement, [stream_time_ms - after.retention_ms], Effect("/window/retention", "rows_removed", None, 0, 0)
    )


def _unreadable_versions(conn: Connection, before: Output, after: Output, stream_time_ms: int) -> Iterator[Effect]:
    """Count the versions whose validity ends between the old horizon and the new one: as-of reads there would miss them (V4)."""
    before_ms, after_ms = before.history_retention_ms, after.history_retention_ms
    if before_ms is None or after_ms is None or after_ms >= before_ms:
        return
    statement = sql.SQL(
        "SELECT count(*), min(began), max(ended) FROM (SELECT {time} AS began, lead({time}) OVER (PARTITION BY {key} ORDER BY {time}) "
        "AS ended FROM {history}) v WHERE ended <= %s AND ended > %s"
    ).format(
        time=sql.Identifier(RESULT_TIME),
        key=bound_columns(after.key),
        history=history_identifier(after.name),
    )
    horizons = [stream_time_ms - after_ms, stream_time_ms - before_ms]
    yield _counted(conn, statement, horizons, Effect("/into/versioned/history_retention", "versions_unreadable", None, 0, 0))


def _removed_late_records(conn: Connection, stored: QueryRow, before: LateRecords, after: LateRecords) -> Iterator[Effect]:
    """Count the stored late records beyond a shorter retention or a lower maximum. Only the retention limits diverted ones."""
    if after.retention_ms < before.retention_ms:
        effect = Effect("/late_records/retention", "late_records_removed", None, 0, 0)
        yield _counted(conn, _LATE_BEYOND_RETENTION, [stored.id, after.retention_ms], effect)
    if after.max_rows < before.max_rows:
        effect = Effect("/late_records/max_rows", "late_records_removed", None, 0, 0)
        yield _counted(conn, _LATE_BEYOND_CAP, [stored.id, after.max_rows], effect)


def _counted(conn: Connection, statement: sql.SQL | sql.Composed, params: list[Any], effect: Effect) -> Effect:
    count, low, high = conn.execute(statement, params).fetchone() or (0, None, None)
    return Effect(effect.pointer, effect.kind, None, count, count, low, high)

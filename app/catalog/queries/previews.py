"""The records and windows that an edit in place would release, close or exceed at once, from the tasks' reports with their last commit.

Rows and late records that it would remove from reads are counted in the tables.

Tasks report how much waits at which times, in a few spans (``engine.operators.pending.spans``). If the new bound cuts a span, the answer is a
range. An edit without ``?flush=now`` has the same effects with the next record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg
import sqlalchemy as sa
from psycopg import sql

from app.catalog.stored.catalog import load_catalog, planned
from app.catalog.stored.queries import QueryRow
from app.db.database import raw
from app.db.tables import commit
from engine.commit.views import RESULT_TIME, history_identifier, view_identifier
from engine.definition.queries import QueryDefinition
from engine.plan.model import LateRecords, Output, Plan
from engine.plan.operators.answers import RowBound, TimeBound, WaitingKind
from engine.plan.operators.operator import Operator
from engine.postgres.column_names import bound_column, bound_columns

EffectKind = Literal[WaitingKind, "rows_removed", "versions_unreadable", "late_records_removed"]
Spans = Mapping[str, list[list[int]]]


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of an edit on stored data.

    Attributes:
        pointer: the part of the definition that causes it.
        operator: its name; None: the results.
        least: least number of records, rows or windows.
        most: greatest number; equal to ``least`` if the number is exact.
        from_ms: the earliest time: event times, ends of windows, or for a hold the wall clock; None if there is none.
    """

    pointer: str
    kind: EffectKind
    operator: str | None
    least: int
    most: int
    from_ms: int | None = None
    to_ms: int | None = None


def effects_at_once(
    before: Plan, after: Plan, definition: Mapping[str, Any], detail: Mapping[str, Any], now_ms: int
) -> list[Effect]:
    """Return the effects of the new plan at once."""
    joins = {join["as"]: f"/joins/{index}" for index, join in enumerate(definition["joins"])}
    effects = []
    for old_stage, new_stage in zip(before.stages, after.stages, strict=True):
        for old, new in zip(old_stage.operators, new_stage.operators, strict=True):
            times, rows = ({each.setting: each for each in old.time_bounds}, {each.setting: each for each in old.row_bounds})
            effects += [_passed(each, new, joins, detail, now_ms) for each in new.time_bounds if each != times[each.setting]]
            effects += [_overrun(each, new, joins, detail) for each in new.row_bounds if _is_lower(each, rows[each.setting])]
    return effects


def _pointer(bound: TimeBound | RowBound, operator: Operator, joins: Mapping[str, str]) -> str:
    part = joins[str(operator.name)] if operator.part == "joins" else f"/{operator.part}"
    return f"{part}{bound.setting}"


def _passed(bound: TimeBound, operator: Operator, joins: Mapping[str, str], detail: Mapping[str, Any], now_ms: int) -> Effect:
    """Count the records at or before the bound, task by task."""
    least = most = 0
    lows: list[int] = []
    highs: list[int] = []
    clock = now_ms if bound.clock is None else detail.get("clocks", {}).get(bound.clock)
    for spans in _spans(detail, bound.waiting).values():
        for low, high, span_least, span_most in spans if clock is not None else ():
            until = clock - bound.delay_ms
            if low > until:
                continue
            most += span_most
            least += span_least if high <= until else min(span_least, 1)
            lows.append(low)
            highs.append(min(high, until))
    pointer, from_ms, to_ms = _pointer(bound, operator, joins), min(lows, default=None), max(highs, default=None)
    return Effect(pointer, bound.kind, operator.name, least, most, from_ms, to_ms)


def _is_lower(new: RowBound, old: RowBound) -> bool:
    return new.max_rows is not None and (old.max_rows is None or new.max_rows < old.max_rows)


def _overrun(bound: RowBound, operator: Operator, joins: Mapping[str, str], detail: Mapping[str, Any]) -> Effect:
    """Count the rows above a lower bound; those of a hold are per task, and a suppression with bounds has one (S4)."""
    waiting = _spans(detail, bound.waiting)
    excess = sum(max(sum(span[3] for span in spans) - (bound.max_rows or 0), 0) for spans in waiting.values())
    return Effect(_pointer(bound, operator, joins), bound.kind, operator.name, excess, excess)


def _spans(detail: Mapping[str, Any], name: str) -> Spans:
    spans: Spans = detail.get("waiting", {}).get(name, {})
    return spans


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

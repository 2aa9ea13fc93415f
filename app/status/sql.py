"""Facts that drivers wrote about queries: state, progress, counters. Read only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.scopes_sql import query_is_visible
from app.catalog.drivers.sql import IS_UNPLACED
from app.db.tables import commit, counter, query, query_status, state_retention
from engine.commit.removed_records import SKIPPED


@dataclass(frozen=True, slots=True)
class Status:
    """One query's desired state and facts.

    Attributes:
        is_unreachable: its lease has expired although it should be alive.
        is_unplaced: it needs a driver now and has none.
        state_root: the directory of its state; None: it has no state yet.
        position: feed to partition to next offset, as of the last commit.
        skipped: feed to partition to the intended first offset and the actual one, for partitions whose first records were removed.
        detail: what the sink recorded with the last commit: clocks, buffered.
        commit_age_s: time since the last commit.
        restorable_since: dumps of the database since this time name only state that exists; None: since the query's beginning.
    """

    query_id: UUID
    name: str
    desired_state: str
    generation: int
    restart_nonce: int
    state: str
    phase: str | None
    state_since: datetime
    observed_generation: int
    observed_restart_nonce: int
    epoch: int
    attempt: int
    next_attempt_at: datetime | None
    heartbeat_at: datetime | None
    error: dict[str, Any] | None
    is_unreachable: bool
    is_unplaced: bool
    state_root: UUID | None
    batch_id: int | None
    committed_at: datetime | None
    position: dict[str, dict[str, int]] | None
    skipped: dict[str, dict[str, list[int]]] | None
    stream_time_ms: int | None
    detail: dict[str, Any] | None
    commit_age_s: float | None
    restorable_since: datetime | None

    def has_reached(self, wanted: str) -> bool:
        """Return whether ``wanted`` is the state now, and not of an earlier desired state or of a driver that is gone."""
        is_current = self.observed_generation == self.generation and self.observed_restart_nonce == self.restart_nonce
        is_live = not (wanted == "running" and self.is_unreachable)
        return self.state == wanted and is_live and (is_current or wanted in ("stopped", "stopping"))

    @property
    def is_final(self) -> bool:
        """Whether waiting is useless: the query failed with its current definition."""
        return self.has_reached("failed")


# States that need a lease; after its end, no driver is known to run the query.
_LEASED = ("starting", "running", "paused", "stopping")
AGE_S = sa.cast(sa.func.extract("epoch", sa.func.clock_timestamp() - commit.c.committed_at), sa.Float)
"""Seconds since the last commit of a query."""

_STATUS = (
    sa.select(
        query.c.id.label("query_id"),
        query.c.name,
        query.c.desired_state,
        query.c.generation,
        query.c.restart_nonce,
        query_status.c.state,
        query_status.c.phase,
        query_status.c.state_since,
        query_status.c.observed_generation,
        query_status.c.observed_restart_nonce,
        query_status.c.epoch,
        query_status.c.attempt,
        query_status.c.next_attempt_at,
        query_status.c.heartbeat_at,
        query_status.c.error,
        sa.and_(
            query_status.c.state.in_(_LEASED), sa.func.coalesce(query_status.c.lease_expires_at < sa.func.now(), sa.true())
        ).label("is_unreachable"),
        IS_UNPLACED.label("is_unplaced"),
        sa.case((query_status.c.state_checkpoint_id == query.c.checkpoint_id, query_status.c.state_root)).label("state_root"),
        commit.c.batch_id,
        commit.c.committed_at,
        commit.c.position,
        commit.c.cursor[SKIPPED].label("skipped"),
        commit.c.stream_time_ms,
        commit.c.detail,
        AGE_S.label("commit_age_s"),
        state_retention.c.since.label("restorable_since"),
    )
    .join_from(query, query_status)
    .join(commit, sa.and_(commit.c.query_id == query.c.id, commit.c.checkpoint_id == query.c.checkpoint_id), isouter=True)
    .join(state_retention, state_retention.c.query_id == query.c.id, isouter=True)
    .where(query.c.deleted_at.is_(None))
)


async def find_status(connection: AsyncConnection, name: str) -> Status | None:
    row = (await connection.execute(_STATUS.where(query.c.name == name))).mappings().one_or_none()
    return None if row is None else Status(**row)


async def find_status_by_id(connection: AsyncConnection, query_id: UUID) -> Status | None:
    row = (await connection.execute(_STATUS.where(query.c.id == query_id))).mappings().one_or_none()
    return None if row is None else Status(**row)


_AT_A_GLANCE = ("read_rows", "emitted_rows", "buffered", "phases_ms")
"""Parts of a commit's detail that the overview needs: the whole detail has kilobytes for each query."""


async def list_statuses(connection: AsyncConnection, limit: int, after: str | None) -> list[Status]:
    """Return statuses by name, beginning behind ``after``, each with a part of its detail; only queries within the scope."""
    parts = [part for name in _AT_A_GLANCE for part in (sa.literal(name), commit.c.detail[name])]
    detail = sa.case((commit.c.detail.is_not(None), sa.func.jsonb_build_object(*parts))).label("detail")
    columns = [detail if column.name == "detail" else column for column in _STATUS.selected_columns]
    statement = _STATUS.with_only_columns(*columns).where(query_is_visible()).order_by(query.c.name).limit(limit)
    if after is not None:
        statement = statement.where(query.c.name > after)
    return [Status(**row) for row in (await connection.execute(statement)).mappings()]


async def counters_of(connection: AsyncConnection, owner: UUID) -> list[tuple[str, str, int]]:
    """Return (input, reason, count) of each counter of an owner."""
    rows = await connection.execute(
        sa.select(counter.c.input, counter.c.reason, counter.c.total)
        .where(counter.c.owner == owner)
        .order_by(counter.c.input, counter.c.reason)
    )
    return [tuple(row) for row in rows]

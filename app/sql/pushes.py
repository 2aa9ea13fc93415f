"""Push queries: SELECT ... EMIT, answered with rows as they come.

A SELECT over single records of a relation follows that relation's changes. Any other one starts a transient query
(``app.sql.catalog.transient``) and follows its result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

import polars as pl
import sqlalchemy as sa
from anyio import CancelScope, to_thread

from app.errors.app_errors import Conflict, TooManyRequests
from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tails import Tails
from app.http.parameters import Services, planned
from app.sql.catalog import transient
from app.sql.catalog.following import Beginning, FrameFollower, following
from app.sql.reads.pulls import RowReader
from app.sql.scripts import ScriptRunner
from engine.definition.queries import QueryDefinition
from engine.expressions.types.types import Schema
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import RelationKind, Select
from engine.statements.reads.reading import beginning_of, followed_by
from engine.statements.reads.transient import transient_of

QUIET_S = 5.0
"""Time without a row after which an empty batch is sent, to detect a client that is gone."""

EVENT_TIME = "$event_time_ms"
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class PushedRows:
    """Rows of a push query; empty after a quiet time.

    Attributes:
        frame: the result's columns.
        times_ms: event time of each row.
        deleted: whether each row of a table is deleted.
    """

    frame: pl.DataFrame
    times_ms: list[int]
    deleted: list[bool]


@dataclass(frozen=True, slots=True)
class Push:
    """A running push query.

    Attributes:
        key: names of the columns that identify rows; empty for a stream.
        query: name of its transient query; None: it follows a relation.
    """

    columns: Schema
    key: tuple[str, ...]
    query: str | None
    limit: int | None
    rows: AsyncIterator[PushedRows]


@asynccontextmanager
async def pushing(services: Services, runner: ScriptRunner, parsed: Parsed) -> AsyncIterator[Push]:
    """Yield a push query; it ends with the block.

    Raises:
        AppError: it is invalid, or there are too many streams.
    """
    select = parsed.tree
    if not isinstance(select, Select):
        raise TypeError("a push query is a SELECT")
    refuse_too_many(services)
    with services.of(Tails).counted():
        async with _pushed(services, runner, parsed, select) as push:
            yield push


def refuse_too_many(services: Services) -> None:
    """Refuse one stream of rows more than the settings allow.

    Raises:
        TooManyRequests: ``too_many_streams``.
    """
    most = services.settings.push.max_streams
    if services.of(Tails).streams >= most:
        detail = f"{most} event streams are open; close some, or raise SLACKWATER_PUSH__MAX_STREAMS"
        raise TooManyRequests("too_many_streams", detail, headers={"Retry-After": "10"})


@asynccontextmanager
async def _pushed(services: Services, runner: ScriptRunner, parsed: Parsed, select: Select) -> AsyncIterator[Push]:
    beginning: Beginning = await runner.inspected(parsed, beginning_of)
    read = await runner.inspected(parsed, lambda known: followed_by(select, known))
    if read is not None:
        reader = await planned(services, partial(RowReader, read))
        async with _following(services, read.relation.kind, read.relation.definition_name, beginning) as follower:
            rows = _rows(services, follower, partial(_looked_at, reader), read.relation.kind)
            yield Push(read.types, (), None, read.limit, rows)
        return
    transient_read = await runner.inspected(parsed, lambda known: transient_of(select, known, beginning))
    named = transient.named(transient_read.definition)
    async with _reader(services, named, parsed.text) as lease, _following(services, "stream", named.name, "earliest") as follower:
        rows = _rows(services, follower, partial(_made, transient_read.types.names), transient_read.kind, lease)
        yield Push(transient_read.types, (), named.name, transient_read.limit, rows)


@asynccontextmanager
async def _following(services: Services, kind: str, name: str, beginning: Beginning) -> AsyncIterator[FrameFollower]:
    followed = await services.of(Followables).find("table" if kind == "table" else "stream", name, takes_records=True)
    async with following(services.of(Tails), ChangeSource(followed, has_text_numbers=False), beginning) as follower:
        yield follower


class _Lease:
    """The row that keeps a transient query alive for one reader."""

    def __init__(self, services: Services, reader: UUID, name: str) -> None:
        self._services, self._reader, self._name = services, reader, name
        self._renewed_at = time.monotonic()

    async def renew(self) -> None:
        """Renew the lease; raises ``Conflict`` (``query_failed``) if the query has failed."""
        if time.monotonic() - self._renewed_at < transient.RENEWED_EVERY_S:
            return
        self._renewed_at = time.monotonic()
        why = await _edit(self._services, lambda connection: transient.renew(connection, self._reader, self._name))
        if why is not None:
            raise Conflict("query_failed", f"the query behind this SELECT has ended: {why}")


@asynccontextmanager
async def _reader(services: Services, definition: QueryDefinition, text: str) -> AsyncIterator[_Lease]:
    most, cores = services.settings.sql.max_transient_queries, services.settings.spark.query_cores
    reader = await _edit(services, lambda connection: transient.join(connection, definition, text, most, cores))
    try:
        yield _Lease(services, reader, definition.name)
    finally:
        with CancelScope(shield=True):
            await _edit(services, lambda connection: transient.leave(connection, reader))


async def _edit(services: Services, work: Callable[[sa.Connection], Found]) -> Found:
    def working() -> Found:
        with services.database.control.begin() as connection:
            return work(connection)

    async with services.database.control_turns.taken():
        return await to_thread.run_sync(working)


async def _rows(
    services: Services,
    follower: FrameFollower,
    read: Callable[[pl.DataFrame], PushedRows],
    kind: RelationKind,
    lease: _Lease | None = None,
) -> AsyncIterator[PushedRows]:
    quiet_since = time.monotonic()
    while not services.of(Tails).is_closing:
        if lease is not None:
            await lease.renew()
        for frame in await follower.next():
            rows = await asyncio.to_thread(read, _shown(frame, kind))
            if rows.frame.height:
                quiet_since = time.monotonic()
                yield rows
        if time.monotonic() - quiet_since >= QUIET_S:
            quiet_since = time.monotonic()
            yield PushedRows(pl.DataFrame(), [], [])
        await follower.wait(1.0)


def _shown(frame: pl.DataFrame, kind: RelationKind) -> pl.DataFrame:
    """Drop records of a stream without a value: they are not rows. In a table, such a record deletes a row."""
    return frame.filter(pl.col("_op") == 0) if kind == "stream" else frame


def _made(columns: Sequence[str], frame: pl.DataFrame) -> PushedRows:
    return PushedRows(frame.select(columns), frame["_ts"].to_list(), (frame["_op"] != 0).to_list())


def _looked_at(reader: RowReader, frame: pl.DataFrame) -> PushedRows:
    selected = reader.selected(frame.rename({"_ts": EVENT_TIME}), {"_deleted": pl.col("_op") != 0})
    shown = reader.shown(selected).with_columns(
        pl.when(selected["_deleted"]).then(None).otherwise(pl.col(name)).alias(name)
        for name in reader.values  # only the key of a deleted row remains
    )
    time_column = next(name for name in selected.columns if name.endswith(f".{EVENT_TIME}"))
    return PushedRows(shown, selected[time_column].to_list(), selected["_deleted"].to_list())

"""Relations that can be followed, with the log of their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar
from uuid import UUID

import polars as pl
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.access.rules import visible
from app.catalog.relations.materialisations import materialised_output
from app.catalog.relations.parts import is_part_of
from app.catalog.stored.catalog import entry_of, output_to_json
from app.catalog.stored.relations import ROWS, Kind, RelationRow, entry_of_row, of_kind
from app.db.shared_reads import SharedReads
from app.db.tables import feed, incarnation, query, relation
from app.errors.app_errors import AppError, Conflict, Unavailable
from app.following.cursors import identity_of
from app.reads.readable import written
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.plan.catalog import CatalogEntry
from engine.plan.model import Output, RelationSchema

T = TypeVar("T")


@dataclass(frozen=True)
class Followed:
    """A relation whose changes are in the log.

    Attributes:
        output: the stored rows of a table; None for a stream.
        identity: of the log, in cursors (``identity_of``).
        incarnation: of the database, see ``engine.postgres.incarnation``.
        rewound: random id of the last rewind of the log's query; its numbers are used again since.
        is_derived: its rows are numbered across its partitions, and followers use these numbers (P1).
        relation: the schema of a stream's records.
        query_id: the query whose commits bring changes; None: changes come by appends.
        relation_id: the relation's row.
        stored_columns: of that row. If they change, events have another form.
        partitions: of its log, as followers see them.
        parts: of a stream: logs whose records belong to it as well, in the order of their creation (P13).
        part: set if the relation is a part of another stream (``relation`` is then that stream's): its name, if the client may see it.
    """

    name: str
    kind: Kind
    feed_id: int
    is_derived: bool
    identity: str
    incarnation: UUID | None
    rewound: UUID | None
    relation: RelationSchema
    output: Output | None
    query_id: UUID | None
    relation_id: UUID
    stored_columns: Any
    partitions: int = 1
    parts: tuple[Followed, ...] = ()
    part: str | None = None

    @cached_property
    def lanes(self) -> tuple[tuple[Followed, int], ...]:
        """Ordered sequences, as cursors count them: each partition of its log, then each part."""
        return (*((self, partition) for partition in range(self.partitions)), *((part, 0) for part in self.parts))

    @property
    def columns(self) -> Schema:
        return self.relation.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.relation.key

    @cached_property
    def member(self) -> pl.Expr | None:
        """The condition under which a record of a shared feed belongs to the relation."""
        return None if self.relation.where is None else compile_scalar(self.relation.where, self.relation.columns).expr


class Followables:
    """The relations that can be followed. Concurrent requests share one look-up: many clients come at once."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._shared_reads = SharedReads(self._fetch)

    async def find(self, kind: Kind, name: str, *, takes_records: bool = False) -> Followed:
        """Return a stream or table with the log to follow.

        Args:
            kind: of the relation.
            name: of the relation.
            takes_records: for a table without stored rows, follow the appended records instead.

        Raises:
            NotFound: ``relation_not_found``.
            Conflict: ``table_not_materialised``; ``not_readable``: its records are not in the built-in log.
            Unavailable: ``relation_changing``.
        """
        result: Any = await self._shared_reads.read(_FollowRequest(kind, name, takes_records))
        return _visible(result)

    async def _fetch(self, requests: list[_FollowRequest]) -> tuple[Followed | AppError, ...]:
        async with self._engine.connect() as connection:
            return await _load(connection, requests)


@dataclass(frozen=True, slots=True)
class _FollowRequest:
    """A request to follow a relation."""

    kind: Kind
    name: str
    takes_records: bool


def _visible(result: Followed | AppError) -> Followed:
    """Return a relation with the names of its parts only if the client may see them."""
    if isinstance(result, AppError):
        raise result
    return (
        replace(result, parts=tuple(replace(part, part=visible(part.name)) for part in result.parts)) if result.parts else result
    )


async def _load(connection: AsyncConnection, requests: Sequence[_FollowRequest]) -> tuple[Followed | AppError, ...]:
    """Return each relation with its parts, or the error for it, with three statements."""
    rows = await _rows(connection, requests)
    read = {each: _tried(partial(_read, rows, each)) for each in requests}
    known = [each for several in read.values() if not isinstance(several, AppError) for each in several]
    logs = await _logs(connection, {each.entry.feed.log_feed for each in known})
    writers = await _writers(connection, {each.writer for each in known if each.writer is not None})
    built = {
        each: several if isinstance(several, AppError) else _tried(partial(_built, several, logs, writers))
        for each, several in read.items()
    }
    return tuple(built[each] for each in requests)


@dataclass(frozen=True, slots=True)
class _Read:
    """A relation as it is stored.

    Attributes:
        entry: the relation or its rows, as followers see it.
        writer: name of the query whose commits bring changes.
        output: see ``Followed``.
    """

    row: RelationRow
    entry: CatalogEntry
    writer: str | None
    output: Output | None


def _tried(make: Callable[[], T]) -> T | AppError:
    try:
        return make()
    except AppError as error:
        return error


async def _rows(connection: AsyncConnection, requests: Sequence[_FollowRequest]) -> Sequence[RelationRow]:
    """Return these relations, and the parts of the streams among them, in the order of their creation."""
    condition = relation.c.name == _any_of(each.name for each in requests)
    if streams := {each.name for each in requests if each.kind == "stream"}:
        condition = sa.or_(condition, is_part_of(_any_of(streams)))
    rows = await connection.execute(ROWS.where(condition).order_by(relation.c.created_at, relation.c.name))
    return [RelationRow(*row) for row in rows]


def _any_of(names: Iterable[str]) -> sa.ColumnElement[Any]:
    return sa.any_(sa.literal(sorted(set(names)), ARRAY(sa.Text)))


def _read(rows: Sequence[RelationRow], request: _FollowRequest) -> list[_Read]:
    row = of_kind(next((row for row in rows if row.name == request.name), None), request.kind, request.name)
    is_bare = request.takes_records and row.origin == "source" and materialised_output(row) is None
    writer, output = written(row) if row.kind == "table" and not is_bare else (row.produced_by, None)
    # Followers of a source's rows see what its internal query writes.
    entry = entry_of_row(row) if output is None else entry_of(row.name, row.kind, "derived", output_to_json(output), writer, [])
    if not entry.feed.traits.is_kept_here:
        detail = f"'{row.name}' reads {entry.feed.traits.holds}; only records in the built-in log can be followed"
        raise Conflict("not_readable", detail)
    whole = _Read(row, entry, writer, output)
    if row.kind == "table":
        return [whole]
    return [whole, *(_Read(part, entry_of_row(part), part.produced_by, None) for part in rows if _is_part(part, row.name))]


def _is_part(row: RelationRow, whole: str) -> bool:
    return row.origin == "derived" and row.definition.get("append_to") == whole


async def _logs(connection: AsyncConnection, feeds: Iterable[str]) -> Mapping[str, Any]:
    columns = feed.c.name, feed.c.id, feed.c.partitions, feed.c.next_sequence, feed.c.rewound
    rows = await connection.execute(
        sa.select(*columns, incarnation.c.id.label("incarnation"))
        .join_from(feed, incarnation, sa.true())
        .where(feed.c.name == _any_of(feeds))
    )
    return {row.name: row for row in rows}


async def _writers(connection: AsyncConnection, names: Iterable[str]) -> Mapping[str, UUID]:
    rows = await connection.execute(
        sa.select(query.c.name, query.c.id).where(query.c.name == _any_of(names), query.c.deleted_at.is_(None))
    )
    return {row.name: row.id for row in rows}


def _built(read: Sequence[_Read], logs: Mapping[str, Any], writers: Mapping[str, UUID]) -> Followed:
    """Return a relation with its parts. The parts get the schema of the whole."""
    whole, *parts = (_of_log(each, logs, writers) for each in read)
    return replace(whole, parts=tuple(replace(part, relation=whole.relation, part=part.name) for part in parts))


def _of_log(read: _Read, logs: Mapping[str, Any], writers: Mapping[str, UUID]) -> Followed:
    row, log = read.row, logs.get(read.entry.feed.log_feed)
    if log is None:
        raise Unavailable("relation_changing", f"'{row.name}' is being changed; try again", headers={"Retry-After": "1"})
    return Followed(
        partitions=log.partitions if log.next_sequence is None else 1,
        name=row.name,
        kind=row.kind,
        feed_id=log.id,
        is_derived=log.next_sequence is not None,
        identity=identity_of(row.id, log.id, log.incarnation, log.rewound),
        incarnation=log.incarnation,
        rewound=log.rewound,
        relation=read.entry.relation,
        output=read.output,
        query_id=None if read.writer is None else writers.get(read.writer),
        relation_id=row.id,
        stored_columns=row.definition["columns"],
    )

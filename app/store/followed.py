"""What can be followed: a relation, with the log that its changes are in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

import polars as pl
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import visible
from app.domain.change_cursors import identity_of
from app.errors import Conflict, Unavailable
from app.store.catalog import entry_of, output_to_json
from app.store.log_tables import feed, incarnation
from app.store.materialisations import materialised_output
from app.store.parts import parts_in_order
from app.store.readable import written
from app.store.relations import Kind, of_kind
from app.store.tables import query
from app.store.targets import entry_of_row, find_relation_async
from engine.definition.expressions import compile_scalar
from engine.definition.types import Schema
from engine.plan.model import Output, RelationSchema


@dataclass(frozen=True)
class Followed:
    """A relation whose changes are in the log.

    Attributes:
        output: what a table's rows are kept as; None for a stream, which has none.
        identity: tells the log from every other one, in cursors.
        incarnation: of all logs, see ``engine.connectors.incarnation``.
        rewound: of its log, drawn when its query was last rewound: numbers are given again since.
        is_derived: its rows are numbered across its partitions, and followed by these numbers (P1).
        relation: what a stream's records must be.
        query_id: whose commits bring changes; None: they come by appends.
        relation_id: the relation's row.
        stored_columns: as that has them; with others, what is told has another form.
        partitions: of its log, as it is followed.
        parts: of a stream: those to which its records belong as well, in the order in which they were made (P13).
        part: it is followed as a part of another stream, with that one's ``relation``: its name, as who asks may see it.
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
        """What has an order of its own, as cursors count it: each partition of its log, then each part."""
        return (*((self, partition) for partition in range(self.partitions)), *((part, 0) for part in self.parts))

    @property
    def columns(self) -> Schema:
        """The columns of a row."""
        return self.relation.columns

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, in order."""
        return self.relation.key

    @cached_property
    def member(self) -> pl.Expr | None:
        """The condition under which a record of a shared feed belongs to the relation."""
        return None if self.relation.where is None else compile_scalar(self.relation.where, self.relation.columns).expr


async def find_followed(connection: AsyncConnection, kind: Kind, name: str, *, takes_records: bool = False) -> Followed:
    """Return the stream or table of that name as it can be followed.

    Args:
        connection: to read with.
        kind: of the relation.
        name: of the relation.
        takes_records: of a table whose rows are kept nowhere the records that were appended will do.

    Raises:
        NotFound: ``relation_not_found``.
        Conflict: ``table_not_materialised``; ``not_readable``: its records are not in the built-in log.
        Unavailable: ``relation_changing``.
    """
    row = of_kind(await find_relation_async(connection, name), kind, name)
    is_bare = takes_records and row.origin == "source" and materialised_output(row) is None
    writer, output = written(row) if kind == "table" and not is_bare else (row.produced_by, None)
    # The rows of a source are followed as its internal query writes them.
    entry = entry_of_row(row) if output is None else entry_of(name, kind, "derived", output_to_json(output), writer, [])
    if not entry.feed.traits.is_kept_here:
        raise Conflict(
            "not_readable", f"'{name}' reads {entry.feed.traits.holds}; only records in the built-in log can be followed"
        )
    log = (
        await connection.execute(
            sa.select(feed.c.id, feed.c.partitions, feed.c.next_sequence, feed.c.rewound, incarnation.c.id.label("incarnation"))
            .join_from(feed, incarnation, sa.true())
            .where(feed.c.name == entry.feed.log_feed)
        )
    ).one_or_none()
    if log is None:
        raise Unavailable("relation_changing", f"'{name}' is being changed; try again", headers={"Retry-After": "1"})
    return Followed(
        partitions=log.partitions if log.next_sequence is None else 1,
        parts=await _parts(connection, name, entry.relation) if kind == "stream" else (),
        name=name,
        kind=kind,
        feed_id=log.id,
        is_derived=log.next_sequence is not None,
        identity=identity_of(row.id, log.id, log.incarnation, log.rewound),
        incarnation=log.incarnation,
        rewound=log.rewound,
        relation=entry.relation,
        output=output,
        query_id=await _writer(connection, writer),
        relation_id=row.id,
        stored_columns=row.definition["columns"],
    )


async def _parts(connection: AsyncConnection, name: str, whole: RelationSchema) -> tuple[Followed, ...]:
    """Return the parts of a stream, whose records are judged as that one's."""
    names = (await connection.execute(parts_in_order(name))).scalars().all()
    found = [await find_followed(connection, "stream", part) for part in names]
    return tuple(replace(each, relation=whole, part=visible(each.name)) for each in found)


async def _writer(connection: AsyncConnection, name: str | None) -> UUID | None:
    if name is None:
        return None
    wanted = sa.select(query.c.id).where(query.c.name == name, query.c.deleted_at.is_(None))
    found: UUID | None = (await connection.execute(wanted)).scalar_one_or_none()
    return found

"""The newest position of each key of a table in its database's log. It is stored in the transaction that appends the change.

A source of changes delivers at least once, and from an earlier position after a restart. A change that is the same as the stored one of its key,
or older, is left out. So a repeated request appends nothing, and a deleted row does not come back. Positions that did not change for the
retention of change feeds are deleted. The latest deleted position and commit stay as the *floor*. A change below the floor whose key is unknown
is rejected (``change_forgotten``), because it may be older than a deleted one. So no old change replaces a newer one, and the stored positions
are bounded by the keys that changed within the retention.

The columns of each database's changes are stored too. A column that is missing later was dropped or renamed. Its null would be no value, so the
change is rejected (``column_gone``). The table of the first change is stored as well: a row of another table with the same key would replace it
(``other_table``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import polars as pl
import psycopg

from engine.formats.bodies.body_formats import IS_NAMED
from engine.formats.debezium.absent import ABSENT
from engine.formats.debezium.positions import TABLE, without_older
from engine.frames.position_columns import COMMITTED, ORIGIN, POSITION
from engine.records.canonical import OP_UPSERT, reject_rows
from engine.records.excerpts import excerpts_of

KEY = "_key"
STEP_ROWS = 5_000
"""Positions deleted in one transaction: appends of changes to the table wait for it."""


class Source(NamedTuple):
    """The stored facts about all changes of one database to a table.

    Attributes:
        floor: the latest deleted position; None: nothing was deleted.
        floor_us: the latest deleted commit; None: unknown.
        columns: of its changes.
        table: the database's table of the first change; None: unknown.
    """

    floor: str | None
    floor_us: int | None
    columns: frozenset[str]
    table: str | None


Sources = dict[tuple[UUID, str], Source]
"""By table and origin."""

_KEY_BYTES = 16
_NAMED = 8
"""Most columns that an error names."""

_SHOWN_CHARS = 64
"""Longest part of a table's name in an error."""

_LOCK = """
    INSERT INTO log.change_source AS kept (relation, origin)
    SELECT relation, origin FROM unnest(%s::uuid[], %s::text[]) AS found (relation, origin) ORDER BY relation, origin
    ON CONFLICT (relation, origin) DO UPDATE SET origin = kept.origin RETURNING relation, origin, floor, floor_us, columns, source_table
"""
_KNOWN = """
    SELECT key, origin, position, committed_us FROM unnest(%s::text[], %s::bytea[]) AS wanted (origin, key)
    JOIN log.change_position USING (origin, key) WHERE relation = %s
"""
_KEEP = """
    INSERT INTO log.change_position AS kept (relation, origin, key, position, committed_us)
    SELECT %s, origin, key, position, committed_us
    FROM unnest(%s::text[], %s::bytea[], %s::text[], %s::bigint[]) AS found (origin, key, position, committed_us)
    ON CONFLICT (relation, origin, key) DO UPDATE SET position = excluded.position, committed_us = excluded.committed_us, at = now()
"""
_KEEP_SOURCE = "UPDATE log.change_source SET columns = %s, source_table = %s WHERE relation = %s AND origin = %s"
_OLD_SOURCES = """
    SELECT relation, origin FROM log.change_source s WHERE EXISTS (
        SELECT FROM log.change_position p WHERE p.relation = s.relation AND p.origin = s.origin
        AND p.at < now() - %s * interval '1 millisecond'
    )
"""
_LOCK_SOURCE = "SELECT FROM log.change_source WHERE relation = %s AND origin = %s FOR UPDATE"
_FORGET = """
    WITH gone AS (
        DELETE FROM log.change_position WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM log.change_position
            WHERE relation = %(relation)s AND origin = %(origin)s AND at < now() - %(kept_ms)s * interval '1 millisecond' LIMIT %(step)s
        )) RETURNING position, committed_us
    ), highest AS (SELECT max(position) AS position, max(committed_us) AS committed_us, count(*) AS rows FROM gone)
    UPDATE log.change_source SET floor = greatest(floor, highest.position), floor_us = greatest(floor_us, highest.committed_us) FROM highest
    WHERE relation = %(relation)s AND origin = %(origin)s RETURNING highest.rows
"""
_DELETED = """
    SELECT DISTINCT relation FROM log.change_source s WHERE NOT EXISTS (SELECT FROM slackwater.relation r WHERE r.id = s.relation)
"""
_STEP_OF_DELETED = (
    "DELETE FROM log.change_position WHERE ctid = ANY(ARRAY(SELECT ctid FROM log.change_position WHERE relation = %s LIMIT %s))"
)


def keyed(accepted: pl.DataFrame, key: Sequence[str], changes: pl.DataFrame) -> pl.DataFrame:
    """Add a digest of the key to the position of each accepted record.

    Args:
        accepted: canonical records; ``_offset`` is the row of ``changes``.
        key: names of the key's columns.
        changes: positions, as ``read_posted`` returns them.
    """
    rows = accepted.select(key).iter_rows()
    digests = [hashlib.sha256(repr(row).encode()).digest()[:_KEY_BYTES] for row in rows]
    return changes[accepted.get_column("_offset")].with_columns(pl.Series(KEY, digests, dtype=pl.Binary))


async def lock_origins(cursor: psycopg.AsyncCursor[Any], changes: Iterable[tuple[UUID, pl.DataFrame]]) -> Sources:
    """Lock these origins: other appends of their changes wait for the end of the transaction.

    Args:
        cursor: in the transaction of the append. Call this once in it: a second call could cause a deadlock.
        changes: table, and changes to it as ``keyed`` returns them.

    Returns:
        The stored facts about each.
    """
    pairs = {(relation, origin) for relation, part in changes for origin in part.get_column(ORIGIN).unique().to_list()}
    if not pairs:
        return {}
    relations, origins = zip(*pairs, strict=True)
    rows = await (await cursor.execute(_LOCK, (list(relations), list(origins)))).fetchall()
    return {
        (relation, origin): Source(floor, floor_us, frozenset(columns), table)
        for relation, origin, floor, floor_us, columns, table in rows
    }


async def newer_alone(
    cursor: psycopg.AsyncCursor[Any],
    relation: UUID,
    accepted: pl.DataFrame,
    changes: pl.DataFrame,
    sources: Sources,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Leave out records that are older than the stored positions of their keys, and store the positions of the others.

    Args:
        cursor: in the transaction of the append.
        relation: id of the table.
        accepted: canonical records, in the order of arrival.
        changes: of each record, as ``keyed`` returns them.
        sources: as ``lock_origins`` returned them for these changes; gets the columns of these.

    Returns:
        ``(records, rejects)``: the newer records, and those that are rejected, because their age or their content is uncertain.
    """
    keys = changes.select(ORIGIN, KEY).unique()
    values = (keys.get_column(ORIGIN).to_list(), keys.get_column(KEY).to_list(), relation)
    rows = await (await cursor.execute(_KNOWN, values)).fetchall()
    known = [(bytes(key), origin, position, committed) for key, origin, position, committed in rows]
    schema = {KEY: pl.Binary(), ORIGIN: pl.String(), POSITION: pl.String(), COMMITTED: pl.Int64()}
    newest = pl.DataFrame(known, schema=schema, orient="row")
    placed = changes.with_row_index("_place").with_columns((accepted.get_column("_op") == OP_UPSERT).alias("_is_put"))
    forgotten = _forgotten(placed, newest, {origin: source for (table, origin), source in sources.items() if table == relation})
    current = placed.filter(~forgotten)
    counting, latest = without_older(current, [KEY], newest)
    names = [name for name in accepted.columns if not name.startswith(("_", "$"))]
    unfit = await _unfit(cursor, relation, counting, names, sources)
    if unfit:  # rejected changes move no position, so they count when they come again
        counting, latest = without_older(current.filter(~pl.col("_place").is_in([*unfit])), [KEY], newest)
    moved = latest.join(newest, on=[KEY, ORIGIN, POSITION, COMMITTED], how="anti", nulls_equal=True)
    if moved.height:
        moved_columns = (moved.get_column(name).to_list() for name in (ORIGIN, KEY, POSITION, COMMITTED))
        await cursor.execute(_KEEP, (relation, *moved_columns))
    refused = [(place, "change_forgotten", _FORGOTTEN) for place in forgotten.arg_true().to_list()]
    refused += [(place, reason, detail) for place, (reason, detail) in unfit.items()]
    return accepted[counting.get_column("_place")], _rejects(accepted, refused)


def forget_positions(connection: psycopg.Connection[Any], kept_ms: int, step_rows: int = STEP_ROWS) -> None:
    """Delete positions that did not change for ``kept_ms``, and those of deleted tables.

    Args:
        connection: in autocommit mode.
        kept_ms: the retention of change feeds.
        step_rows: rows to delete in one transaction.
    """
    for relation, origin in connection.execute(_OLD_SOURCES, (kept_ms,)).fetchall():
        rows = step_rows
        while rows == step_rows:
            with connection.transaction():  # lock the source before its positions, as appends do
                connection.execute(_LOCK_SOURCE, (relation, origin))
                values = {"relation": relation, "origin": origin, "kept_ms": kept_ms, "step": step_rows}
                row = connection.execute(_FORGET, values).fetchone()
                rows = 0 if row is None else row[0]
    for (relation,) in connection.execute(_DELETED).fetchall():
        while connection.execute(_STEP_OF_DELETED, (relation, step_rows)).rowcount:
            pass
        connection.execute("DELETE FROM log.change_source WHERE relation = %s", (relation,))


async def _unfit(
    cursor: psycopg.AsyncCursor[Any],
    relation: UUID,
    counting: pl.DataFrame,
    names: Sequence[str],
    sources: Sources,
) -> dict[int, tuple[str, str]]:
    """Store the facts about each database's rows; return the changes that contradict them, with reason and detail."""
    unfit: dict[int, tuple[str, str]] = {}
    for (origin,), part in counting.group_by(ORIGIN, maintain_order=True):
        source = stored = sources[relation, str(origin)]
        if source.table is None and IS_NAMED not in part.columns:
            source = source._replace(table=next(iter(part.get_column(TABLE).drop_nulls().head(1)), None))
        is_other = _is_other(part, source)
        first = "the tables that source_table names" if IS_NAMED in part.columns else repr(str(source.table)[:_SHOWN_CHARS])
        for place, table in part.filter(is_other).select("_place", TABLE).iter_rows():
            unfit[place] = ("other_table", _OTHER.format(name=str(table)[:_SHOWN_CHARS], first=first))
        # Deletes have only the columns of their keys.
        puts = part.filter(~is_other & pl.col("_is_put"))
        columns = source.columns
        if puts.height and puts.get_column(ABSENT).null_count() == puts.height:
            columns = columns.union(names)
        else:
            for place, absent in puts.select("_place", ABSENT).iter_rows():
                lost = [name for name in absent or () if name in columns][:_NAMED]
                if lost:
                    unfit[place] = ("column_gone", _GONE.format(names=", ".join(map(repr, lost)), given=",".join(lost)))
                else:
                    columns = columns.union(name for name in names if name not in (absent or ()))
        source = source._replace(columns=columns)
        if source != stored:
            sources[relation, str(origin)] = source
            await cursor.execute(_KEEP_SOURCE, (sorted(columns), source.table, relation, origin))
    return unfit


def _is_other(part: pl.DataFrame, source: Source) -> pl.Series:
    """Return which changes are of another table: not named by the request, or else not that of the first change."""
    if IS_NAMED in part.columns:
        return ~part.get_column(IS_NAMED)
    return (part.get_column(TABLE) != pl.Series([source.table], dtype=pl.String)).fill_null(value=False)


def _forgotten(placed: pl.DataFrame, newest: pl.DataFrame, sources: Mapping[str, Source]) -> pl.Series:
    """Return which changes of unknown keys are below the floor."""
    if all(source.floor is None for source in sources.values()):
        return pl.repeat(value=False, n=placed.height, dtype=pl.Boolean, eager=True)
    known = set(newest.select(KEY, ORIGIN).iter_rows())
    is_below = [
        position is not None and (key, origin) not in known and _is_below(sources[origin], position, committed)
        for key, origin, position, committed in placed.select(KEY, ORIGIN, POSITION, COMMITTED).iter_rows()
    ]
    return pl.Series(is_below, dtype=pl.Boolean)


def _is_below(source: Source, position: str, committed_us: int | None) -> bool:
    is_later = committed_us is not None and source.floor_us is not None and committed_us > source.floor_us
    return source.floor is not None and position < source.floor and not is_later


def _rejects(accepted: pl.DataFrame, refused: Sequence[tuple[int, str, str]]) -> pl.DataFrame:
    rows = accepted[[place for place, _, _ in refused]]
    texts = excerpts_of(rows.select(name for name in rows.columns if not name.startswith("_")))
    rejected = zip(rows.get_column("_offset").to_list(), refused, texts, strict=True)
    return reject_rows([(offset, reason, detail, text) for offset, (_, reason, detail), text in rejected])


_FORGOTTEN = (
    "the change is older than others of its table whose positions are no longer stored (SLACKWATER_CHANGES_RETENTION_MS), so a newer one may "
    "have replaced it; let Debezium take a new snapshot of the table"
)
_GONE = (
    "the row has no column {names}, which earlier changes of this database had: it was dropped or renamed there. Declare a new name besides it "
    "(PUT of the table), and send with absent={given} if it is gone; then let Debezium read the rows again (an incremental snapshot)"
)
_OTHER = (
    "the change is of the database's table {name!r}, and this table accepts those of {first}: a row of another table would replace the row "
    "with its key. Let Debezium send one table (table.include.list); to merge several tables, name them: source_table=public.a,public.b"
)

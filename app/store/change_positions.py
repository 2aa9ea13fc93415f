"""Where the newest change of each key of a table stands in its database's log: kept in the transaction that appends the change.

A source of changes delivers at least once, and from an earlier position after a restart. A change that is older than what is kept of its key, or
the same, is left out, so a repeated request appends nothing and a deleted row does not come back. What was not changed for the retention of
change feeds is forgotten; the highest forgotten position stays as the *floor*: below it, of a key that is not known, a change is refused
(``change_forgotten``), for it may be older than one that was forgotten. So nothing old ever wins, and what is kept is bounded by the keys that
changed within the retention.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import polars as pl
import psycopg

from engine.connectors.canonical import reject_rows
from engine.connectors.excerpts import excerpts_of
from engine.connectors.formats.debezium.positions import without_older
from engine.core.change_positions import ORIGIN, POSITION

KEY = "_key"
STEP_ROWS = 5_000
"""Forgotten in one transaction: appends of changes to the table wait for it."""

Floors = Mapping[tuple[UUID, str], str]
"""The floor of a table and origin."""

_KEY_BYTES = 16
_LOCK = """
    INSERT INTO log.change_source AS kept (relation, origin)
    SELECT relation, origin FROM unnest(%s::uuid[], %s::text[]) AS found (relation, origin) ORDER BY relation, origin
    ON CONFLICT (relation, origin) DO UPDATE SET origin = kept.origin RETURNING relation, origin, floor
"""
_KNOWN = """
    SELECT key, origin, position FROM unnest(%s::text[], %s::bytea[]) AS wanted (origin, key)
    JOIN log.change_position USING (origin, key) WHERE relation = %s
"""
_KEEP = """
    INSERT INTO log.change_position AS kept (relation, origin, key, position)
    SELECT %s, origin, key, position FROM unnest(%s::text[], %s::bytea[], %s::text[]) AS found (origin, key, position)
    ON CONFLICT (relation, origin, key) DO UPDATE SET position = excluded.position, at = now()
"""
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
        )) RETURNING position
    ), highest AS (SELECT max(position) AS position, count(*) AS rows FROM gone)
    UPDATE log.change_source SET floor = greatest(floor, highest.position) FROM highest
    WHERE relation = %(relation)s AND origin = %(origin)s RETURNING highest.rows
"""
_DELETED = """
    SELECT DISTINCT relation FROM log.change_source s WHERE NOT EXISTS (SELECT FROM slackwater.relation r WHERE r.id = s.relation)
"""
_STEP_OF_DELETED = (
    "DELETE FROM log.change_position WHERE ctid = ANY(ARRAY(SELECT ctid FROM log.change_position WHERE relation = %s LIMIT %s))"
)


def keyed(accepted: pl.DataFrame, key: Sequence[str], changes: pl.DataFrame) -> pl.DataFrame:
    """Put a digest of the key beside the position of each accepted record.

    Args:
        accepted: canonical records; ``_offset`` is the row of ``changes``.
        key: names of the key's columns.
        changes: see ``Posted``.
    """
    rows = accepted.select(key).iter_rows()
    digests = [hashlib.sha256(repr(row).encode()).digest()[:_KEY_BYTES] for row in rows]
    return changes[accepted.get_column("_offset")].with_columns(pl.Series(KEY, digests, dtype=pl.Binary))


async def lock_origins(cursor: psycopg.AsyncCursor[Any], changes: Iterable[tuple[UUID, pl.DataFrame]]) -> Floors:
    """Let other appends of changes of these origins wait for the end of the transaction.

    Args:
        cursor: in the transaction of the append. Call it once: whoever locks a second time may wait for one that waits for them.
        changes: table, and changes to it as ``keyed`` made them.

    Returns:
        The floors of origins that have one.
    """
    pairs = {(relation, origin) for relation, part in changes for origin in part.get_column(ORIGIN).unique().to_list()}
    if not pairs:
        return {}
    relations, origins = zip(*pairs, strict=True)
    rows = await (await cursor.execute(_LOCK, (list(relations), list(origins)))).fetchall()
    return {(relation, origin): floor for relation, origin, floor in rows if floor is not None}


async def newer_alone(
    cursor: psycopg.AsyncCursor[Any], relation: UUID, accepted: pl.DataFrame, changes: pl.DataFrame, floors: Floors
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Leave out records that are older than what is kept of their keys, and keep the positions of the others.

    Args:
        cursor: in the transaction of the append.
        relation: the table.
        accepted: canonical records, in the order of arrival.
        changes: of each record, as ``keyed`` made them.
        floors: what ``lock_origins`` returned for these changes.

    Returns:
        ``(records, rejects)``: those that count, and those of which nobody can say any more whether they do.
    """
    wanted = changes.select(ORIGIN, KEY).unique()
    values = (wanted.get_column(ORIGIN).to_list(), wanted.get_column(KEY).to_list(), relation)
    rows = await (await cursor.execute(_KNOWN, values)).fetchall()
    known = [(bytes(key), origin, position) for key, origin, position in rows]
    schema = {KEY: pl.Binary(), ORIGIN: pl.String(), POSITION: pl.String()}
    newest = pl.DataFrame(known, schema=schema, orient="row")
    placed = changes.with_row_index("_place")
    forgotten = _forgotten(placed, newest, {origin: floor for (table, origin), floor in floors.items() if table == relation})
    counting, latest = without_older(placed.filter(~forgotten), [KEY], newest)
    moved = latest.join(newest, on=[KEY, ORIGIN, POSITION], how="anti")
    if moved.height:
        await cursor.execute(_KEEP, (relation, *(moved.get_column(name).to_list() for name in (ORIGIN, KEY, POSITION))))
    return accepted[counting.get_column("_place")], _rejects(accepted.filter(forgotten))


def forget_positions(connection: psycopg.Connection[Any], kept_ms: int, step_rows: int = STEP_ROWS) -> None:
    """Forget positions of keys that did not change for so long, and those of deleted tables.

    Args:
        connection: in autocommit mode.
        kept_ms: see above.
        step_rows: removed in one transaction.
    """
    for relation, origin in connection.execute(_OLD_SOURCES, (kept_ms,)).fetchall():
        rows = step_rows
        while rows == step_rows:
            with connection.transaction():  # the source before its positions, as appends do
                connection.execute(_LOCK_SOURCE, (relation, origin))
                values = {"relation": relation, "origin": origin, "kept_ms": kept_ms, "step": step_rows}
                found = connection.execute(_FORGET, values).fetchone()
                rows = 0 if found is None else found[0]
    for (relation,) in connection.execute(_DELETED).fetchall():
        while connection.execute(_STEP_OF_DELETED, (relation, step_rows)).rowcount:
            pass
        connection.execute("DELETE FROM log.change_source WHERE relation = %s", (relation,))


def _forgotten(placed: pl.DataFrame, newest: pl.DataFrame, floors: dict[str, str]) -> pl.Series:
    """Return which changes lie below the floor of what was forgotten, of keys that are not known."""
    if not floors:
        return pl.repeat(value=False, n=placed.height, dtype=pl.Boolean, eager=True)
    known = set(newest.select(KEY, ORIGIN).iter_rows())
    found = [
        position is not None and position < floors.get(origin, "") and (key, origin) not in known
        for key, origin, position in placed.select(KEY, ORIGIN, POSITION).iter_rows()
    ]
    return pl.Series(found, dtype=pl.Boolean)


def _rejects(accepted: pl.DataFrame) -> pl.DataFrame:
    detail = (
        "the change is older than others of its table whose positions are no longer kept (SLACKWATER_CHANGES_RETENTION_MS), so it may be one "
        "that was overtaken; let Debezium take a new snapshot of the table"
    )
    texts = excerpts_of(accepted.select(name for name in accepted.columns if not name.startswith("_")))
    pairs = zip(accepted.get_column("_offset").to_list(), texts, strict=True)
    return reject_rows([(place, "change_forgotten", detail, text) for place, text in pairs])

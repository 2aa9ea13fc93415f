"""Materialised tables: one typed Postgres table per derived table, in the schema ``views``.

Any Postgres client may read them. A table that is versioned also has every version of its rows, tombstones included, in the schema
``history``; its view holds the latest version of each key by event time. Writing happens inside the sink's transaction; nothing here
commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from engine.connectors.column_names import bound_column, bound_columns, column, columns, stored_name
from engine.connectors.copying import copy_frame
from engine.connectors.nested_json import json_texts
from engine.core.frames import OPEN_DELETE, OPEN_ROW
from engine.definition.types import ColumnType, Schema
from engine.errors import InvariantBroken
from engine.plan.model import Output

SCHEMA = "views"
HISTORY_SCHEMA = "history"
OPEN_SCHEMA = "open"
RESULT_TIME = "_ts"
IS_DELETED = "_is_deleted"

Connection = psycopg.Connection[Any]
Cursor = psycopg.Cursor[Any]


def view_identifier(name: str) -> sql.Identifier:
    """Return the quoted, qualified name of a view's table."""
    return sql.Identifier(SCHEMA, name)


def history_identifier(name: str) -> sql.Identifier:
    """Return the quoted, qualified name of the table of a view's versions."""
    return sql.Identifier(HISTORY_SCHEMA, name)


def open_identifier(name: str) -> sql.Identifier:
    """Return the quoted, qualified name of the table of a view's open windows."""
    return sql.Identifier(OPEN_SCHEMA, name)


def create_view(conn: Connection, output: Output) -> None:
    """Create the table of a derived table: its columns, ``_ts`` (bigint: result time in ms), its key as primary key.

    A windowed one also gets an index on its end, by which closed windows leave after their retention; a versioned one the table of
    its versions, keyed by key and ``_ts``; one that keeps open windows the table of those.
    """
    _create(conn, view_identifier(output.name), output, ())
    if output.is_windowed:
        conn.execute(sql.SQL("CREATE INDEX ON {} ({})").format(view_identifier(output.name), column(output.key[-1])))
    if output.has_open:
        _create(conn, open_identifier(output.name), output, ())
    if output.history_retention_ms is not None:
        _create(conn, history_identifier(output.name), output, (RESULT_TIME,))
        deleted = sql.SQL("ALTER TABLE {} ADD COLUMN {} boolean NOT NULL")
        conn.execute(deleted.format(history_identifier(output.name), sql.Identifier(IS_DELETED)))


def _create(conn: Connection, table: sql.Identifier, output: Output, also_key: tuple[str, ...]) -> None:
    _free_name(conn, table)
    parts = [
        sql.SQL("{} {}{}").format(column(name), sql.SQL(kind.postgres), sql.SQL(" NOT NULL" if name in output.key else ""))
        for name, kind in output.columns.items()
    ]
    parts.append(sql.SQL("{} bigint NOT NULL").format(sql.Identifier(RESULT_TIME)))
    if output.key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(columns((*output.key, *also_key))))
    conn.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(parts)))


def _free_name(conn: Connection, table: sql.Identifier) -> None:
    """Give an index another name where Postgres has called it as the table is called: ``a_pkey`` is also a name for a table."""
    taken = "SELECT oid FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'i'"
    for (oid,) in conn.execute(taken, (table.as_string(conn),)).fetchall():
        conn.execute(sql.SQL("ALTER INDEX {} RENAME TO {}").format(table, sql.Identifier(f"index {oid}")))


def drop_view(conn: Connection, name: str) -> None:
    """Drop the tables of a derived table, if they are there."""
    conn.execute(
        sql.SQL("DROP TABLE IF EXISTS {}, {}, {}").format(view_identifier(name), history_identifier(name), open_identifier(name))
    )


def apply_changes(cursor: Cursor, output: Output, changes: pl.DataFrame, stream_time_ms: int | None = None) -> None:
    """Write a batch's changes: the last one per key, deletes included; of a versioned table the last one per key and time.

    Args:
        cursor: inside the sink's transaction.
        output: the derived table.
        changes: output columns, ``_ts``, ``_op``, in emission order.
        stream_time_ms: the smallest over the tasks: versions that ended a history retention before it are forgotten; None: none.

    Raises:
        InvariantBroken: a final window came a second time.
    """
    if output.history_retention_ms is not None:
        horizon_ms = None if stream_time_ms is None else stream_time_ms - output.history_retention_ms
        _apply_versions(cursor, output, changes, horizon_ms)
        return
    folded = changes.unique(subset=list(output.key), keep="last", maintain_order=True) if output.key else changes.tail(1)
    upserts, deletes = folded.filter(pl.col("_op") == 0), folded.filter(pl.col("_op") != 0)
    names = [*output.columns.names, RESULT_TIME]
    if output.is_final and deletes.is_empty():
        try:
            _copy(cursor, view_identifier(output.name), upserts.select(names), output.columns)
        except psycopg.errors.UniqueViolation as error:
            raise InvariantBroken(f"a final window of {output.name} was emitted twice: {error.diag.message_detail}") from error
        return
    _write(cursor, view_identifier(output.name), output, upserts, deletes)


def apply_open(cursor: Cursor, output: Output, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
    """Write what open windows have now: the last row of each, until its final one has come with this batch's changes.

    Args:
        cursor: inside the sink's transaction.
        output: the derived table; it keeps open windows.
        opened: output columns, ``_ts``, ``_op`` (``OPEN_ROW`` or ``OPEN_DELETE``), in emission order.
        changes: the results of the batch.
    """
    closed = [frame.with_columns(pl.lit(OPEN_DELETE, pl.Int8).alias("_op")) for frame in changes]
    told = [frame for frame in (*opened, *closed) if not frame.is_empty()]
    if not told:
        return
    columns = [*output.columns.names, RESULT_TIME, "_op"]
    rows = pl.concat([frame.select(columns) for frame in told]).drop_nulls(list(output.key))
    folded = rows.unique(subset=list(output.key), keep="last", maintain_order=True)
    is_row = pl.col("_op") == OPEN_ROW
    _write(cursor, open_identifier(output.name), output, folded.filter(is_row), folded.filter(~is_row))


def _write(cursor: Cursor, table: sql.Identifier, output: Output, upserts: pl.DataFrame, deletes: pl.DataFrame) -> None:
    if not upserts.is_empty():
        names = [*output.columns.names, RESULT_TIME]
        stage = _stage(cursor, output)
        _copy(cursor, stage, upserts.select(names), output.columns)
        cursor.execute(_upsert(table, stage, names, output.key))
        cursor.execute(sql.SQL("TRUNCATE {}").format(stage))
    if not deletes.is_empty():
        stage = _stage(cursor, output)
        keys = deletes.select(output.key)
        _copy(cursor, stage, keys, output.columns)
        is_same = sql.SQL(" AND ").join(sql.SQL("v.{0} = s.{0}").format(column(name)) for name in output.key)
        cursor.execute(sql.SQL("DELETE FROM {} v USING {} s WHERE {}").format(table, stage, is_same))
        cursor.execute(sql.SQL("TRUNCATE {}").format(stage))


def _apply_versions(cursor: Cursor, output: Output, changes: pl.DataFrame, horizon_ms: int | None) -> None:
    """Put versions into the history (V2), the latest version of each touched key into the view; forget what ended by the horizon."""
    keys = [*output.key, RESULT_TIME]
    folded = changes.unique(subset=keys, keep="last", maintain_order=True)
    folded = folded.with_columns((pl.col("_op") != 0).alias(IS_DELETED))
    names = [*output.columns.names, RESULT_TIME, IS_DELETED]
    stage = _stage(cursor, output, is_versioned=True)
    _copy(cursor, stage, folded.select(names), output.columns)
    cursor.execute(_upsert(history_identifier(output.name), stage, names, keys))
    same = sql.SQL(" AND ").join(sql.SQL("v.{0} = s.{0}").format(column(name)) for name in output.key)
    parts = {
        "view": view_identifier(output.name), "history": history_identifier(output.name), "stage": stage, "same": same,
        "time": sql.Identifier(RESULT_TIME), "deleted": sql.Identifier(IS_DELETED),
        "key": columns(output.key), "columns": columns([*output.columns.names, RESULT_TIME]),
        "latest": sql.SQL(", ").join(sql.SQL("l.{}").format(column(name)) for name in (*output.columns.names, RESULT_TIME)),
    }  # fmt: skip
    cursor.execute(sql.SQL("DELETE FROM {view} v USING {stage} s WHERE {same}").format(**parts))
    cursor.execute(
        sql.SQL(
            "INSERT INTO {view} ({columns}) SELECT {latest} FROM (SELECT DISTINCT {key} FROM {stage}) s CROSS JOIN LATERAL"
            " (SELECT * FROM {history} v WHERE {same} ORDER BY {time} DESC LIMIT 1) l WHERE NOT l.{deleted}"
        ).format(**parts)
    )
    if horizon_ms is not None:
        _forget_versions(cursor, output, stage, horizon_ms)
    cursor.execute(sql.SQL("TRUNCATE {stage}").format(**parts))


def _forget_versions(cursor: Cursor, output: Output, stage: sql.Identifier, horizon_ms: int) -> None:
    """Remove the versions of touched keys that ended by the horizon."""
    cursor.execute(
        sql.SQL(
            "DELETE FROM {history} v USING (SELECT s.*, (SELECT max(v.{time}) FROM {history} v WHERE {same} AND v.{time} <= %s)"
            " AS _newest FROM (SELECT DISTINCT {key} FROM {stage}) s) s WHERE {same} AND v.{time} < s._newest"
        ).format(
            history=history_identifier(output.name),
            stage=stage,
            time=sql.Identifier(RESULT_TIME),
            key=bound_columns(output.key),
            same=sql.SQL(" AND ").join(sql.SQL("v.{0} = s.{0}").format(bound_column(name)) for name in output.key),
        ),
        (horizon_ms,),
    )


def expire_windows(cursor: Cursor, output: Output, stream_time_ms: int) -> None:
    """Remove windows that closed longer ago than the retention, with their versions. Limits reads only."""
    if not output.is_windowed or output.retention_ms is None:
        return
    tables = [view_identifier(output.name)]
    if output.history_retention_ms is not None:
        tables.append(history_identifier(output.name))
    for table in tables:
        bound = sql.SQL("DELETE FROM {} WHERE {} < to_timestamp(%s / 1000.0)").format(table, bound_column(output.key[-1]))
        cursor.execute(bound, (stream_time_ms - output.retention_ms,))


def _stage(cursor: Cursor, output: Output, *, is_versioned: bool = False) -> sql.Identifier:
    """Return this transaction's staging table: the view's columns, all nullable, no key."""
    stage = sql.Identifier("pg_temp", "stage")
    cursor.execute("DROP TABLE IF EXISTS pg_temp.stage")
    parts = [sql.SQL("{} {}").format(column(name), sql.SQL(kind.postgres)) for name, kind in output.columns.items()]
    parts.append(sql.SQL("{} bigint").format(sql.Identifier(RESULT_TIME)))
    if is_versioned:
        parts.append(sql.SQL("{} boolean").format(sql.Identifier(IS_DELETED)))
    cursor.execute(sql.SQL("CREATE TEMP TABLE stage ({}) ON COMMIT DROP").format(sql.SQL(", ").join(parts)))
    return stage


def _upsert(target: sql.Identifier, stage: sql.Identifier, names: Sequence[str], key: Sequence[str]) -> sql.Composed:
    values = [name for name in names if name not in key]
    assignments = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(column(name)) for name in values)
    # Without an alias a table that is called excluded would be ambiguous.
    return sql.SQL("INSERT INTO {} AS v ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {}").format(
        target, columns(names), columns(names), stage, columns(key), assignments
    )


def _copy(cursor: Cursor, target: sql.Identifier, frame: pl.DataFrame, schema: Schema) -> None:
    kinds = dict(schema.items())
    copy_frame(cursor, target, frame.select(_as_text(name, kinds.get(name)).alias(stored_name(name)) for name in frame.columns))


def _as_text(name: str, kind: ColumnType | None) -> pl.Expr:
    """Return the column in a form that CSV can carry and Postgres reads."""
    given = pl.col(name)
    if kind is None:
        return given
    if kind.kind == "bytes":
        return (pl.lit("\\x") + given.bin.encode("hex")).alias(name)
    if kind.is_nested:
        return given.map_batches(lambda values: json_texts(values, kind), return_dtype=pl.String).alias(name)
    return given

"""Materialised tables: one typed Postgres table per derived table, in the schema ``views``.

Any Postgres client may read them. A versioned table also has every version of its rows, tombstones included, in the schema
``history``; its view holds the latest version of each key by event time. Writes are inside the sink's transaction; nothing here
commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from engine.commit.staging import IS_DELETED as IS_DELETED
from engine.commit.staging import RESULT_TIME as RESULT_TIME
from engine.commit.staging import copy_rows, is_inline, staged, statement
from engine.frames.frames import OPEN_DELETE, OPEN_ROW, with_series
from engine.plan.model import Output
from engine.postgres.column_names import bound_column, bound_columns, column, columns
from engine.postgres.schemas import schemas_of

SCHEMA = "views"
HISTORY_SCHEMA = "history"
OPEN_SCHEMA = "open"
_UNDONE = "undone"
"""Role of the temporary table of removed versions."""

_SOON_VACUUMED = "autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05"
"""Rows are replaced often: at Postgres's default of 20 %, a fifth of the rows in a read table would be dead."""

_IS_UPDATED = sql.SQL(f"WITH (fillfactor = 80, {_SOON_VACUUMED})")
"""With room on the page, the new version of a row needs no entry in any index."""

_IS_APPENDED = sql.SQL(f"WITH ({_SOON_VACUUMED})")

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

    A windowed one also gets an index on its end, by which closed windows are removed after their retention. A versioned one gets the table of
    its versions, keyed by key and ``_ts``, with the same index. One that keeps open windows gets the table of those.
    """
    _create(conn, view_identifier(output.name), output, (), _IS_APPENDED if output.is_final else _IS_UPDATED)
    if output.has_open:
        _create(conn, open_identifier(output.name), output, (), _IS_UPDATED)
    if output.history_retention_ms is not None:
        _create(conn, history_identifier(output.name), output, (RESULT_TIME,), _IS_APPENDED)
        deleted = sql.SQL("ALTER TABLE {} ADD COLUMN {} boolean NOT NULL")
        conn.execute(deleted.format(history_identifier(output.name), sql.Identifier(IS_DELETED)))
    for table in _expiring(output):
        conn.execute(sql.SQL("CREATE INDEX ON {} ({})").format(table, column(output.key[-1])))


def add_columns(conn: Connection, output: Output) -> None:
    """Add the missing columns of ``output`` to the tables of a derived table; existing rows have null in them.

    Versions come first, in the order of commits' writes: else a running commit would wait for this transaction, and this one for it.
    """
    history = history_identifier(output.name)
    for table in sorted(tables_of(output), key=lambda table: table != history):
        for name, kind in output.columns.items():
            add = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}")
            conn.execute(add.format(table, column(name), sql.SQL(kind.postgres)))


def tables_of(output: Output) -> list[sql.Identifier]:
    """Return the tables of a result; a stream has none."""
    if output.kind == "stream":
        return []
    further = [open_identifier(output.name)] if output.has_open else []
    further += [] if output.history_retention_ms is None else [history_identifier(output.name)]
    return [view_identifier(output.name), *further]


def table_bytes(conn: Connection, table: sql.Identifier) -> int:
    """Return how many bytes a table has on disk, with its indexes."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(
            "SELECT pg_total_relation_size(to_regclass(%s))", (schemas_of(conn).statement(table, conn),)
        ).fetchone()
    return 0 if row is None else int(row[0] or 0)


def rename_view(conn: Connection, output: Output, name: str) -> None:
    """Rename the tables of a derived table to an unused name."""
    for table, wanted in zip(tables_of(output), tables_of(replace(output, name=name)), strict=True):
        _free_name(conn, wanted)
        conn.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(table, sql.Identifier(name)))


def _create(conn: Connection, table: sql.Identifier, output: Output, also_key: tuple[str, ...], options: sql.SQL) -> None:
    _free_name(conn, table)
    parts = [
        sql.SQL("{} {}{}").format(column(name), sql.SQL(kind.postgres), sql.SQL(" NOT NULL" if name in output.key else ""))
        for name, kind in output.columns.items()
    ]
    parts.append(sql.SQL("{} bigint NOT NULL").format(sql.Identifier(RESULT_TIME)))
    if output.key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(columns((*output.key, *also_key))))
    conn.execute(sql.SQL("CREATE TABLE {} ({}) {}").format(table, sql.SQL(", ").join(parts), options))


def _free_name(conn: Connection, table: sql.Identifier) -> None:
    """Rename an index of Postgres whose name is the table's new name: ``a_pkey`` is also a possible table name."""
    taken = "SELECT oid FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'i'"
    for (oid,) in conn.execute(taken, (schemas_of(conn).statement(table, conn),)).fetchall():
        conn.execute(sql.SQL("ALTER INDEX {} RENAME TO {}").format(table, sql.Identifier(f"index {oid}")))


def drop_view(conn: Connection, name: str) -> None:
    """Drop the tables of a derived table, if they exist."""
    conn.execute(
        sql.SQL("DROP TABLE IF EXISTS {}, {}, {}").format(view_identifier(name), history_identifier(name), open_identifier(name))
    )


def apply_changes(cursor: Cursor, output: Output, changes: pl.DataFrame, stream_time_ms: int | None = None) -> None:
    """Write a batch's changes: the last one per key, deletes included; for a versioned table the last one per key and time.

    Args:
        cursor: inside the sink's transaction.
        output: the derived table.
        changes: output columns, ``_ts``, ``_op``, in emission order.
        stream_time_ms: that of the result: versions that ended a history retention before it are deleted; None: none.

    Raises:
        psycopg.errors.UniqueViolation: a final window came a second time; in a pipeline, raised at its end.
    """
    if output.history_retention_ms is not None:
        horizon_ms = None if stream_time_ms is None else stream_time_ms - output.history_retention_ms
        _apply_versions(cursor, output, changes, horizon_ms)
        return
    folded = _last_of_each(changes, output.key) if output.key else changes.tail(1)
    is_row = folded.get_column("_op") == 0
    if not output.is_final or not is_row.all():
        _write(cursor, SCHEMA, output, folded, is_row)
    elif is_inline(folded.height, int(folded.estimated_size())):
        stage = staged(cursor, output, with_series(folded, (~is_row).alias(IS_DELETED)), SCHEMA)
        cursor.execute(statement(_insert, stage, output), stage.params)
    else:
        copy_rows(cursor, view_identifier(output.name), folded[[*output.columns.names, RESULT_TIME]], output.columns)


def apply_open(cursor: Cursor, output: Output, opened: Sequence[pl.DataFrame], changes: Sequence[pl.DataFrame]) -> None:
    """Write the current rows of open windows: the last row of each, until this batch's changes have its final row.

    Args:
        cursor: inside the sink's transaction.
        output: the derived table; it keeps open windows.
        opened: output columns, ``_ts``, ``_op`` (``OPEN_ROW`` or ``OPEN_DELETE``), in emission order.
        changes: the results of the batch.
    """
    closed = [frame.with_columns(pl.lit(OPEN_DELETE, pl.Int8).alias("_op")) for frame in changes]
    changed = [frame for frame in (*opened, *closed) if not frame.is_empty()]
    if not changed:
        return
    columns = [*output.columns.names, RESULT_TIME, "_op"]
    rows = pl.concat([frame.select(columns) for frame in changed]).drop_nulls(list(output.key))
    folded = _last_of_each(rows, output.key)
    _write(cursor, OPEN_SCHEMA, output, folded, folded.get_column("_op") == OPEN_ROW)


def write_rows(cursor: Cursor, output: Output, rows: pl.DataFrame, is_row: pl.Series) -> None:
    """Restore the rows of keys as of another time, once in a transaction.

    Args:
        cursor: inside a transaction.
        output: the derived table.
        rows: output columns, ``_ts``; each key once.
        is_row: which keys have a row; the others have none.
    """
    if rows.height:
        _write(cursor, SCHEMA, output, rows, is_row)


def restore_versions(cursor: Cursor, output: Output, there: pl.DataFrame, absent: pl.DataFrame) -> None:
    """Add versions to the history, and remove others.

    Args:
        cursor: inside a transaction.
        output: a versioned table.
        there: versions to add: output columns, ``_ts``, ``_op``.
        absent: versions to remove, with the same columns; keys and ``_ts`` count.
    """
    if there.height:
        changed = with_series(there, (there.get_column("_op") != 0).alias(IS_DELETED))
        stage = staged(cursor, output, changed, HISTORY_SCHEMA)
        cursor.execute(statement(_put_versions, stage, output), stage.params)
    if absent.height:
        changed = absent.with_columns(pl.lit(value=True).alias(IS_DELETED))
        stage = staged(cursor, output, changed, _UNDONE)
        cursor.execute(statement(_take_versions_away, stage, output), stage.params)


def _take_versions_away(source: sql.Composed, output: Output) -> sql.Composed:
    delete = sql.SQL("DELETE FROM {} v USING {} s WHERE {} AND v.{time} = s.{time}")
    return delete.format(history_identifier(output.name), source, _same(output), time=sql.Identifier(RESULT_TIME))


def _write(cursor: Cursor, schema: str, output: Output, folded: pl.DataFrame, is_row: pl.Series) -> None:
    """Write rows and delete keys; each key is in ``folded`` once."""
    stage = staged(cursor, output, with_series(folded, (~is_row).alias(IS_DELETED)), schema)
    if is_row.any():
        cursor.execute(statement(_put, stage, output, schema), stage.params)
    if not is_row.all():
        cursor.execute(statement(_take_away, stage, output, schema), stage.params)


def _last_of_each(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the last row of each key, in their order. A few rows with a column of unique values are returned without a query plan."""
    if is_inline(rows.height, 0) and any(rows.get_column(name).n_unique() == rows.height for name in key):
        return rows
    return rows.unique(subset=list(key), keep="last", maintain_order=True)


def _insert(source: sql.Composed, output: Output) -> sql.Composed:
    names = bound_columns([*output.columns.names, RESULT_TIME])
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} s").format(view_identifier(output.name), names, names, source)


def _put(source: sql.Composed, output: Output, schema: str) -> sql.Composed:
    names = [*output.columns.names, RESULT_TIME]
    condition = sql.SQL("WHERE NOT {}").format(sql.Identifier(IS_DELETED))
    return _upsert(sql.Identifier(schema, output.name), source, names, output.key, condition)


def _take_away(source: sql.Composed, output: Output, schema: str) -> sql.Composed:
    delete = sql.SQL("DELETE FROM {} v USING {} s WHERE s.{} AND {}")
    return delete.format(sql.Identifier(schema, output.name), source, sql.Identifier(IS_DELETED), _same(output))


def _apply_versions(cursor: Cursor, output: Output, changes: pl.DataFrame, horizon_ms: int | None) -> None:
    """Add versions to the history (V2), and the latest version of each touched key to the view; delete those that ended by the horizon."""
    keys = [*output.key, RESULT_TIME]
    folded = _last_of_each(changes, keys)
    folded = with_series(folded, (folded.get_column("_op") != 0).alias(IS_DELETED))
    stage = staged(cursor, output, folded, HISTORY_SCHEMA)
    cursor.execute(statement(_put_versions, stage, output), stage.params)
    cursor.execute(statement(_put_latest, stage, output), stage.params)
    if folded[IS_DELETED].any():  # else no key's latest version has become a tombstone
        cursor.execute(statement(_take_latest_away, stage, output), stage.params)
    if horizon_ms is not None:
        cursor.execute(statement(_forget_versions, stage, output), {**stage.params, "horizon": horizon_ms})


def _put_versions(source: sql.Composed, output: Output) -> sql.Composed:
    names = [*output.columns.names, RESULT_TIME, IS_DELETED]
    return _upsert(history_identifier(output.name), source, names, [*output.key, RESULT_TIME])


def _latest(source: sql.Composed, output: Output) -> sql.Composed:
    """Return the latest versions of the keys of some rows, as a subquery."""
    return sql.SQL(
        "(SELECT l.* FROM (SELECT DISTINCT {key} FROM {stage} t) s CROSS JOIN LATERAL"
        " (SELECT * FROM {history} v WHERE {same} ORDER BY {time} DESC LIMIT 1) l)"
    ).format(
        key=bound_columns(output.key),
        stage=source,
        history=history_identifier(output.name),
        same=_same(output),
        time=sql.Identifier(RESULT_TIME),
    )


def _put_latest(source: sql.Composed, output: Output) -> sql.Composed:
    names = [*output.columns.names, RESULT_TIME]
    condition = sql.SQL("WHERE NOT s.{}").format(sql.Identifier(IS_DELETED))
    return _upsert(view_identifier(output.name), _latest(source, output), names, output.key, condition)


def _take_latest_away(source: sql.Composed, output: Output) -> sql.Composed:
    return _take_away(_latest(source, output), output, SCHEMA)


def _forget_versions(source: sql.Composed, output: Output) -> sql.Composed:
    """Remove the versions of touched keys that ended by the horizon."""
    return sql.SQL(
        "DELETE FROM {history} v USING (SELECT s.*, (SELECT max(v.{time}) FROM {history} v WHERE {same} AND v.{time} <= %(horizon)s)"
        " AS _newest FROM (SELECT DISTINCT {key} FROM {stage} t) s) s WHERE {same} AND v.{time} < s._newest"
    ).format(
        history=history_identifier(output.name),
        stage=source,
        time=sql.Identifier(RESULT_TIME),
        key=bound_columns(output.key),
        same=_same(output),
    )


def expire_windows(cursor: Cursor, output: Output, stream_time_ms: int) -> None:
    """Remove windows that closed longer ago than the retention, with their versions. Limits reads only."""
    if output.retention_ms is None:
        return
    for table in _expiring(output):
        bound = sql.SQL("DELETE FROM {} WHERE {} < to_timestamp(%s / 1000.0)").format(table, bound_column(output.key[-1]))
        cursor.execute(bound, (stream_time_ms - output.retention_ms,))


def _expiring(output: Output) -> list[sql.Identifier]:
    """Return the tables from which windows are removed by their end."""
    if not output.is_windowed:
        return []
    return [view_identifier(output.name), *([] if output.history_retention_ms is None else [history_identifier(output.name)])]


def _same(output: Output) -> sql.Composed:
    return sql.SQL(" AND ").join(sql.SQL("v.{0} = s.{0}").format(bound_column(name)) for name in output.key)


def _upsert(
    target: sql.Identifier,
    rows: sql.Composable,
    names: Sequence[str],
    key: Sequence[str],
    condition: sql.Composable | None = None,
) -> sql.Composed:
    values = [name for name in names if name not in key]
    assignments = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(bound_column(name)) for name in values)
    # Without an alias a table named excluded would be ambiguous.
    return sql.SQL("INSERT INTO {} AS v ({}) SELECT {} FROM {} s {} ON CONFLICT ({}) DO UPDATE SET {}").format(
        target,
        bound_columns(names),
        bound_columns(names),
        rows,
        condition or sql.SQL("WHERE true"),
        bound_columns(key),
        assignments,
    )

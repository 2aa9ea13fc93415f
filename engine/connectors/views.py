"""Materialised tables: one typed Postgres table per derived table, in the schema ``views``.

Any Postgres client may read them. Writing happens inside the sink's transaction; nothing here commits.
"""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from engine.definition.types import ColumnType, Schema
from engine.errors import InvariantBroken
from engine.plan.model import Output

SCHEMA = "views"
RESULT_TIME = "_ts"
_COPY = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)")

Connection = psycopg.Connection[Any]
Cursor = psycopg.Cursor[Any]


def view_identifier(name: str) -> sql.Identifier:
    """Return the quoted, qualified name of a view's table."""
    return sql.Identifier(SCHEMA, name)


def create_view(conn: Connection, output: Output) -> None:
    """Create the table of a derived table: its columns, ``_ts`` (bigint: result time in ms), its key as primary key.

    A windowed one also gets an index on its end, by which closed windows leave after their retention.
    """
    columns = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(name), sql.SQL(kind.postgres), sql.SQL(" NOT NULL" if name in output.key else "")
        )
        for name, kind in output.columns.items()
    ]
    columns.append(sql.SQL("{} bigint NOT NULL").format(sql.Identifier(RESULT_TIME)))
    if output.key:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(_names(output.key)))
    conn.execute(sql.SQL("CREATE TABLE {} ({})").format(view_identifier(output.name), sql.SQL(", ").join(columns)))
    if output.is_windowed:
        conn.execute(sql.SQL("CREATE INDEX ON {} ({})").format(view_identifier(output.name), sql.Identifier(output.key[-1])))


def drop_view(conn: Connection, name: str) -> None:
    """Drop the table of a derived table, if it is there."""
    conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(view_identifier(name)))


def truncate_view(conn: Connection, name: str) -> None:
    """Empty the table of a derived table."""
    conn.execute(sql.SQL("TRUNCATE {}").format(view_identifier(name)))


def apply_changes(cursor: Cursor, output: Output, changes: pl.DataFrame) -> None:
    """Write a batch's changes: the last one per key, deletes included.

    Args:
        cursor: inside the sink's transaction.
        output: the derived table.
        changes: output columns, ``_ts``, ``_op``, in emission order.

    Raises:
        InvariantBroken: a final window came a second time.
    """
    folded = changes.unique(subset=list(output.key), keep="last", maintain_order=True) if output.key else changes.tail(1)
    upserts, deletes = folded.filter(pl.col("_op") == 0), folded.filter(pl.col("_op") != 0)
    names = [*output.columns.names, RESULT_TIME]
    if output.is_final and deletes.is_empty():
        try:
            _copy(cursor, view_identifier(output.name), upserts.select(names), output.columns)
        except psycopg.errors.UniqueViolation as error:
            raise InvariantBroken(f"a final window of {output.name} was emitted twice: {error.diag.message_detail}") from error
        return
    if not upserts.is_empty():
        stage = _stage(cursor, output)
        _copy(cursor, stage, upserts.select(names), output.columns)
        cursor.execute(_upsert(output, stage, names))
        cursor.execute(sql.SQL("TRUNCATE {}").format(stage))
    if not deletes.is_empty():
        stage = _stage(cursor, output)
        keys = deletes.select(output.key)
        _copy(cursor, stage, keys, output.columns)
        is_same = sql.SQL(" AND ").join(sql.SQL("v.{0} = s.{0}").format(sql.Identifier(name)) for name in output.key)
        cursor.execute(sql.SQL("DELETE FROM {} v USING {} s WHERE {}").format(view_identifier(output.name), stage, is_same))
        cursor.execute(sql.SQL("TRUNCATE {}").format(stage))


def expire_windows(cursor: Cursor, output: Output, stream_time_ms: int) -> None:
    """Remove windows that closed longer ago than the retention. Limits reads only."""
    if output.is_windowed and output.retention_ms is not None:
        bound = sql.SQL("DELETE FROM {} WHERE {} < to_timestamp(%s / 1000.0)").format(
            view_identifier(output.name), sql.Identifier(output.key[-1])
        )
        cursor.execute(bound, (stream_time_ms - output.retention_ms,))


def _names(names: tuple[str, ...] | list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _stage(cursor: Cursor, output: Output) -> sql.Identifier:
    """Return this transaction's staging table: the view's columns, all nullable, no key."""
    stage = sql.Identifier("pg_temp", "stage")
    cursor.execute("DROP TABLE IF EXISTS pg_temp.stage")
    columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind.postgres)) for name, kind in output.columns.items()]
    columns.append(sql.SQL("{} bigint").format(sql.Identifier(RESULT_TIME)))
    cursor.execute(sql.SQL("CREATE TEMP TABLE stage ({}) ON COMMIT DROP").format(sql.SQL(", ").join(columns)))
    return stage


def _upsert(output: Output, stage: sql.Identifier, names: list[str]) -> sql.Composed:
    view = view_identifier(output.name)
    columns = _names(names)
    values = [name for name in names if name not in output.key]
    assignments = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in values)
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {}").format(
        view, columns, columns, stage, _names(output.key), assignments
    )


def _copy(cursor: Cursor, target: sql.Identifier, frame: pl.DataFrame, columns: Schema) -> None:
    """COPY a frame as CSV: null is an empty field, the empty string a quoted one."""
    if frame.is_empty():
        return
    text = frame.select(_as_text(name, dict(columns.items()).get(name)) for name in frame.columns)
    buffer = io.BytesIO()
    # Strings are always quoted: a line that is nothing but \\. would end the COPY.
    text.write_csv(buffer, include_header=False, quote_style="non_numeric")
    with cursor.copy(_COPY.format(target, _names(frame.columns))) as copy:
        copy.write(buffer.getvalue())


def _as_text(name: str, kind: ColumnType | None) -> pl.Expr:
    """Return the column in a form that CSV can carry and Postgres reads."""
    column = pl.col(name)
    if kind is None:
        return column
    if kind.kind == "bytes":
        return pl.lit("\\x") + column.bin.encode("hex")
    if kind.kind in ("array", "map", "struct"):
        return column.map_elements(lambda value: _json(value, kind), return_dtype=pl.String)
    return column


def _json(value: Any, kind: ColumnType) -> str:
    if isinstance(value, pl.Series):
        value = value.to_list()
    if kind.kind == "map":
        value = {entry["key"]: entry["value"] for entry in value}
    return json.dumps(value, default=str)

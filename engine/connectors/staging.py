"""Rows of a batch in a temporary table, from where statements put them into views.

The table is made once per connection and emptied by Postgres at the end of each transaction. One per transaction would leave dozens of dead
rows in Postgres's catalogs with every commit, and TRUNCATE a few: with many queries the catalogs grow faster than autovacuum follows, and
every statement of every client reads them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from engine.connectors.column_names import column, stored_name
from engine.connectors.copying import copy_frame
from engine.connectors.nested_json import json_texts
from engine.definition.types import ColumnType, Schema
from engine.plan.model import Output

RESULT_TIME = "_ts"
IS_DELETED = "_is_deleted"

Cursor = psycopg.Cursor[Any]


def staged(cursor: Cursor, output: Output, rows: pl.DataFrame, target: sql.Identifier) -> sql.Identifier:
    """Put rows into the temporary table of a target, which is filled once per transaction; returns its name.

    Args:
        cursor: inside the sink's transaction.
        output: whose columns it has, all nullable, beside ``_ts`` and ``_is_deleted``.
        rows: with these columns.
        target: where they will go.
    """
    parts = [sql.SQL("{} {}").format(column(name), sql.SQL(kind.postgres)) for name, kind in output.columns.items()]
    parts.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    shape = sql.SQL(", ").join(parts)
    # Another target, or another shape of it, is another table.
    digest = hashlib.sha256(f"{target.as_string()} {shape.as_string()}".encode()).hexdigest()[:16]
    stage = sql.Identifier("pg_temp", f"stage_{digest}")
    cursor.execute(sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(stage, shape))
    copy_rows(cursor, stage, rows.select(*output.columns.names, RESULT_TIME, IS_DELETED), output.columns)
    return stage


def copy_rows(cursor: Cursor, target: sql.Identifier, frame: pl.DataFrame, schema: Schema) -> None:
    """Copy rows of a result into a table of its columns."""
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

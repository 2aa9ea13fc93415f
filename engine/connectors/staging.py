"""Rows of a batch in a temporary table, from where statements put them into views.

Such a table is made once per connection and emptied by Postgres at the end of each transaction. One per transaction would leave dozens of dead
rows in Postgres's catalogs with every commit, and TRUNCATE a few: with many queries the catalogs grow faster than autovacuum follows, and
every statement of every client reads them. Its columns are texts, so that results with as many columns share one: at the end of every
transaction Postgres empties all that the connection has, and many queries share a connection.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from engine.connectors.column_names import bound_column, column, stored_name
from engine.connectors.copying import copy_frame
from engine.connectors.nested_json import json_texts
from engine.definition.types import ColumnType, Schema
from engine.plan.model import Output

RESULT_TIME = "_ts"
IS_DELETED = "_is_deleted"

Cursor = psycopg.Cursor[Any]


def staged(cursor: Cursor, output: Output, rows: pl.DataFrame, role: str) -> sql.Identifier:
    """Put rows into a temporary table, which is filled once per transaction; returns its name, for ``typed``.

    Args:
        cursor: inside the sink's transaction.
        output: whose columns the rows have, beside ``_ts`` and ``_is_deleted``.
        rows: with these columns.
        role: of the table where they will go, among those that one transaction writes.
    """
    names = _stage_columns(output)
    stage = sql.Identifier("pg_temp", f"stage_{role}_{len(names)}")
    parts = [sql.SQL("{} text").format(sql.Identifier(name)) for name in names]
    parts.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    create = sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS")
    cursor.execute(create.format(stage, sql.SQL(", ").join(parts)))
    texts = [_as_text(name, kind).alias(own) for (name, kind), own in zip(output.columns.items(), names, strict=True)]
    copy_frame(cursor, stage, rows.select(*texts, RESULT_TIME, IS_DELETED))
    return stage


def typed(stage: sql.Identifier, output: Output, *, is_bound: bool = False) -> sql.Composed:
    """Return the subquery that reads staged rows as what they are.

    Args:
        stage: from ``staged``.
        output: see there.
        is_bound: the statement has parameters.
    """
    called = bound_column if is_bound else column
    parts = [
        sql.SQL("{}::{} AS {}").format(sql.Identifier(own), sql.SQL(kind.postgres), called(name))
        for (name, kind), own in zip(output.columns.items(), _stage_columns(output), strict=True)
    ]
    parts.append(sql.SQL("{}, {}").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    return sql.SQL("(SELECT {} FROM {})").format(sql.SQL(", ").join(parts), stage)


def _stage_columns(output: Output) -> list[str]:
    return [f"_{place}" for place in range(len(output.columns.names))]


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

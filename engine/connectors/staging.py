"""Rows of a batch, from where statements put them into views: a few as parameters of these statements, many in a temporary table.

Such a table is made once per connection and emptied by Postgres at the end of each transaction. One per transaction would leave dozens of dead
rows in Postgres's catalogs with every commit, and TRUNCATE a few: with many queries the catalogs grow faster than autovacuum follows, and
every statement of every client reads them. Its columns are texts, so that results with as many columns share one: at the end of every
transaction Postgres empties all that the connection has, and many queries share a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import polars as pl
import psycopg
from psycopg import sql

from engine.connectors.column_names import bound_column, stored_name
from engine.connectors.copying import copy_frame
from engine.connectors.nested_json import json_texts
from engine.definition.types import ColumnType, Schema
from engine.plan.model import Output

INLINE_ROWS: Final = 500
INLINE_BYTES: Final = 1 << 20

RESULT_TIME = "_ts"
IS_DELETED = "_is_deleted"

Cursor = psycopg.Cursor[Any]


class Staged(NamedTuple):
    """Rows of a batch, for statements that put them into tables.

    Attributes:
        source: a subquery with the columns of the output, ``_ts`` and ``_is_deleted``, for a statement with parameters.
        params: its parameters.
    """

    source: sql.Composed
    params: dict[str, Any]


def is_inline(rows: int, size: int) -> bool:
    """Whether so many rows, of so many bytes, are parameters of the statements that write them."""
    return rows <= INLINE_ROWS and size <= INLINE_BYTES


def staged(cursor: Cursor, output: Output, rows: pl.DataFrame, role: str) -> Staged:
    """Make rows known to Postgres for some statements: few as parameters, many in a temporary table, which is filled once per transaction.

    Args:
        cursor: inside the sink's transaction.
        output: whose columns the rows have, beside ``_ts`` and ``_is_deleted``.
        rows: with these columns.
        role: of the table where they will go, among those that one transaction writes.
    """
    own = [f"_{place}" for place in range(len(output.columns.names))]
    texts = rows.select(
        *(_as_text(name, kind).alias(text) for (name, kind), text in zip(output.columns.items(), own, strict=True)),
        RESULT_TIME,
        IS_DELETED,
    )
    if is_inline(rows.height, int(rows.estimated_size())):
        table, params = _parameters(texts)
    else:
        table, params = _copied(cursor, texts, own, role), {}
    parts = [
        sql.SQL("{}::{} AS {}").format(sql.Identifier(text), sql.SQL(kind.postgres), bound_column(name))
        for (name, kind), text in zip(output.columns.items(), own, strict=True)
    ]
    parts.append(sql.SQL("{}, {}").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    return Staged(sql.SQL("(SELECT {} FROM {})").format(sql.SQL(", ").join(parts), table), params)


def _copied(cursor: Cursor, texts: pl.DataFrame, own: Sequence[str], role: str) -> sql.Composable:
    stage = sql.Identifier("pg_temp", f"stage_{role}_{len(own)}")
    parts = [sql.SQL("{} text").format(sql.Identifier(name)) for name in own]
    parts.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    create = sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS")
    cursor.execute(create.format(stage, sql.SQL(", ").join(parts)))
    copy_frame(cursor, stage, texts)
    return stage


def _parameters(texts: pl.DataFrame) -> tuple[sql.Composable, dict[str, Any]]:
    """Return rows as a function that gives them, with their columns as parameters."""
    params = {f"stage_{place}": _texts(column) for place, column in enumerate(texts.iter_columns())}
    arrays = [sql.SQL("{}::text[]").format(sql.Placeholder(name)) for name in list(params)[:-2]]
    times, deleted = (sql.Placeholder(name) for name in list(params)[-2:])
    arrays.append(sql.SQL("{}::text[]::bigint[], {}::text[]::boolean[]").format(times, deleted))
    names = sql.SQL(", ").join(map(sql.Identifier, texts.columns))
    return sql.SQL("unnest({}) AS _staged ({})").format(sql.SQL(", ").join(arrays), names), params


def _texts(column: pl.Series) -> list[str | None]:
    """Return values as COPY would read them from what ``copy_frame`` writes."""
    if column.dtype == pl.String:
        return column.to_list()
    if column.dtype.is_integer() or column.dtype == pl.Boolean:
        return [None if value is None else str(value) for value in column.to_list()]
    lines = column.to_frame().write_csv(include_header=False).splitlines()
    return [line or None for line in lines]


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

"""A batch's rows on their way into views: few rows are parameters of the statements, many are in a temporary table.

The table is made once per connection, and Postgres empties it at the end of each transaction. A table per transaction would leave dozens of
dead rows in Postgres's catalogs with every commit, and TRUNCATE a few. With many queries the catalogs would grow faster than autovacuum
works, and every statement of every client reads them. The columns are texts, so that results with as many columns share one table: at the end
of each transaction Postgres empties all temporary tables of the connection, and many queries share a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import polars as pl
import psycopg
from psycopg import sql
from psycopg.abc import AdaptContext
from psycopg.adapt import PyFormat

from engine.expressions.types.types import ColumnType, Schema
from engine.formats.json.nested_json import json_texts
from engine.frames.evaluation import Evaluation
from engine.frames.frames import frame_of
from engine.plan.model import Output
from engine.postgres.array_params import BigintArray, BooleanArray, TextArray, array_of, copy_frame, texts_of
from engine.postgres.column_names import bound_column, stored_name

INLINE_ROWS: Final = 500
INLINE_BYTES: Final = 1 << 20

RESULT_TIME = "_ts"
IS_DELETED = "_is_deleted"

_STATEMENTS: Final = 4_096
"""Cached statements: some of each of a few hundred light queries."""

Cursor = psycopg.Cursor[Any]


class Staged(NamedTuple):
    """A batch's rows, for statements that write them into tables.

    Attributes:
        source: a subquery with the columns of the output, ``_ts`` and ``_is_deleted``, for a statement with parameters.
        params: its parameters.
        is_inline: the rows are these parameters; the source is then the same for all rows of an output.
    """

    source: sql.Composed
    params: dict[str, Any]
    is_inline: bool


def is_inline(rows: int, size: int) -> bool:
    """Whether this many rows, of this many bytes, are parameters of the statements that write them."""
    return rows <= INLINE_ROWS and size <= INLINE_BYTES


def staged(cursor: Cursor, output: Output, rows: pl.DataFrame, role: str) -> Staged:
    """Send rows to Postgres for some statements: few as parameters, many in a temporary table, which is filled once per transaction.

    Args:
        cursor: inside the sink's transaction.
        output: whose columns the rows have, beside ``_ts`` and ``_is_deleted``.
        rows: with these columns.
        role: of the target table, among those that one transaction writes.
    """
    own = _text_columns(output)
    values = Evaluation([(text, _as_text(name, kind)) for (name, kind), text in zip(output.columns.items(), own, strict=True)])
    texts = frame_of([*values.of(rows), rows.get_column(RESULT_TIME), rows.get_column(IS_DELETED)])
    if is_inline(rows.height, int(rows.estimated_size())):
        params = {f"stage_{place}": _param(column) for place, column in enumerate(texts.iter_columns())}
        return Staged(_inline_source(output), params, is_inline=True)
    return Staged(_source(output, _copied(cursor, texts, own, role)), {}, is_inline=False)


class _CachedStatement(sql.Composed):
    """A statement that is composed once: with ten columns this costs more than sending it."""

    _bytes: bytes | None = None

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:
        if self._bytes is None:
            self._bytes = super().as_bytes(context)
        return self._bytes


def statement(build: Callable[..., sql.Composed], stage: Staged, output: Output, *given: str) -> sql.Composed:
    """Return the result of ``build`` for the source of staged rows, an output, and further arguments."""
    if not stage.is_inline:
        return build(stage.source, output, *given)
    return _remembered(build, output, *given)


@lru_cache(maxsize=_STATEMENTS)
def _remembered(build: Callable[..., sql.Composed], output: Output, *given: str) -> sql.Composed:
    return _CachedStatement(list(build(_inline_source(output), output, *given)))


@lru_cache(maxsize=_STATEMENTS)
def _inline_source(output: Output) -> sql.Composed:
    """Return the source whose rows are parameters: a function that returns them, with a parameter for each column."""
    own = _text_columns(output)
    kinds = [*(_param_type(kind) for _, kind in output.columns.items()), "bigint", "boolean"]
    given = [
        sql.SQL("{}::{}[]").format(sql.Placeholder(f"stage_{place}", PyFormat.BINARY), sql.SQL(kind))
        for place, kind in enumerate(kinds)
    ]
    names = sql.SQL(", ").join(map(sql.Identifier, [*own, RESULT_TIME, IS_DELETED]))
    return _source(output, sql.SQL("unnest({}) AS _staged ({})").format(sql.SQL(", ").join(given), names))


def _source(output: Output, table: sql.Composable) -> sql.Composed:
    parts = [
        sql.SQL("{}::{} AS {}").format(sql.Identifier(text), sql.SQL(kind.postgres), bound_column(name))
        for (name, kind), text in zip(output.columns.items(), _text_columns(output), strict=True)
    ]
    parts.append(sql.SQL("{}, {}").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    return sql.SQL("(SELECT {} FROM {})").format(sql.SQL(", ").join(parts), table)


def _text_columns(output: Output) -> list[str]:
    return [f"_{place}" for place in range(len(output.columns.names))]


def _copied(cursor: Cursor, texts: pl.DataFrame, own: Sequence[str], role: str) -> sql.Composable:
    stage = sql.Identifier("pg_temp", f"stage_{role}_{len(own)}")
    parts = [sql.SQL("{} text").format(sql.Identifier(name)) for name in own]
    parts.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(RESULT_TIME), sql.Identifier(IS_DELETED)))
    create = sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS")
    cursor.execute(create.format(stage, sql.SQL(", ").join(parts)))
    copy_frame(cursor, stage, texts)
    return stage


def _param_type(kind: ColumnType) -> str:
    """Return the type of values as parameters."""
    if kind.polars.is_integer():
        return "bigint"
    return "boolean" if kind.polars == pl.Boolean else "text"


def _param(column: pl.Series) -> BooleanArray | BigintArray | TextArray:
    """Return values as a parameter; for other types as the texts that COPY would read from ``copy_frame``'s output."""
    if column.dtype.is_integer() or column.dtype in (pl.Boolean, pl.String):
        return array_of(column)
    lines = column.to_frame().write_csv(include_header=False).splitlines()
    return texts_of([line or None for line in lines])


def copy_rows(cursor: Cursor, target: sql.Identifier, frame: pl.DataFrame, schema: Schema) -> None:
    """Copy rows of a result into a table of its columns."""
    kinds = dict(schema.items())
    copy_frame(cursor, target, frame.select(_as_text(name, kinds.get(name)).alias(stored_name(name)) for name in frame.columns))


def _as_text(name: str, kind: ColumnType | None) -> pl.Expr:
    """Return the column in a form that CSV can hold and Postgres reads."""
    given = pl.col(name)
    if kind is None:
        return given
    if kind.kind == "bytes":
        return (pl.lit("\\x") + given.bin.encode("hex")).alias(name)
    if kind.is_nested:
        return given.map_batches(lambda values: json_texts(values, kind), return_dtype=pl.String).alias(name)
    return given

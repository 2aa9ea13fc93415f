"""Rows of a table, page by page in key order, for a follower's snapshot; read in one transaction with the log's position.

The order of keys is Postgres's order alone. The database, not Python, decides which keys come behind a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from app.db.page_bounds import Most, row_bytes
from app.following.cursors import ChangeCursor
from app.following.followed import Followed
from app.http.answers.negotiation import LEAVES
from app.http.answers.record_json import encode_keyed
from engine.commit.views import IS_DELETED, RESULT_TIME, history_identifier, view_identifier
from engine.expressions.types.types import ColumnType
from engine.formats.json.nested_json import json_texts
from engine.plan.model import Output
from engine.postgres.column_names import bound_column, bound_columns

Connection = psycopg.AsyncConnection[Any]

KEYLESS = ("",)
"""The key of the only row of a table without key columns. An empty key is the position before the first row."""


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A row, and the texts of its key.

    Attributes:
        json: as sent to the client; a versioned table also sends the last tombstone of a deleted key.
    """

    key: tuple[str, ...]
    json: str


async def hold(connection: Connection, output: Output) -> None:
    """Lock the table until the transaction ends, so that nobody drops it. Call it before the transaction takes its snapshot.

    Raises:
        psycopg.errors.UndefinedTable: the table is dropped already.
    """
    await connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(_table(output)))


async def read_rows(
    connection: Connection, followed: Followed, output: Output, cursor: ChangeCursor, most: Most, *, has_text_numbers: bool
) -> tuple[list[SnapshotRow], bool]:
    """Return the rows behind the cursor's key, in key order, and whether they are the last rows.

    Raises:
        psycopg.DataError: a text of the cursor's key is not of its column's type.
    """
    names = list(followed.columns.names)
    is_versioned = output.history_retention_ms is not None
    after = cursor.rows_after or ()
    if after and not output.key:
        return [], True
    limit = most.of_rows(followed.columns)
    statement = sql.SQL(
        "SELECT * FROM (SELECT v.*, sum(v._bytes) OVER (ROWS UNBOUNDED PRECEDING) AS _through FROM ("
        "SELECT {distinct} {columns}, {time}, {deleted} AS _deleted, {texts} AS _texts, {bytes} AS _bytes "
        "FROM {table} v {where} {order} LIMIT {limit}) v) v WHERE v._through - v._bytes < {room}"
    ).format(
        distinct=sql.SQL("DISTINCT ON ({})").format(bound_columns(output.key)) if is_versioned else sql.SQL(""),
        columns=bound_columns(names),
        time=sql.Identifier(RESULT_TIME),
        deleted=sql.Identifier(IS_DELETED) if is_versioned else sql.SQL("false"),
        texts=sql.SQL("ARRAY[{}]::text[]").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(bound_column(k)) for k in output.key)
        ),
        table=_table(output),
        where=sql.SQL("WHERE ({}) > ({})").format(bound_columns(output.key), _typed(output)) if after else sql.SQL(""),
        order=_order(output, is_versioned=is_versioned),
        limit=sql.Placeholder(),
        bytes=sql.SQL(row_bytes(followed.columns)),
        room=sql.Placeholder(),
    )
    rows_read = await (await connection.execute(statement, [*after, limit, most.bytes])).fetchall()
    frame = pl.DataFrame(
        [[_restated(value, kind) for value, kind in zip(row, followed.columns.types, strict=False)] for row in rows_read],
        schema=dict(followed.columns.polars()),
        orient="row",
    )
    keys, rows = encode_keyed(frame, followed.columns, followed.key, has_text_numbers=has_text_numbers)
    snapshot_rows = [
        SnapshotRow(
            tuple(texts) or KEYLESS,
            f'{{"op":"{"delete" if is_deleted else "upsert"}","partition":null,"offset":null,"event_time_ms":{time_ms},'
            f'"key":{key},"row":{"null" if is_deleted else values}}}',
        )
        for (*_, time_ms, is_deleted, texts, _, _), key, values in zip(rows_read, keys, rows, strict=True)
    ]
    return snapshot_rows, len(rows_read) < limit and (not rows_read or rows_read[-1][-1] < most.bytes)


async def up_to(connection: Connection, followed: Followed, frame: pl.DataFrame, cursor: ChangeCursor) -> pl.DataFrame:
    """Return the changes of keys up to the cursor's key."""
    if frame.is_empty() or not cursor.rows_after or followed.output is None:
        return frame.clear()
    if not followed.key:
        return frame
    names = [f"k{number}" for number in range(len(followed.key))]
    arrays = sql.SQL(", ").join(sql.SQL("%s::{}[]").format(sql.SQL(followed.columns[name].postgres)) for name in followed.key)
    statement = sql.SQL("SELECT n FROM unnest({}) WITH ORDINALITY AS t({}, n) WHERE ({}) <= ({}) ORDER BY n").format(
        arrays, bound_columns(names), bound_columns(names), _typed(followed.output)
    )
    values = [_bound_values(frame[name], followed.columns[name]) for name in followed.key]
    numbers = await (await connection.execute(statement, [*values, *cursor.rows_after])).fetchall()
    return frame[[int(number) - 1 for (number,) in numbers]] if numbers else frame.clear()


def _bound_values(values: pl.Series, declared: ColumnType) -> list[Any]:
    return (json_texts(values, declared) if declared.is_nested else values).to_list()


def _table(output: Output) -> sql.Identifier:
    return view_identifier(output.name) if output.history_retention_ms is None else history_identifier(output.name)


def _typed(output: Output) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("%s::text::{}").format(sql.SQL(output.columns[name].postgres)) for name in output.key)


def _order(output: Output, *, is_versioned: bool) -> sql.Composable:
    """Return the order by key; a versioned table has its latest version first, which is the one to keep (V2)."""
    if not output.key:
        return sql.SQL("")
    time = sql.SQL(", {} DESC").format(sql.Identifier(RESULT_TIME)) if is_versioned else sql.SQL("")
    return sql.SQL("ORDER BY {}").format(bound_columns(output.key)) + time


def _restated(value: Any, declared: ColumnType) -> Any:
    """Return a database value in the form of frames; nested values are stored as JSON (``engine.commit.views``)."""
    if value is None or not declared.is_nested:
        return value
    return _nested(value, declared)


def _nested(value: Any, declared: ColumnType) -> Any:
    if value is None:
        return None
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            return [_nested(item, element) for item in value]
        case ColumnType(kind="map", value=ColumnType() as inner):
            entries = value.items() if isinstance(value, dict) else ((entry["key"], entry["value"]) for entry in value)
            return [{"key": name, "value": _nested(item, inner)} for name, item in entries]
        case ColumnType(kind="struct", fields=fields):
            return {name: _nested(value.get(name), field) for name, field in fields}
        case _:
            convert = LEAVES.get(declared.kind)
            return value if convert is None else convert(str(value))

"""Pull reads: rows of a materialised table, filtered by key and window, page by page, as JSON that Postgres writes.

Every identifier is quoted by SQLAlchemy and every value is bound; names and values from users never become SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import BYTEA, DOUBLE_PRECISION, TIMESTAMP
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.values import instant
from engine.connectors.views import SCHEMA
from engine.definition.types import ColumnType, Schema

WINDOW_START, WINDOW_END = "window_start", "window_end"

_SQL_TYPES: dict[str, Callable[[ColumnType], Any]] = {
    "boolean": lambda _: sa.Boolean(),
    "int": lambda _: sa.Integer(),
    "bigint": lambda _: sa.BigInteger(),
    "double": lambda _: DOUBLE_PRECISION(),
    "decimal": lambda declared: sa.Numeric(declared.precision, declared.scale),
    "string": lambda _: sa.Text(),
    "bytes": lambda _: BYTEA(),
    "date": lambda _: sa.Date(),
    "time": lambda _: sa.Time(),
    "timestamp": lambda _: TIMESTAMP(timezone=True),
}


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """Which rows.

    Attributes:
        name: the table.
        columns: its columns.
        key: its key columns, in order; rows come in this order.
        equal: key column to the value it must have, of the column's Python type.
        window_from_ms: least ``window_start``, inclusive.
        window_to_ms: greatest ``window_start``, exclusive.
        after: texts of the key of the last row seen.
        limit: how many at most.
        has_text_numbers: write bigint and decimal as strings.
    """

    name: str
    columns: Schema
    key: tuple[str, ...]
    equal: Mapping[str, object]
    window_from_ms: int | None
    window_to_ms: int | None
    after: Sequence[str] | None
    limit: int
    has_text_numbers: bool


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One row: its JSON text, and the texts of its key for a cursor."""

    json: str
    key: tuple[str, ...]


async def find_rows(connection: AsyncConnection, request: RowsRequest) -> list[FoundRow]:
    """Return rows in key order.

    Raises:
        sqlalchemy.exc.DataError: a text in ``after`` is not of its column's type.
    """
    view = sa.table(request.name, *(sa.column(name, _sql_type(kind)) for name, kind in request.columns.items()), schema=SCHEMA)
    shown = (
        sa.select(
            *(
                _shown(view.c[name], kind, has_text_numbers=request.has_text_numbers).label(name)
                for name, kind in request.columns.items()
            )
        )
        .correlate(view)
        .lateral("shown")
    )
    row = sa.cast(sa.func.row_to_json(shown.table_valued()), sa.Text)
    keys = [view.c[name] for name in request.key]
    statement = (
        sa.select(row, *(sa.cast(column, sa.Text) for column in keys))
        .select_from(view.join(shown, sa.true()))
        .where(*_conditions(view, request))
        .order_by(*keys)
        .limit(request.limit)
    )
    return [FoundRow(found[0], tuple(found[1:])) for found in await connection.execute(statement)]


def _conditions(view: sa.TableClause, request: RowsRequest) -> Iterator[sa.ColumnElement[bool]]:
    for name, value in request.equal.items():
        yield view.c[name] == sa.cast(sa.literal(value, _sql_type(request.columns[name])), _sql_type(request.columns[name]))
    if request.window_from_ms is not None:
        yield view.c[WINDOW_START] >= sa.literal(instant(request.window_from_ms), TIMESTAMP(timezone=True))
    if request.window_to_ms is not None:
        yield view.c[WINDOW_START] < sa.literal(instant(request.window_to_ms), TIMESTAMP(timezone=True))
    if request.after is not None and request.key:
        seen = [
            sa.cast(sa.literal(text, sa.Text()), _sql_type(request.columns[name]))
            for name, text in zip(request.key, request.after, strict=True)
        ]
        yield sa.tuple_(*(view.c[name] for name in request.key)) > sa.tuple_(*seen)


def _sql_type(declared: ColumnType) -> Any:
    make = _SQL_TYPES.get(declared.kind)
    return sa.JSON() if make is None else make(declared)


def _shown(column: sa.ColumnElement[Any], declared: ColumnType, *, has_text_numbers: bool) -> sa.ColumnElement[Any]:
    """Return the column as answers show it; what is not named here Postgres's own JSON form shows already."""
    match declared.kind:
        case "timestamp":
            text = sa.func.to_char(sa.func.timezone("UTC", column), 'YYYY-MM-DD"T"HH24:MI:SS.US')
            return sa.func.regexp_replace(text, r"\.?0+$", "").concat("Z")
        case "bytes":
            return sa.func.translate(sa.func.encode(column, "base64"), "\n", "")
        case "bigint" | "decimal" if has_text_numbers:
            return sa.cast(column, sa.Text)
        case _:
            return column

"""Where a page ends before its limit: sizes of rows in SQL, measured before they are read or written as text.

Postgres knows the length of a text without reading its part outside of the row (TOAST), so rows after the page cost almost nothing. A page has
at least one item, however large, and ends with the item that makes it full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from engine.expressions.types.types import Schema
from engine.postgres.column_names import stored_name

IS_BEYOND = "is_beyond"
"""Column of a bounded page's rows: true for the row that is read only to show that another page follows."""

_COLUMN_BYTES = 12
"""Bytes of a column besides its name: quotes, colon and comma, and a number of usual length or a text's quotes."""


@dataclass(frozen=True, slots=True)
class Most:
    """The limits of one page; it has at least one item, however large.

    Attributes:
        bytes: approximate.
    """

    items: int
    bytes: int

    def of_rows(self, columns: Schema) -> int:
        """Return how many rows fit if all their texts are empty."""
        return max(1, min(self.items, self.bytes // max(fixed_bytes(columns), 1)))


def fixed_bytes(columns: Schema) -> int:
    """Return the approximate bytes of a row in an answer without its texts: the names of its columns make a narrow row large."""
    return sum(len(name.encode()) + _COLUMN_BYTES for name in columns.names)


def row_bytes(columns: Schema) -> str:
    """Return the SQL for the approximate bytes of a row of ``v`` in an answer, for a statement with parameters.

    The type is float, which Postgres adds much faster than exact numbers.
    """
    sizes = [f"{fixed_bytes(columns)}::float8"]
    for name, kind in columns.items():
        column = f"v.{quoted(stored_name(name))}"
        if kind.is_nested:
            sizes.append(f"coalesce(octet_length({column}::text), 0)")
        elif kind.kind in ("string", "bytes"):
            sizes.append(f"coalesce(octet_length({column}), 0)")
    return " + ".join(sizes)


def quoted(name: str) -> str:
    """Quote an identifier, also against psycopg's placeholders."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def bounded(statement: sa.Select[Any], large: Sequence[str], most_bytes: int) -> sa.Select[Any]:
    """Return a statement of a page that ends early.

    Args:
        statement: of ``limit + 1`` rows, in their order.
        large: names of its columns that may be large; the others do not count.
        most_bytes: the page ends after so many bytes of these columns; the next row has ``IS_BEYOND``.
    """
    rows = statement.subquery()
    sizes = [sa.func.coalesce(sa.func.octet_length(sa.cast(rows.c[name], sa.Text)), 0) for name in large]
    size = sum(sizes[1:], sizes[0])
    # The window uses the subquery's order: it names no other one.
    before, before_previous = (sa.func.coalesce(sa.func.sum(size).over(rows=(None, -back)), 0) for back in (1, 2))
    measured = sa.select(rows, (before >= most_bytes).label(IS_BEYOND), before_previous.label("_before_previous")).subquery()
    shown = [column for column in measured.c if column.name != "_before_previous"]
    return sa.select(*shown).where(measured.c["_before_previous"] < most_bytes)

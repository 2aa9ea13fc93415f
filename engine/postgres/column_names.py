"""The names of users' columns in Postgres, and how these names get into statements.

Every column name that a definition accepts works here too. Our own columns and aliases in such statements begin with ``_``, which no
column of a user does. Postgres's system columns are in every table and cannot be made again. So a column with such a name is stored with a
``_`` before it; answers, change feeds and expressions keep its own name.
"""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql
from psycopg.abc import AdaptContext

SYSTEM_COLUMNS = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
"""Section "System Columns" of Postgres's manual. Quoted names are case-sensitive: ``CTID`` is no system column."""


def stored_name(name: str) -> str:
    """Return a column's name in the tables of the schemas ``views``, ``history`` and ``open``."""
    return f"_{name}" if name in SYSTEM_COLUMNS else name


def column(name: str) -> sql.Identifier:
    """Return a column, quoted, for a statement without parameters."""
    return sql.Identifier(stored_name(name))


def bound_column(name: str) -> sql.Identifier:
    """Return a column, quoted, for a statement with parameters: psycopg would take a percent sign in it for a placeholder."""
    return _Escaped(stored_name(name))


def columns(names: Iterable[str]) -> sql.Composed:
    """Return columns separated by commas, for a statement without parameters."""
    return sql.SQL(", ").join(map(column, names))


def bound_columns(names: Iterable[str]) -> sql.Composed:
    """Return columns separated by commas, for a statement with parameters."""
    return sql.SQL(", ").join(map(bound_column, names))


class _Escaped(sql.Identifier):
    """An identifier whose percent signs are not placeholders for psycopg."""

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:
        """See ``sql.Composable``."""
        return super().as_bytes(context).replace(b"%", b"%%")

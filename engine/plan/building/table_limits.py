"""Bounds of a table whose rows are kept for reading: those of a table in Postgres and of its primary key."""

from __future__ import annotations

from engine.definition.problems import Problems
from engine.expressions.limits import MAX_COLUMNS, MAX_KEY_COLUMNS


def check_table_size(problems: Problems, key: tuple[str, int], columns: tuple[str, int], *, is_versioned: bool) -> None:
    """Check how many columns a table and its key have.

    Args:
        problems: gets what is too much.
        key: where the definition says the key, and of how many columns.
        columns: where it says the columns, and how many.
        is_versioned: the table keeps its history.
    """
    most = MAX_KEY_COLUMNS - is_versioned
    if key[1] > most:
        kept = " with its history" if is_versioned else ""
        detail = f"a table whose rows are kept{kept} has a key of at most {most} columns, this one of {key[1]}; put some of them into one"
        problems.add(key[0], "too_many_columns", detail)
    if columns[1] > MAX_COLUMNS:
        detail = f"a table whose rows are kept has at most {MAX_COLUMNS:,} columns, this one {columns[1]:,}; put some into a map or a struct"
        problems.add(columns[0], "too_many_columns", detail)

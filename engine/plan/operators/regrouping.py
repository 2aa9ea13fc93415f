"""What the two steps of an aggregation over a table send each other: names and types of the messages' columns. Pure.

A message is for one group: the old row leaves it, the new row joins it, or both (a row that changed within its group). A row that
moves makes two messages, the old group's first (A1).
"""

from __future__ import annotations

from engine.expressions.types.types import BOOLEAN, Schema
from engine.plan.operators.aggregation import TableRegrouping


def old_column(name: str, column: str) -> str:
    """Return the column that holds the old row's value of ``column``; ``name`` is the aggregation's."""
    return f"{name}.$old.{column}"


def new_column(name: str, column: str) -> str:
    """Return the column that holds the new row's value of ``column``."""
    return f"{name}.$new.{column}"


def has_old_column(name: str) -> str:
    """Return the column (boolean) that says whether an old row leaves the group."""
    return f"{name}.$has_old"


def has_new_column(name: str) -> str:
    """Return the column (boolean) that says whether a new row joins the group."""
    return f"{name}.$has_new"


def regrouped_schema(spec: TableRegrouping, schema: Schema) -> Schema:
    """Return the columns of a message; ``schema`` has the table's columns.

    The group's columns keep their names and say which group the message is for.
    """
    return Schema(
        (
            *schema.select(spec.group).items(),
            *((old_column(spec.name, column), schema[column]) for column in spec.columns),
            *((new_column(spec.name, column), schema[column]) for column in spec.columns),
            (has_old_column(spec.name), BOOLEAN),
            (has_new_column(spec.name), BOOLEAN),
        )
    )


def regrouped_rows(name: str, messages: Schema) -> Schema:
    """Return the columns an aggregate's argument may read, by the table's own names: those that were sent as old and new."""
    prefix = new_column(name, "")
    return Schema(tuple((column.removeprefix(prefix), kind) for column, kind in messages.items() if column.startswith(prefix)))

"""What the three steps of a foreign-key join send each other: names and types of the messages' columns. Pure.

The plan needs them to lay out stages, ``engine.operators`` to make and to read the messages.

A *subscription* goes from the left row's task to the foreign key's task: the left columns, the foreign key, the generation of the
left row (it rises with every change that counts) and what to do. An *answer* goes back to the left row's task: the left columns,
the right ones and the generation the answer is for; ``_op`` says whether there is a row.
"""

from __future__ import annotations

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import BIGINT, INT, ColumnType, Schema
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeySubscription


def foreign_key_column(name: str, index: int) -> str:
    """Return the column that holds one part of a foreign key; ``name`` is the join's."""
    return f"{name}.$fk{index}"


def foreign_key_columns(spec: ForeignKeySubscription | ForeignKeyLookup) -> tuple[str, ...]:
    """Return the columns of the foreign key, in the order of the right table's key."""
    return tuple(foreign_key_column(spec.name, index) for index in range(spec.key_width))


def generation_column(name: str) -> str:
    """Return the column (bigint) that says which change of the left row a message belongs to."""
    return f"{name}.$generation"


def action_column(name: str) -> str:
    """Return the column (int) that says what a subscription asks for."""
    return f"{name}.$action"


def subscription_schema(spec: ForeignKeySubscription, left: Schema) -> Schema:
    """Return the columns of a subscription; ``left`` has the columns that enter the step."""
    foreign_key = tuple(
        (foreign_key_column(spec.name, index), compile_scalar(text, left).type) for index, text in enumerate(spec.foreign_key)
    )
    return Schema(
        (
            *_carried(spec, left),
            *foreign_key,
            (generation_column(spec.name), BIGINT),
            (action_column(spec.name), INT),
        )
    )


def answer_schema(spec: ForeignKeyLookup, subscriptions: Schema, right: Schema) -> Schema:
    """Return the columns of an answer; ``right`` has (at least) the right table's columns that go on."""
    return Schema(
        (
            *_carried(spec, subscriptions),
            *right.select(spec.right_columns).items(),
            (generation_column(spec.name), BIGINT),
        )
    )


def _carried(spec: ForeignKeySubscription | ForeignKeyLookup, columns: Schema) -> tuple[tuple[str, ColumnType], ...]:
    """Return the left key's columns and the others that go on."""
    return columns.select(dict.fromkeys((*spec.key, *spec.left_columns))).items()

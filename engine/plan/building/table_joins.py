"""The columns of a table-table join's rows, and which of them are their key. Pure.

The plan needs them to lay out stages, ``engine.operators`` to make rows. The columns of an absent side are null, those of its key among
them; so the key of a row is in the left side's key columns of an inner and a left join, in the right side's of a right join. Of an
outer join neither side's would do: such a join makes columns of its own, which hold the key of whichever side there is.
"""

from __future__ import annotations

from typing import Literal

from engine.expressions.types.types import BIGINT, ColumnType, Schema
from engine.plan.operators.table_table_join import TableTableJoin

JoinType = Literal["inner", "left", "right", "outer"]


def result_key(join: JoinType, name: str, left_key: tuple[str, ...], right_key: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that hold the key of a join's rows, in the order of both sides' keys; ``name`` is the join's."""
    if join == "outer":
        return tuple(f"{name}.$key{index}" for index in range(len(left_key)))
    return right_key if join == "right" else left_key


def made_columns(spec: TableTableJoin, left: Schema, right: Schema) -> Schema:
    """Return the key columns that the join makes; ``left`` and ``right`` have both sides' columns."""
    columns = zip(spec.left_key, spec.right_key, spec.key, strict=True)
    return Schema(tuple((key, wider(left[mine], right[other])) for mine, other, key in columns if key not in (mine, other)))


def joined_schema(spec: TableTableJoin, left: Schema, right: Schema) -> Schema:
    """Return the columns of the join's rows."""
    carried = (*left.select(spec.left_columns).items(), *right.select(spec.right_columns).items())
    return Schema((*carried, *made_columns(spec, left, right).items()))


def wider(one: ColumnType, other: ColumnType) -> ColumnType:
    """Return the type that holds the values of both columns, which can be equal: they differ only as int and bigint do."""
    return BIGINT if BIGINT in (one, other) else one

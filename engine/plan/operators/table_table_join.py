"""The join of two tables on their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from engine.plan.operators.operator import StatefulOperator


@dataclass(frozen=True, slots=True)
class TableTableJoin(StatefulOperator):
    """TT1–TT6. Both sides have the same key. The running table is the left side, the table input ``table_index`` the right one.

    ``name`` is the alias of the right table.

    Attributes:
        left_key: qualified key columns of the running table.
        right_key: qualified key columns of the right table, in the same order.
        key: columns that hold the key of a result row, in the same order (``engine.plan.building.join_keys``).
        left_retention_ms: R of the left side, None where it is unversioned.
        right_retention_ms: the same of the right side.
        history: ``complete`` (TT6) only with both sides versioned.
        left_columns: qualified columns of the left side in the output.
        right_columns: the same of the right side.
        is_result_versioned: the query's result is a versioned table: a remembered tombstone counts for a result's time (TT3).

    The output has the left side's columns, then the right side's, then those of ``key`` that are of neither; those of an absent side
    are null. Filled in every row and every delete are the columns of ``key``; in a delete no others.
    """

    type: Literal["inner", "left", "right", "outer"]
    table_index: int
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    key: tuple[str, ...]
    left_retention_ms: int | None
    right_retention_ms: int | None
    history: Literal["latest", "complete"]
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]
    is_result_versioned: bool = False

    @property
    def table_beside(self) -> int:
        return self.table_index

    def renumbered(self, index_of: Mapping[int, int]) -> Self:
        return replace(self, table_index=index_of[self.table_index])

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.left_key, self.right_key, strict=True))

    @property
    def renamed(self) -> Mapping[str, str]:
        return dict(zip(self.left_key, self.key, strict=True))

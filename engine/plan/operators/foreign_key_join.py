"""The join of two tables on a foreign key: three operators, each in tasks of its own. What they send each other: ``plan.foreign_keys``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from engine.plan.operators.operator import Operator, StatefulOperator


@dataclass(frozen=True, slots=True)
class ForeignKeySubscription(StatefulOperator):
    """FK1–FK3, the first of three steps, in tasks by the left table's key: what each change of a left row means for foreign keys.

    All three steps are named by the right table's alias.

    Attributes:
        key: the left table's qualified key columns.
        foreign_key: one SQL expression over the left columns for each key column of the right table; null in one: no foreign key.
        history_retention_ms: R of the left side, None where it is unversioned.
        left_columns: qualified columns that go on.
    """

    type: Literal["inner", "left"]
    key: tuple[str, ...]
    foreign_key: tuple[str, ...]
    history_retention_ms: int | None
    left_columns: tuple[str, ...]

    @property
    def key_width(self) -> int:
        """Of how many columns the foreign key is."""
        return len(self.foreign_key)


@dataclass(frozen=True, slots=True)
class ForeignKeyLookup(StatefulOperator):
    """The second step, in tasks by foreign key: holds the subscriptions and the right table, answers for each left row concerned.

    Attributes:
        table_index: ``Input.index`` of the right table.
        key: as of the subscription.
        right_key: qualified key columns of the right table.
        right_retention_ms: R of the right side, None where it is unversioned.
        left_columns: as of the subscription.
        right_columns: qualified columns of the right side in the output.
    """

    type: Literal["inner", "left"]
    table_index: int
    key: tuple[str, ...]
    right_key: tuple[str, ...]
    right_retention_ms: int | None
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]

    @property
    def key_width(self) -> int:
        """Of how many columns the foreign key is."""
        return len(self.right_key)

    @property
    def table_beside(self) -> int:
        return self.table_index

    def renumbered(self, index_of: Mapping[int, int]) -> Self:
        return replace(self, table_index=index_of[self.table_index])

    def foreign_key(self, operators: Iterable[Operator]) -> tuple[str, ...]:
        """Return the expressions of the foreign key: those of the first step, which is one of these operators."""
        steps = (each for each in operators if isinstance(each, ForeignKeySubscription) and each.name == self.name)
        return next(steps).foreign_key


@dataclass(frozen=True, slots=True)
class ForeignKeyResult(StatefulOperator):
    """The third step, in tasks by the left key again: drops answers that a newer left row made void, and deletes of nothing.

    Attributes:
        key: as of the subscription.
        columns: qualified columns of the result, the left side's and the right side's.
    """

    type: Literal["inner", "left"]
    key: tuple[str, ...]
    columns: tuple[str, ...]

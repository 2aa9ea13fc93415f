"""Aggregations: what all have in common, and those without windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from engine.expressions.aggregates.aggregates import ENTRIES, AggregateFunction, CallOptions
from engine.plan.operators.operator import StatefulOperator, Value


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """One aggregate of a group.

    Attributes:
        name: output column.
        function: which aggregate.
        argument: SQL scalar expression over qualified columns, None for ``count(*)``.
        limit: k of ``top_k``; at how many values the others are full that grow with their group, None: ``engine.expressions.limits``.
        options: what few calls have, None where there is nothing of it.
    """

    name: str
    function: AggregateFunction
    argument: str | None
    limit: int | None = None
    options: CallOptions | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The expressions of all values that it takes of each record."""
        first = () if self.argument is None else (self.argument,)
        return first if self.options is None else (*first, *self.options.further)


class Aggregation(StatefulOperator):
    """What every aggregation has.

    Attributes:
        group: (output column, qualified source column) pairs.
        having: SQL condition over the output columns, else None.
        is_folded: of the changes only the last one per key of a batch has to be emitted (``engine.plan.model``).

    Output columns: the group's, the aggregates'.
    """

    __slots__ = ()

    edited_in_place: ClassVar[Mapping[str, Any]] = {"is_folded": False}

    group: tuple[tuple[str, str], ...]
    aggregates: tuple[AggregateColumn, ...]
    having: str | None
    is_folded: bool

    @property
    def is_final(self) -> bool:
        """Whether it shows each of its results once, when that can change no more."""
        return False

    def showing(self, having: str) -> Self:
        """Return it so that it shows only groups that fulfil a condition over its output columns."""
        return replace(self, having=having)  # type: ignore[call-arg]  # a field of every aggregation

    def folded(self, *, is_read: bool) -> Self:
        if is_read and not any(ENTRIES[column.function].is_growing for column in self.aggregates):
            return self
        return replace(self, is_folded=True)  # type: ignore[call-arg]  # a field of every aggregation

    @property
    def renamed(self) -> Mapping[str, str]:
        return {source: name for name, source in reversed(self.group)}

    @property
    def stored_by(self) -> tuple[str, ...]:
        return tuple(source for _, source in self.group)

    def values_behind(self, values: Mapping[str, Value]) -> dict[str, Value]:
        return {name: values[source] for name, source in self.group if source in values}


@dataclass(frozen=True, slots=True)
class RunningAggregation(Aggregation):
    """A3: one result per group of a stream, without a window; a change per record.

    A group that stops fulfilling ``having`` becomes a delete, where it was shown before.
    """

    group: tuple[tuple[str, str], ...]
    aggregates: tuple[AggregateColumn, ...]
    having: str | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class TableRegrouping(StatefulOperator):
    """A1, the first of two steps, in tasks by the table's key: the old and the new row behind each change.

    Attributes:
        key: the table's qualified key columns.
        history_retention_ms: R of a versioned table, else None.
        group: qualified columns of the groups; a null in one: the row is not counted.
        columns: qualified columns that the aggregates read.
    """

    key: tuple[str, ...]
    history_retention_ms: int | None
    group: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def stored_by(self) -> tuple[str, ...]:
        return self.key


@dataclass(frozen=True, slots=True)
class TableAggregation(Aggregation):
    """A1, A2, the second step, in tasks by group: subtracts old rows, adds new ones. See ``RunningAggregation``."""

    group: tuple[tuple[str, str], ...]
    aggregates: tuple[AggregateColumn, ...]
    having: str | None = None
    is_folded: bool = False

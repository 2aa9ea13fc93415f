"""Operators that look at one row at a time and keep nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.expressions.syntax import reference
from engine.plan.operators.operator import Operator, Value


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Keep a stream's rows for which ``condition`` (over qualified columns) is true."""

    keeps_offset = True
    keeps_hash = True
    passes_records = True

    condition: str


@dataclass(frozen=True, slots=True)
class Projection(Operator):
    """The ``select``: (output column, SQL scalar expression over the columns before it) pairs; or what a step makes first.

    Attributes:
        columns: the pairs.
        step: under which name it counts what it cannot compute: ``select``, ``group_by``, a join's name.
    """

    keeps_offset = True

    columns: tuple[tuple[str, str], ...]
    step: str = "select"

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        return self.columns

    def values_behind(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """See ``Operator``: of columns that are just columns."""
        known = {reference(name): value for name, value in values.items()}
        return {name: known[text] for name, text in self.columns if text in known}


@dataclass(frozen=True, slots=True)
class Retiming(Operator):
    """Give the result's rows the event time that a column of them holds.

    Attributes:
        column: a timestamp, a bigint of milliseconds since 1970, or a string.
        form: strptime format of a string, None: RFC 3339.
    """

    keeps_offset = True
    keeps_hash = True
    retimes = True

    column: str
    form: str | None = None

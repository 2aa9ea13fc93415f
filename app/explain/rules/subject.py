"""The subject of an explanation, as each operator of the plan sees it, and the explanation of filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from app.catalog.queries import columns
from app.catalog.queries.columns import task_of
from app.explain.rules.facts import Clock, Code, Facts, LateFact, Place, Record, ResultFact, Step
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.model import Plan, Stage
from engine.plan.operators.operator import Operator
from engine.plan.operators.row_operators import Filter
from engine.plan.operators.table_filter import TableFilter


@dataclass(frozen=True, slots=True)
class Subject:
    """A record, or a possible record, on its way through a plan.

    Attributes:
        values: known values, by their names before the next operator.
        record: the record in the feed; None: the explanation is about a record that would arrive now.
        late: stored late records of this key and time.
        results: rows of the result for this key and time.
        is_recognised: the known values distinguish rows of this key from others; False: ``results`` is empty without meaning.
    """

    plan: Plan
    facts: Facts
    at_ms: int
    values: Mapping[str, object]
    record: Record | None
    late: Sequence[LateFact]
    results: Sequence[ResultFact]
    is_recognised: bool = True

    @property
    def exists(self) -> bool:
        """Whether the query has read such a record."""
        return self.record is not None and self.record.is_read

    @property
    def is_known_of(self) -> bool:
        """Whether any stored fact concerns this key and time: the record, a late record, or rows of the result."""
        return self.record is not None or bool(self.results) or any(fact.event_time_ms == self.at_ms for fact in self.late)

    def task(self, stage: Stage) -> int | None:
        """Return the task that handles the record in a stage, None if unknown."""
        return task_of(stage, self.plan, self.values)

    def clock(self, name: str) -> int | None:
        """Return the time before an operator, or of a table (``<name>.table``); None before the first record."""
        return self.facts.committed.clocks.get(name)

    def late_at(self, operator: str, reasons: Sequence[str]) -> LateFact | None:
        """Return the late record of an operator with one of these beginnings of a reason, and exactly this event time."""
        return next(
            (
                fact
                for fact in self.late
                if fact.operator == operator and fact.event_time_ms == self.at_ms and fact.reason.startswith(tuple(reasons))
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps of an operator, and the values that are known only after it, such as those of a join's other side."""

    steps: Sequence[Step] = ()
    values: Mapping[str, object] = field(default_factory=dict)


class Waiting(NamedTuple):
    """A clock: its kind, its value, and the value that it must reach."""

    clock: Clock
    now_ms: int | None
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Desk:
    """Writes the steps of one operator."""

    stage: Stage
    operator: Operator
    task: int | None

    def step(
        self,
        code: Code,
        sentence: str,
        *,
        is_blocking: bool = False,
        clock: Waiting | None = None,
        version: tuple[int, int | None] | None = None,
        reason: str | None = None,
        place: Place | None = None,
    ) -> Step:
        """Write a step. ``clock`` is what the record waits for, ``version`` begin and end of the version that answers; see ``Step``."""
        which, now_ms, until_ms = (None, None, None) if clock is None else clock
        begin_ms, end_ms = version or (None, None)
        return Step(
            code, is_blocking, sentence, self.operator.kind, self.stage.index, self.operator.name, self.task, which, now_ms, until_ms,
            begin_ms, end_ms, reason, place,
        )  # fmt: skip


def explain_filter(desk: Desk, spec: Filter | TableFilter, subject: Subject) -> Step:
    """Explain whether a record passes a filter."""
    is_fulfilled = holds(spec.condition, columns.typed(subject.plan), subject.values)
    if is_fulfilled is False:
        return desk.step("filtered", f"It does not fulfil `where`: {spec.condition}", is_blocking=True)
    known = "fulfils" if is_fulfilled else "may or may not fulfil"
    return desk.step("passed", f"It {known} `where`: {spec.condition}")


def holds(condition: str, schema: Schema, values: Mapping[str, object]) -> bool | None:
    """Evaluate a condition; None if a column that it reads is unknown. Null is not true."""
    known = Schema(tuple((name, kind) for name, kind in schema.items() if name in values))
    try:
        scalar = compile_scalar(condition, schema)
    except ExpressionInvalid:  # it reads columns that only operators make: $match, computed columns
        return None
    if not scalar.columns <= set(known.names):
        return None
    frame = pl.DataFrame({name: pl.Series([values[name]], dtype=kind.polars) for name, kind in known.items()})
    return bool(frame.select(scalar.expr.fill_null(value=False)).item()) if frame.width else None

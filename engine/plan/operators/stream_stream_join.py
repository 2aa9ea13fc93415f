"""The join of two streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from engine.frames.clocks import Wait
from engine.plan.operators.answers import Allowance, Gauge, Setting, TimeBound
from engine.plan.operators.operator import StatefulOperator


@dataclass(frozen=True, slots=True)
class StreamStreamJoin(StatefulOperator):
    """Two streams whose records meet when their keys are equal and their event times near each other.

    A pair meets when ``left.ts - before <= right.ts <= left.ts + after``. The running stream is the left side; ``name`` is the alias of the
    other one.

    Attributes:
        type: which side's records come with nulls where they have no match.
        stream_index: ``Input.index`` of the right side.
        left_key: qualified columns of the left side that equal the right ones.
        right_key: qualified columns of the right side.
        right_columns: qualified right columns in the output; all of the left side's are.
        is_eager: records come with nulls at once, and not once their time range has closed (SS5). Then the output ends with
            ``<name>.$state`` (string: preliminary, final).
    """

    part = "joins"
    edited_in_place: ClassVar[Mapping[str, Any]] = {"grace_ms": 0}

    type: Literal["inner", "left", "right", "outer"]
    stream_index: int
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    before_ms: int
    after_ms: int
    grace_ms: int
    right_columns: tuple[str, ...]
    is_eager: bool = False

    @property
    def shown_alone(self) -> tuple[bool, bool]:
        """Whether records of the left side, and of the right one, are shown without a partner."""
        return self.type in {"left", "outer"}, self.type in {"right", "outer"}

    @property
    def state_column(self) -> str:
        """The column that marks the rows of an eager join."""
        return f"{self.name}.$state"

    @property
    def waits(self) -> tuple[Wait, ...]:
        reaches = [reach for reach, is_shown in zip((self.after_ms, self.before_ms), self.shown_alone, strict=True) if is_shown]
        return (Wait(max(reaches) + self.grace_ms),) if reaches and not self.is_eager else ()

    @property
    def closes_behind_ms(self) -> int:
        return self.grace_ms

    @property
    def stream_beside(self) -> int:
        return self.stream_index

    def renumbered(self, index_of: Mapping[int, int]) -> Self:
        return replace(self, stream_index=index_of[self.stream_index])

    def gauge(self, stage: int) -> Gauge:
        allowance = Allowance(self.after_ms, self.before_ms)
        return Gauge(f"{self.name}.grace", stage, self.stream_index, self.name, self.name, (), allowance, self.grace_ms)

    def setting(self, source: str | None, gauge: str) -> Setting:
        return Setting("join_grace", self.name, source, gauge, self.grace_ms, "T1")

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.left_key, self.right_key, strict=True))

    @property
    def always_equal(self) -> tuple[tuple[str, str], ...]:
        return self.equalities if self.type == "inner" else ()

    @property
    def time_bounds(self) -> tuple[TimeBound, ...]:
        return (TimeBound("/within/grace", "records_let_go", self.name, self.name, self.grace_ms + 1),)

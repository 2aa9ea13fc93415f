"""What a plan's operators have in common: one answer to everything that the plan and its readers ask of an operator.

Whoever needs something of the operators of a plan loops over them and asks; nobody asks of which kind one is. The defaults suit an operator
that is made anew from every record. How operators run is no matter of the plan (``engine.operators.operator_kinds``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

from engine.frames.clocks import Wait
from engine.plan.operators.answers import ClockWait, Gauge, LatenessClock, RowBound, Setting, Span, TimeBound

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of a stage.

    Attributes:
        keeps_offset: each row that it makes is made of one row of the running relation, and keeps its offset.
        keeps_hash: its rows keep the hash with which they came.
        retimes: its rows have event times of their own, and so the result has a time of its own (T1c).
        passes_records: its rows are rows of the running relation as they came, or not at all.
        takes_replays: late records that it has refused can be given to it again.
        part: the part of the definition that its settings are in.
        edited_in_place: fields that may be edited without new state, each with the value that stands for all others in the fingerprint.
    """

    keeps_offset: ClassVar[bool] = False
    keeps_hash: ClassVar[bool] = False
    retimes: ClassVar[bool] = False
    passes_records: ClassVar[bool] = False
    takes_replays: ClassVar[bool] = False
    part: ClassVar[Literal["joins", "window", "suppress"] | None] = None
    edited_in_place: ClassVar[Mapping[str, Any]] = {}

    @property
    def name(self) -> str | None:
        """Names it in state, clocks and counters; None: it keeps nothing."""
        return None

    @property
    def kind(self) -> str:
        """What it is, in words: ``stream_table_join``."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    def state_part(self) -> Self:
        """Return what kept state depends on: itself with neutral values for what may be edited in place."""
        return replace(self, **self.edited_in_place)

    def renumbered(self, index_of: Mapping[int, int]) -> Self:  # noqa: ARG002 - for those that read an input
        """Return it with the index of the input that it reads in place of the relation's place in the definition."""
        return self

    def folded(self, *, is_read: bool) -> Self:  # noqa: ARG002 - for aggregations
        """Return it so that it leaves out what its sink would fold (``engine.plan.model``), as far as it may where its result is read."""
        return self

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        """Columns behind it and the texts that they are made of, where it makes all of them of expressions."""
        return ()

    @property
    def needs_ticks(self) -> bool:
        """Whether it must learn the time also when no record comes (S2), or to go on after a full buffer (S4)."""
        return False

    @property
    def awaited_table(self) -> int | None:
        """``Input.index`` of the table whose progress it waits for (J9)."""
        return None

    @property
    def waits(self) -> tuple[Wait, ...]:
        """How far behind the time before it the time behind it is (T1c); a wait by the wall clock comes behind these."""
        return ()

    @property
    def clock_wait(self) -> ClockWait | None:
        """How long it waits by the wall clock (T11); None: it does not."""
        return None

    @property
    def waits_ms(self) -> int:
        """What its rows wait at most (L of T1c and T1d), by stream time and by the wall clock together."""
        return sum(wait.ms for wait in self.waits) + (0 if self.clock_wait is None else self.clock_wait.limit_ms)

    @property
    def closes_behind_ms(self) -> int | None:
        """What is so far behind the time before it has closed for good (W6), also where an edit lengthens this; None: nothing closes."""
        return None

    @property
    def stream_beside(self) -> int | None:
        """``Input.index`` of the stream that it joins with the running one: both have one time (SS1)."""
        return None

    @property
    def table_beside(self) -> int | None:
        """``Input.index`` of the table whose changes make results beside those of the running one (T1d)."""
        return None

    @property
    def looked_up_table(self) -> int | None:
        """``Input.index`` of the table that the running stream looks up, which makes no results (J1)."""
        return None

    @property
    def closing_delay_ms(self) -> int | None:
        """How long after its end a window's row cannot change any more, by stream time (W5); None where there are no windows."""
        return None

    def span_of(self, at_ms: int) -> Span | None:  # noqa: ARG002 - for windows
        """Return the first window that holds a time: the one that closes first."""
        return None

    def gauge(self, stage: int) -> Gauge | None:  # noqa: ARG002 - for those that judge lateness
        """Return the measure of how late records come before it, where it judges that by a time of its own."""
        return None

    def setting(self, source: str | None, gauge: str) -> Setting | None:  # noqa: ARG002 - as above
        """Return the setting that a gauge advises on.

        Args:
            source: alias of the input whose records come to it as they are, else None.
            gauge: its own, or the input's where that measures the same.
        """
        return None

    @property
    def entry_clock(self) -> LatenessClock | None:
        """By which clock it judges the running relation, where an input's own gauge measures the same."""
        return None

    def side_clock(self, input_index: int) -> LatenessClock | None:  # noqa: ARG002 - for joins
        """Return by which clock it judges the records of another input that it reads."""
        return None

    @property
    def equalities(self) -> tuple[tuple[str, str], ...]:
        """Columns of the running relation and of another input that are equal where these two match."""
        return ()

    @property
    def always_equal(self) -> tuple[tuple[str, str], ...]:
        """Those of the equalities that hold in every row and every delete behind it."""
        return ()

    @property
    def renamed(self) -> Mapping[str, str]:
        """What columns before it, by which tasks may be chosen, are called behind it; absent: as before."""
        return {}

    @property
    def stored_by(self) -> tuple[str, ...]:
        """Columns by which it keeps the rows of the running relation; empty: by those that they came with."""
        return ()

    def values_behind(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return values of columns under the names that they have behind it; those that end here are left out."""
        return dict(values)

    @property
    def time_bounds(self) -> tuple[TimeBound, ...]:
        """Which settings say until when it waits; an edit of one may let things go at once."""
        return ()

    @property
    def row_bounds(self) -> tuple[RowBound, ...]:
        """Which settings say how many rows may wait."""
        return ()


@dataclass(frozen=True, slots=True)
class StatefulOperator(Operator):
    """An operator that keeps state, under its name."""

    # An explicit field: else the property that it replaces would be taken for its default.
    name: str = field()

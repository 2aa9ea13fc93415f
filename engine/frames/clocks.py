"""Stream time (T1): how it rises over the places of a batch, and what operators hand on of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvariantBroken

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

LAST_EVENT_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: no record is later, and no window that ends later takes one (T8)."""

BEFORE_ALL_TIME = -(1 << 61)
"""Stands for "no record yet" inside array arithmetic: below every event time (T8) even after a grace is subtracted."""

AFTER_ALL_TIME = 1 << 61
"""Above every event time, also after a grace is added."""

NEVER: Final = 1 << 62
"""The place of what does not happen in a batch."""

_ANY_TIME: Final = BEFORE_ALL_TIME + 1
"""At or below every time that is there."""


def clock_value(clock: int | None) -> int:
    """Return a clock as a number for arrays."""
    return BEFORE_ALL_TIME if clock is None else clock


def running_clock(clock: int | None, times: I64) -> tuple[I64, I64]:
    """Follow a clock over records that may all move it.

    Returns:
        The clock before each record and after each record.
    """
    steps = np.empty(len(times) + 1, np.int64)
    steps[0] = clock_value(clock)
    steps[1:] = times
    np.maximum.accumulate(steps, out=steps)
    return steps[:-1], steps[1:]


@dataclass(frozen=True, slots=True)
class Wait:
    """How far behind the time before an operator the time behind it is (T1c): ``T - ms``.

    Attributes:
        ms: what the operator waits at most (L).
        advance_ms: of windows that hand on a bound of their grid, the distance of their starts: the time behind them is the least
            multiple above ``T - ms``, never below 0. None: the difference itself.
    """

    ms: int
    advance_ms: int | None = None

    def after(self, times: I64) -> I64:
        """Return the times behind the operator; where there is no time before it there is none behind it."""
        behind = times - self.ms
        if self.advance_ms is not None:
            behind = np.maximum((behind // self.advance_ms + 1) * self.advance_ms, 0)
        waited: I64 = np.where(times == BEFORE_ALL_TIME, BEFORE_ALL_TIME, behind)
        return waited

    def least(self, times: I64) -> I64:
        """Return the least time before the operator with which the time behind it is at least that."""
        if self.advance_ms is None:
            return times + self.ms
        starts = -(-times // self.advance_ms) * self.advance_ms
        reached: I64 = np.where(times <= 0, _ANY_TIME, starts - self.advance_ms + self.ms)
        return reached


_NO_PLACES: Final[I64] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Clock:
    """The time before one operator, over the places of one batch: a step function that never falls.

    A record is judged by the time before its place; then time rises; then what is due is emitted there (T1b).

    Attributes:
        start: the time of the sources before the batch, ``BEFORE_ALL_TIME`` where there is none.
        places: where it rises, ascending; behind those of the silence.
        times: the time with each of these places, ascending.
        first: the first place of the batch.
        silence_ms: at each of so many places from the first on time rises by one, because sources are idle (T10).
        entered: the place of the first record of the sources in the batch, which may be one that does not move time.
        waits: of the operators before this one.
    """

    start: int = BEFORE_ALL_TIME
    places: I64 = field(default_factory=lambda: _NO_PLACES)
    times: I64 = field(default_factory=lambda: _NO_PLACES)
    first: int = 0
    silence_ms: int = 0
    entered: int = NEVER
    waits: tuple[Wait, ...] = ()

    def behind(self, *waits: Wait) -> Clock:
        """Return the time behind operators that wait so."""
        return replace(self, waits=(*self.waits, *waits)) if waits else self

    def joined(self, other: Clock) -> Clock:
        """Return the greater one of two times at each place (T1d): of two tables whose changes make results.

        Args:
            other: of the same batch.

        Raises:
            InvariantBroken: one of them is behind an operator that waits; no operator before a join of tables does.
        """
        if self.waits or other.waits:
            raise InvariantBroken("the times of two tables are joined behind an operator that waits")
        places, times = np.concatenate([self.places, other.places]), np.concatenate([self.times, other.times])
        start, silence_ms = max(self.start, other.start), max(self.silence_ms, other.silence_ms)
        both = replace(self, start=start, silence_ms=silence_ms, entered=min(self.entered, other.entered))
        return both.rising(places, times, start + silence_ms)

    def rising(self, places: I64, times: I64, silent: int) -> Clock:
        """Return the clock with the rises among records that may move it.

        Args:
            places: of the records, in any order.
            times: their event times.
            silent: the time before the first of them.
        """
        order = np.argsort(places, kind="stable")
        before, after = running_clock(silent, times[order])
        is_risen = after > before
        return replace(self, places=places[order][is_risen], times=after[is_risen])

    def before(self, places: I64) -> I64:
        """Return the time before each place."""
        return self._at(places, "left")

    def upto(self, places: I64) -> I64:
        """Return the time with each place: before what stands behind it."""
        return self._at(places, "right")

    def reached(self, times: I64) -> I64:
        """Return the first place of the batch that brings time to each of these times.

        Returns:
            ``NEVER`` where the batch does not bring it so far. Where it was there before the batch, the next place of the sources:
            an edit can make due at once what was not (J11).
        """
        for wait in reversed(self.waits):
            times = wait.least(times)
        known = np.append(self.places, NEVER)[np.searchsorted(self.times, times)]
        if self.silence_ms and self.start != BEFORE_ALL_TIME:
            silent = self.first + times - self.start - 1
            known = np.where(times <= self.start + self.silence_ms, silent, known)
        reached: I64 = np.where(times <= self.start, min(self.next_place, NEVER), known)
        return reached

    @property
    def next_place(self) -> int:
        """The first place at which the sources' time can rise; ``NEVER`` in a batch that brings nothing of them."""
        return self.first if self.silence_ms and self.start != BEFORE_ALL_TIME else self.entered

    @property
    def begin(self) -> int:
        """The time before the batch; ``BEFORE_ALL_TIME`` where there is none."""
        return self._handed(self.start)

    @property
    def end(self) -> int:
        """The time behind the batch; ``BEFORE_ALL_TIME`` where there is none."""
        if len(self.times):
            return self._handed(int(self.times[-1]))
        return self._handed(self.start if self.start == BEFORE_ALL_TIME else self.start + self.silence_ms)

    def is_silence(self, places: I64) -> Bools:
        """Say which places are those of the silence (T10)."""
        silent: Bools = (places >= self.first) & (places < self.first + self.silence_ms)
        return silent

    def source_time(self, time: int) -> int:
        """Return the least time of the sources with which the time before this operator is at least so great."""
        times = np.array([time], np.int64)
        for wait in reversed(self.waits):
            times = wait.least(times)
        return int(times[0])

    def raises(self) -> tuple[I64, I64]:
        """Return where the time before this operator rises because of records, and to what."""
        times = self._waited(self.times)
        begin = self._handed(self.start if self.start == BEFORE_ALL_TIME else self.start + self.silence_ms)
        is_risen = times > np.append(begin, times[:-1])
        return self.places[is_risen], times[is_risen]

    def _at(self, places: I64, side: str) -> I64:
        silent = 0 if self.start == BEFORE_ALL_TIME else self.silence_ms
        known = np.append(self.start + silent, self.times)
        found = known[np.searchsorted(self.places, places, side)]  # type: ignore[call-overload]
        if silent:
            risen = places - self.first + (side == "right")
            found = np.where(risen < silent, self.start + np.maximum(risen, 0), found)
        return self._waited(found)

    def _waited(self, times: I64) -> I64:
        for wait in self.waits:
            times = wait.after(times)
        return times

    def _handed(self, time: int) -> int:
        return int(self._waited(np.array([time], np.int64))[0])

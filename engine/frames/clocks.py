"""Stream time (T1): how it rises over the places of a batch, and what operators hand on of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvariantBroken

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

Rises = tuple[I64, I64]
"""Offsets or places at which time rises, and the times there; records that move no time have ``BEFORE_ALL_TIME``."""

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
        floor_ms: what it was before an edit that lengthened the wait: time never falls (P15).
    """

    ms: int
    advance_ms: int | None = None
    floor_ms: int = BEFORE_ALL_TIME

    def after(self, times: I64) -> I64:
        """Return the times behind the operator; where there is no time before it there is none behind it."""
        behind = times - self.ms
        if self.advance_ms is not None:
            behind = np.maximum((behind // self.advance_ms + 1) * self.advance_ms, 0)
        waited: I64 = np.where(times == BEFORE_ALL_TIME, BEFORE_ALL_TIME, np.maximum(behind, self.floor_ms))
        return waited

    def least(self, times: I64) -> I64:
        """Return the least time before the operator with which the time behind it is at least that."""
        least, floor_ms = times + self.ms, self.floor_ms
        if self.advance_ms is not None:
            least = -(-times // self.advance_ms) * self.advance_ms - self.advance_ms + self.ms
            floor_ms = max(floor_ms, 0)
        reached: I64 = np.where(times <= floor_ms, _ANY_TIME, least)
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
        silence_ms: at each of so many places from the first on the time of the sources rises by one, because they are idle (T10).
        entered: the place of the first record of the sources in the batch, which may be one that does not move time.
        waits: of the operators before this one, from the sources or from ``timed_by`` on.
        timed_by: names the last operator before this one that waits by the wall clock (T11); None: time is that of the sources.
        waited_ms: how far behind the sources the time behind ``timed_by`` is at most; without one, that of inputs which queries derive.
        has_jump: at one place between the silence and the records time rises because a partition no longer counts (T12).
        is_written_out: the places of the silence at which it rises stand among ``places``.
    """

    start: int = BEFORE_ALL_TIME
    places: I64 = field(default_factory=lambda: _NO_PLACES)
    times: I64 = field(default_factory=lambda: _NO_PLACES)
    first: int = 0
    silence_ms: int = 0
    entered: int = NEVER
    waits: tuple[Wait, ...] = ()
    timed_by: str | None = None
    waited_ms: int = 0
    has_jump: bool = False
    is_written_out: bool = False

    @property
    def wait_ms(self) -> int:
        """How far behind its sources it is at most (L of T1c)."""
        return self.waited_ms + sum(wait.ms for wait in self.waits)

    @property
    def jump_ms(self) -> int:
        """By how much time rises where a partition no longer counts; of the sources' own clock."""
        return int(self.times[0]) - self.start - self.silence_ms if self.has_jump else 0

    def handed_on(self, operator: str, wait_ms: int, begin: int, end: int, place: int) -> Clock:
        """Return the time behind an operator that waits by the wall clock (T11): it rises at one place, behind the batch's records.

        Args:
            operator: names it in the query.
            wait_ms: how long it waits at most.
            begin: the time behind it before the batch.
            end: with the batch.
            place: the position behind the records.
        """
        risen = np.array([place] if end > begin else [], np.int64), np.array([end] if end > begin else [], np.int64)
        waited_ms = self.wait_ms + wait_ms
        return Clock(begin, *risen, self.first, self.silence_ms, self.entered, (), operator, waited_ms)

    def behind(self, *waits: Wait) -> Clock:
        """Return the time behind operators that wait so."""
        return replace(self, waits=(*self.waits, *waits)) if waits else self

    def going_on(self, known: int, release: int = NEVER) -> Clock:
        """Return the time behind an operator as it goes on from what it was, also where an edit has changed how long the operator waits.

        Time never falls: behind a longer wait it stands until it has come so far again. Behind a shorter one it rises at the next place,
        as what is due there then (J11).

        Args:
            known: the time there before the batch.
            release: the place at which what is due goes at once, on request.
        """
        if known > self.begin:
            return replace(self, waits=(*self.waits[:-1], replace(self.waits[-1], floor_ms=known)))
        if known == self.begin:
            return self
        place = min(self.next_place, release)
        risen = np.concatenate([self.first + np.arange(self._rises_ms), self.places])
        places = np.append(place, risen[risen > place])[: None if place < NEVER else 0]
        return replace(
            self, start=known, places=places, times=self.upto(places), waits=(), waited_ms=self.wait_ms, is_written_out=True
        )

    def joined(self, other: Clock) -> Clock:
        """Return the time of two tables whose changes make results (T1d): the greater one at each place.

        The one that has waited less is set back by the difference.

        Args:
            other: of the same batch.

        Raises:
            InvariantBroken: one of them is behind an operator that waits; no operator before a join of tables does.
        """
        if self.waits or other.waits or self.timed_by or other.timed_by:
            raise InvariantBroken("the times of two tables are joined behind an operator that waits")
        waited_ms = max(self.waited_ms, other.waited_ms)
        back = [(each, waited_ms - each.waited_ms) for each in (self, other)]
        places, times = np.concatenate([self.places, other.places]), np.concatenate([each.times - ms for each, ms in back])
        start = max(BEFORE_ALL_TIME, *(each.start - ms for each, ms in back))
        entered, silence_ms = min(self.entered, other.entered), max(self.silence_ms, other.silence_ms)
        both = replace(self, start=start, silence_ms=silence_ms, entered=entered, waited_ms=waited_ms)
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
        if self._rises_ms:
            silent = self.first + times - self.start - 1
            known = np.where(times <= self.start + self._rises_ms, silent, known)
        reached: I64 = np.where(times <= self.start, min(self.next_place, NEVER), known)
        return reached

    @property
    def next_place(self) -> int:
        """The first place at which time can rise; ``NEVER`` in a batch that brings nothing of the sources."""
        if self._rises_ms:
            return self.first
        return min(self.entered, int(self.places[0]) if len(self.places) else NEVER)

    @property
    def begin(self) -> int:
        """The time before the batch; ``BEFORE_ALL_TIME`` where there is none."""
        return self._handed(self.start)

    @property
    def end(self) -> int:
        """The time behind the batch; ``BEFORE_ALL_TIME`` where there is none."""
        if len(self.times):
            return self._handed(int(self.times[-1]))
        return self._handed(self.start + self._rises_ms)

    def is_silence(self, places: I64) -> Bools:
        """Say which places are those of the silence, of the whole query (T10) or of a partition (T12)."""
        silent: Bools = (places >= self.first) & (places < self.first + self.silence_ms + self.has_jump)
        return silent

    def source_time(self, time: int) -> int:
        """Return the least time of the sources, or behind ``timed_by``, with which the time before this operator is at least so great."""
        times = np.array([time], np.int64)
        for wait in reversed(self.waits):
            times = wait.least(times)
        return int(times[0])

    @property
    def _rises_ms(self) -> int:
        """By how much it rises in the silence."""
        is_slope = self.start != BEFORE_ALL_TIME and self.timed_by is None and not self.is_written_out
        return self.silence_ms if is_slope else 0

    def _at(self, places: I64, side: str) -> I64:
        silent = self._rises_ms
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

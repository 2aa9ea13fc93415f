"""Which sessions and records of a batch can have to do with each other, and where that is all there is to know (design §5).

An *element* is an open session from before the batch or one of its records. Elements of a group that are at most a gap apart,
directly or through others, make a *component*: whatever a record merges with is in its own component. If no session within a
component closes before the batch's last merge in it, the component ends as one session, in whatever order its records came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.frames.clocks import I64, Bools
from engine.operators.windows.sessions.session_store import END, HASH, START
from engine.state.sorted.running import Groups

_ELEMENT = "_element"


@dataclass(frozen=True, slots=True)
class Components:
    """The elements sorted by group, start and arrival, cut into components.

    An element's number is its place in arrival order: first the sessions, then the records.

    Attributes:
        elements: number of each element, in sorted order.
        records: index of each element's record; -1 for a session.
        ids: component of each element, ascending from 0.
        starts: index of the first element of each component.
        first: event time of each element, of a session the first one.
        last: the same, of a session the last one.
        reach: greatest ``last`` of the component up to and with each element.
    """

    elements: I64
    records: I64
    ids: I64
    starts: I64
    first: I64
    last: I64
    reach: I64

    @property
    def has_record(self) -> Bools:
        """Of each component: whether the batch touches it."""
        return np.maximum.reduceat(self.records, self.starts) >= 0

    @property
    def sessions(self) -> I64:
        """Of each component: how many sessions are in it."""
        return np.add.reduceat((self.records < 0).astype(np.int64), self.starts)

    def are_late(self, horizons: I64) -> Bools:
        """Of each component: whether no record in it forms a session that is open.

        Args:
            horizons: at 0 the horizon before the batch, then the one before each record.
        """
        is_late = (self.records >= 0) & (self.first < horizons[self.records + 1])
        return np.logical_and.reduceat(is_late, self.starts)

    def are_unordered(self, horizons: I64) -> Bools:
        """Of each component: whether it surely ends as one session that took every record.

        That holds when each element is open at its own arrival and at that of the element behind it. For a record then finds
        open what lies below it within the gap: either that is the element right before it, or an element between the two comes
        later still and finds it open. What lies around it or above it ends no earlier than itself.
        """
        arrivals = self.records.copy()
        is_followed = self.ids[1:] == self.ids[:-1]
        arrivals[:-1] = np.where(is_followed, np.maximum(arrivals[1:], arrivals[:-1]), arrivals[:-1])
        return np.logical_and.reduceat(self.reach >= horizons[arrivals + 1], self.starts)


def components_of(keys: pl.DataFrame, group: Sequence[str], sessions: int, gap_ms: int) -> Components:
    """Cut elements into components.

    Args:
        keys: ``HASH``, the group's columns, ``START`` and ``END`` of the elements, at least one, in arrival order.
        group: names of the group's columns.
        sessions: how many of the elements are sessions; they come first and no two of a group are within a gap.
        gap_ms: records at most this far apart belong together.
    """
    rows = keys.with_columns(pl.Series(_ELEMENT, np.arange(keys.height))).sort(HASH, *group, START, maintain_order=True)
    groups = Groups.of(rows.select(HASH, *group))
    elements, first, last = (rows[name].to_numpy() for name in (_ELEMENT, START, END))
    reach = last
    if sessions:
        latest = np.maximum.accumulate(np.where(elements < sessions, np.arange(len(elements)), -1))
        reach = np.where(latest >= groups.firsts, np.maximum(last, last[latest]), last)
    is_start = np.ones(len(elements), np.bool_)
    is_start[1:] = (groups.ids[1:] != groups.ids[:-1]) | (first[1:] > reach[:-1] + gap_ms)
    records = np.maximum(elements - sessions, -1)
    return Components(elements, records, np.cumsum(is_start) - 1, np.flatnonzero(is_start), first, last, reach)

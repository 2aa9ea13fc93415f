"""What a stream-stream join keeps of one side: its records by key and time, and those that may still come with nulls.

A record is *closed* when its time range has passed for good: ``ts + reach + grace < stream time``, where the reach is how far
behind it in event time a record of the other side may lie. A closed record meets nothing any more, so it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools
from engine.frames.frames import KEY_HASH, OFFSET, POS, RANK, TS
from engine.operators.pending.histogram import WaitingRows
from engine.operators.pending.spans import Span
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.key_index import KeyIndex
from engine.state.sorted.keys import Keys
from engine.state.sorted.sorted_search import KeyOrder, expand, upper_bound
from engine.state.sorted.steps import merged_in_steps
from engine.state.sorted.time_queue import QueueSegment, queue_segment

U64 = NDArray[np.uint64]

_MAX_EXPANSION: Final = 1 << 20
"""Pairs of a probe and a candidate looked at in one step: bounds memory where many records share a key and a time range."""

_ALONE: Final = "_alone"
"""Whether a record had met no partner when its batch ended; of the others it need not be remembered that they meet one."""

_STORED: Final = {KEY_HASH: pl.UInt64(), TS: pl.Int64(), POS: pl.Int64(), OFFSET: pl.Int64(), _ALONE: pl.Boolean()}
"""Service columns of a kept record. ``_pos`` is its arrival in the task: how many records the operator had seen before it."""

PLACE: Final = "_place"
"""Position of a record that waits: with its rank, its arrival among the records of all tasks."""


@dataclass(frozen=True, slots=True)
class Probes:
    """Records of the other side that look for partners.

    Attributes:
        hashes: of each one's key.
        columns: values of each one's key.
        low: earliest event time of a partner.
        high: latest event time of a partner.
        arrivals: only partners that arrived before are met. Ascending.
    """

    hashes: U64
    columns: Sequence[pl.Series]
    low: I64
    high: I64
    arrivals: I64


class JoinSide:
    """One side of the join.

    Args:
        columns: payload columns that are kept.
        waits: whether a record without a partner is shown with nulls when it closes.
        state: what ``snapshot`` returned, or None.
        store: where records live.
    """

    def __init__(self, columns: Schema, *, waits: bool, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self._columns = [*_STORED, *columns.names]
        self.empty = pl.DataFrame(schema={**_STORED, PLACE: pl.Int64(), RANK: pl.Binary(), **columns.polars()})
        self.waits = waits
        self.closed_to_ms: int = state.get("closed_to", BEFORE_ALL_TIME)
        self._index = _ArrivalIndex(store, state.get("records"), is_by_time=True)
        self._waiting = WaitingRows(store, state.get("waiting"))
        self._matched = _Marks(store, state.get("matched"))

    @property
    def rows(self) -> int:
        """Records kept, closed ones in shared segments included."""
        return self._index.rows

    @property
    def oldest_ms(self) -> int | None:
        """The smallest event time that can still meet something; of a shared segment not less than what has closed."""
        earliest = self._index.earliest_ms
        return None if earliest is None else max(earliest, self.closed_to_ms + 1)

    @property
    def earliest_ms(self) -> int | None:
        """Event time of the first record that may come with nulls."""
        return self._waiting.earliest_ms

    @property
    def spans(self) -> list[Span]:
        """Records that may come with nulls, by event time; those that have met a partner since are among them."""
        return [Span(span.low, span.high, 0, span.most) for span in self._waiting.spans]

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {
            "closed_to": self.closed_to_ms,
            "records": self._index.snapshot(),
            "waiting": self._waiting.snapshot(),
            "matched": self._matched.snapshot(),
        }

    def candidates(self, probes: Probes) -> pl.DataFrame:
        """Return the kept records that could be partners, and some that could not, without the places where they stood."""
        if not len(probes.hashes) or not len(self._index):
            return self.empty
        order = np.argsort(probes.hashes, kind="stable")
        hashes = probes.hashes[order]
        firsts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
        low, high = np.minimum.reduceat(probes.low[order], firsts), np.maximum.reduceat(probes.high[order], firsts)
        # A range leaves out all but the last row at its beginning.
        parts = self._index.ranges(Keys(hashes[firsts]), low - 1, high)
        kept = pl.concat([part[self._columns] for part in parts]) if parts else self.empty[self._columns]
        nothing = [pl.lit(None, self.empty.schema[name]).alias(name) for name in (PLACE, RANK)]
        return kept.with_columns(nothing)[self.empty.columns]

    def take_closed(self, until: int) -> pl.DataFrame:
        """Remove and return the records up to ``until`` that waited for a partner and met none."""
        self.closed_to_ms = max(self.closed_to_ms, until)
        waited, marks = self._waiting.take(until), self._matched.take(until)
        if not waited:
            return self.empty
        frame = pl.concat(waited)
        if not marks:
            return frame
        matched = np.concatenate([part.get_column(POS).to_numpy() for part in marks])
        return frame[np.flatnonzero(~np.isin(frame.get_column(POS).to_numpy(), matched))]

    def records(self, frame: pl.DataFrame, hashes: pl.Series, arrivals: I64) -> pl.DataFrame:
        """Give rows of the side's input the columns of kept records."""
        place = frame.get_column(POS).alias(PLACE)
        own = [hashes.alias(KEY_HASH), pl.Series(POS, arrivals), place, pl.lit(value=False).alias(_ALONE)]
        return frame.with_columns(own)[self.empty.columns]

    def keep(self, records: pl.DataFrame, is_alone: Bools, met: pl.DataFrame) -> None:
        """Take over a batch.

        Args:
            records: its new records, by arrival.
            is_alone: which of them met no partner yet.
            met: kept records that met one; may repeat and name closed ones.
        """
        is_open = records.get_column(TS).to_numpy() > self.closed_to_ms
        records = records.with_columns(pl.Series(_ALONE, is_alone))[np.flatnonzero(is_open)]
        horizon = self.closed_to_ms + 1
        self._index.forget(horizon)
        self._index.append(records[self._columns], horizon)
        if self.waits:
            marks = met.filter(pl.col(_ALONE) & (pl.col(TS) >= horizon)).select(TS, POS)
            self._matched.append(marks.unique().sort(TS))
            self._waiting.append(records.filter(pl.col(_ALONE)).sort(TS, maintain_order=True))


class _ArrivalIndex(KeyIndex):
    """Every record by (key hash, event time, arrival); none replaces another."""

    @property
    def earliest_ms(self) -> int | None:
        """The smallest event time kept, closed records in shared segments included."""
        return min((segment.min_ts for segment in self._segments), default=None)

    def forget(self, horizon: int) -> None:
        """Drop segments whose records all lie before ``horizon``."""
        self._segments.drop(lambda segment: segment.max_ts < horizon)

    def _is_newest(self, order: KeyOrder) -> Bools:
        return np.ones(len(order.rows), np.bool_)

    def _merge(self, frame: pl.DataFrame, horizon: int, is_all: bool) -> pl.DataFrame:  # noqa: ARG002 - the index' signature
        frame = frame.filter(pl.col(TS) >= horizon)
        return frame[self._sorted(frame, is_merge=True).rows]


class _Marks(WaitingRows):
    """Arrivals of records that met a partner, by their event time, so that they leave with the records they are about."""

    def _run(self, old: list[QueueSegment], new: pl.DataFrame) -> Iterator[QueueSegment]:
        parts = [*map(self._live, old), new]
        for run in merged_in_steps(parts, (TS,), self._segments.step_rows, lambda slices: pl.concat(slices).unique().sort(TS)):
            yield queue_segment(self._store, run)


def find_partners(probes: Probes, targets: pl.DataFrame, key: Sequence[str]) -> tuple[I64, I64]:
    """Find all pairs of a probe and a target with equal keys, a fitting time and an earlier arrival of the target.

    Args:
        probes: who looks.
        targets: kept and new records of the other side.
        key: their columns that the probes' values are compared with.

    Returns:
        Index of the probe and of the target of each pair, ordered by probe, then event time and arrival of the target.
    """
    hashes, times, arrivals = (targets.get_column(name).to_numpy() for name in (KEY_HASH, TS, POS))
    keys, numbers = Keys.of(hashes, [targets.get_column(name) for name in key])
    order = np.lexsort((arrivals, times, numbers))
    numbers, times = numbers[order], times[order]
    wanted = keys.numbers(probes.hashes, probes.columns)
    starts, stops = np.searchsorted(numbers, wanted, "left"), np.searchsorted(numbers, wanted, "right")
    begin = upper_bound(times, probes.low - 1, starts, stops)
    end = np.maximum(upper_bound(times, probes.high, begin, stops), begin)
    sizes = np.cumsum(end - begin)
    found: list[tuple[I64, I64]] = []
    first = 0
    while first < len(sizes):
        done = int(sizes[first - 1]) if first else 0
        stop = max(int(np.searchsorted(sizes, done + _MAX_EXPANSION, "right")), first + 1)
        rows = np.repeat(np.arange(first, stop), (end - begin)[first:stop])
        places = order[expand(begin[first:stop], end[first:stop])]
        is_met = arrivals[places] < probes.arrivals[rows]
        found.append((rows[is_met], places[is_met]))
        first = stop
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing
    return np.concatenate([rows for rows, _ in found]), np.concatenate([places for _, places in found])

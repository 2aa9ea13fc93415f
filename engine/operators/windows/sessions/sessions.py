"""Session window aggregation (W1, W3, W5–W8, S6, T6, T10, STRICT 3, 4, 11, 15–18, 20, 21).

A session ``[first, last]`` of records at most a gap apart is closed once ``last`` is before the *horizon*, stream time less gap
and grace. A batch's records and the open sessions of their groups are cut into components that cannot have to do with each other
(``session_components``). Nearly all of these are handled at once: for ``final`` those that end as one session whatever the order
of their records, for ``changes`` those in which no record joins two sessions. The rest, mostly late records near a session, goes
record by record (``session_exact``); counter ``exact_path`` says how many records did. All give the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import I64, Bools
from engine.frames.frames import (
    NO_RECORD,
    OFFSET,
    OP,
    POS,
    RANK,
    SERVICE_COLUMNS,
    TS,
    Counters,
    add_counter,
    constant,
    empty_frame,
    empty_late,
    late_rows,
    only,
    with_series,
)
from engine.frames.places import ranked
from engine.operators.aggregation.group_results import Grouping
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.operators.windows.corrections import Corrections
from engine.operators.windows.sessions.session_components import Components, components_of
from engine.operators.windows.sessions.session_exact import Chains, in_line, record_by_record
from engine.operators.windows.sessions.session_fold import RECORD, SessionFold
from engine.operators.windows.sessions.session_store import END, HASH, START, SessionStore
from engine.operators.windows.window_places import (
    ARRIVED,
    FIRST,
    arrival,
    arrival_columns,
    at_one_place,
    at_own_places,
    by_arrival,
    due_until,
    together,
    with_arrivals,
)
from engine.plan.operators.windows import SessionAggregation
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.segment_list import taken
from engine.state.sorted.sorted_search import distinct

_MAX_ROWS: Final = 1 << 20
"""Rows of chains made at once on the exact path: bounds memory where records keep joining large sessions."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records that were not dropped, in processing order.

    Attributes:
        frame: the records' rows.
        hashes: hash of each one's group.
        arrivals: how many records arrived before each.
        before: time before the place of each.
        horizons: before each: sessions that end before it are closed.
        horizon: the same behind all of them.
        moment: when.
    """

    frame: pl.DataFrame
    hashes: pl.Series
    arrivals: I64
    before: I64
    horizons: I64
    horizon: int
    moment: BatchTime

    def halves(self) -> tuple[_Batch, _Batch]:
        """Cut in two; the first half closes what the first record of the second finds closed."""
        middle = self.frame.height // 2
        return self._part(slice(middle), int(self.horizons[middle])), self._part(slice(middle, None), self.horizon)

    def _part(self, rows: slice, horizon: int) -> _Batch:
        columns = (self.arrivals[rows], self.before[rows], self.horizons[rows])
        return _Batch(self.frame[rows], self.hashes[rows], *columns, horizon, self.moment)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a batch comes to.

    Attributes:
        changed: partials of the sessions that the batch changed, as they stand after it.
        emitted: rows for the next operator.
        late: indexes of the late records, in any order.
    """

    changed: pl.DataFrame
    emitted: pl.DataFrame
    late: I64


class SessionAggregator(Operator):
    """Aggregates one stream by group and session.

    Args:
        spec: what to do.
        schema: the columns of the frames to come.
        state: what ``snapshot`` returned, or None for a new operator. ``spec`` may differ from the one it was made with in grace: a
            session that has closed stays closed, one that is closed under the new grace closes at the next place of the streams.
        store: where partial results live.
        is_hashed: see ``Grouping``.
    """

    def __init__(
        self,
        spec: SessionAggregation,
        schema: Schema,
        state: dict[str, Any] | None,
        store: SegmentStore,
        *,
        is_hashed: bool = False,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._delay_ms = spec.gap_ms + spec.grace_ms
        self._fold = SessionFold(spec, schema)
        self.schema = self._fold.schema
        self._nothing = empty_frame(self.schema).with_columns(pl.lit(0, pl.Int64).alias(FIRST))
        self._grouping = Grouping.of(spec.group, schema, store.hashing, is_hashed=is_hashed)
        state = state or {}
        self._horizon: int = state.get("horizon", 0)
        self._arrivals: int = state.get("arrivals", 0)
        self._store = SessionStore(store, self._fold.group, state.get("segments"))
        self._corrections: Corrections | None = None
        if spec.emit == "corrections":
            key = tuple(name for name, _ in spec.group)
            held = state.get("corrections")
            self._corrections = Corrections(self.schema, key, self._delay_ms + 1, held, store, is_moving=True)
            self.schema = self._corrections.schema

    @property
    def buffered_rows(self) -> int:
        """Partial results held for sessions that have not closed; see ``SessionStore.rows``."""
        return self._store.rows + (0 if self._corrections is None else self._corrections.buffered_rows)

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Open sessions by their ends; one that has grown may be counted at its former ends too."""
        return {self._spec.name: self._store.spans(self._horizon)}

    @property
    def due_ms(self) -> int | None:
        """The time at which a session closes; it may be less where the session has grown since."""
        if self._corrections is not None:
            return self._corrections.due_ms
        end = None if self._spec.emit == "changes" else self._store.earliest_end(self._horizon)
        return None if end is None else end + self._delay_ms + 1

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        state = {"horizon": self._horizon, "arrivals": self._arrivals, "segments": self._store.snapshot()}
        return state if self._corrections is None else {**state, "corrections": self._corrections.snapshot()}

    def process(
        self,
        frame: pl.DataFrame,
        inputs: Mapping[int, pl.DataFrame],  # noqa: ARG002 - sessions read no table
        moment: BatchTime,
    ) -> OperatorOutput:
        """Handle the next records in processing order, and what time closes.

        Args:
            frame: columns of the schema and the service columns.
            inputs: not read.
            moment: when.

        Returns:
            ``final``: one row per session that closed, at the position that closes it, there by (end, start, first arrival).
            ``changes``: per record the deletes of the sessions it merged, by (end, start), then the result, each further one at a place of
            its own; or only the last change of each session where they are folded. A deleted row keeps its key, its aggregates
            are null. ``corrections``: see there. ``late`` has, and the counter ``window_closed`` counts, each record that forms no
            open session.
        """
        counters: Counters = {}
        parts = self._advance(self._admit(frame, moment, counters), counters)
        emitted = together([emitted for emitted, _ in parts])
        if self._corrections is not None:
            emitted = self._corrections.process(emitted, moment)
        return OperatorOutput(
            only(emitted, *SERVICE_COLUMNS, *self.schema.names), pl.concat([late for _, late in parts]), counters
        )

    def _admit(self, frame: pl.DataFrame, moment: BatchTime, counters: Counters) -> _Batch:
        """Drop and count null keys and null values (T6), and say what is closed for each record (W1)."""
        frame, hashes = self._grouping.admit(frame, self._spec.name, counters)
        self._fold.aggregates.count_gaps(frame, self._spec.name, counters)
        arrivals = np.arange(self._arrivals, self._arrivals + frame.height)
        before = moment.before(frame)
        self._horizon = max(moment.closed_ms + self._spec.grace_ms - self._delay_ms, self._horizon)
        horizon = max(due_until(moment) - self._delay_ms, self._horizon)
        return _Batch(frame, hashes, arrivals, before, np.maximum(before - self._delay_ms, self._horizon), horizon, moment)

    def _advance(self, batch: _Batch, counters: Counters) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
        """Take the records in, forget what closed; returns the rows to emit and the late rows, of one part or several."""
        elements, sessions = self._elements(batch)
        outcome = _Outcome(elements, self._nothing, np.zeros(0, np.int64))
        if not elements.is_empty():
            keys = elements.select(HASH, *self._fold.group, START, END)
            components = components_of(keys, self._fold.group, sessions, self._spec.gap_ms)
            act = self._finals if self._spec.emit == "final" else self._changes
            found = act(batch, elements, sessions, components, counters)
            if found is None:
                return [part for half in batch.halves() for part in self._advance(half, counters)]
            outcome = found
        self._horizon = batch.horizon
        self._arrivals += batch.frame.height
        self._store.append(outcome.changed.filter(pl.col(END) >= self._horizon), self._horizon)
        return [(outcome.emitted, self._late(batch, np.sort(outcome.late), counters))]

    def _late(self, batch: _Batch, records: I64, counters: Counters) -> pl.DataFrame:
        if not len(records):
            return empty_late()
        add_counter(counters, self._spec.name, "window_closed", len(records))
        return late_rows(batch.frame[records], self._spec.name, "window_closed", pl.Series(batch.before[records]))

    def _elements(self, batch: _Batch) -> tuple[pl.DataFrame, int]:
        """The open sessions of all groups concerned, then the records; and how many sessions there are."""
        touched = batch.hashes.to_numpy()
        if self._spec.emit == "final":
            touched = np.concatenate([touched, self._store.due(self._horizon, batch.horizon)])
        held = self._store.matching(distinct(touched), self._horizon)
        frame = batch.frame
        group = [frame[source].alias(name) for name, (_, source) in zip(self._fold.group, self._spec.group, strict=True)]
        times = frame[TS]
        own = [batch.hashes.alias(HASH), *group, times.alias(START), times.alias(END), *arrival_columns(frame)]
        records = pl.DataFrame([*own, *self._fold.lift(frame, pl.Series(batch.arrivals))])
        return (records, 0) if held is None else (with_arrivals(pl.concat([held, records], how="diagonal")), held.height)

    def _followed(
        self, batch: _Batch, components: Components, is_candidate: Bools, horizons: I64, counters: Counters
    ) -> tuple[Chains, I64] | None:
        """Follow components in order of arrival, record by record only where that must be; None where it would take too much at once.

        Returns:
            Their chains, and the indexes of their late records.
        """
        chains, late, is_in_line = in_line(components, is_candidate, horizons, self._spec.gap_ms)
        is_exact = is_candidate & ~is_in_line
        if not is_exact.any():
            return chains, late
        limit = max(_MAX_ROWS, 4 * len(components.ids)) if batch.frame.height > 1 else None
        traced = record_by_record(components, is_exact, horizons, self._spec.gap_ms, limit)
        if traced is None:
            return None
        records = components.records[is_exact[components.ids]]
        add_counter(counters, self._spec.name, "exact_path", int((records >= 0).sum()))
        return chains.followed_by(traced[0]), np.concatenate([late, traced[1]])

    # EMIT FINAL

    def _finals(
        self, batch: _Batch, elements: pl.DataFrame, sessions: int, components: Components, counters: Counters
    ) -> _Outcome | None:
        """Merge each session, show those that closed."""
        horizons = np.append([self._horizon], batch.horizons)
        is_late = components.are_late(horizons)
        is_sure = components.are_unordered(horizons) & ~is_late
        if self._fold.depends_on_order:
            is_sure &= ~components.has_record
        of_sure = is_sure[components.ids]
        late = components.records[is_late[components.ids]]
        followed = self._followed(batch, components, ~(is_late | is_sure), horizons, counters)
        if followed is None:
            return None
        chains, more_late = followed
        of_session = chains.is_session[chains.ids]
        rows = np.concatenate([components.elements[of_sure], chains.elements[of_session]])
        numbers = np.concatenate([components.ids[of_sure], chains.ids[of_session] + len(components.starts)])
        late = np.concatenate([late, more_late])
        merged = self._fold.merge(elements[rows], numbers)
        begins = np.flatnonzero(np.append([True], numbers[1:] != numbers[:-1])) if len(numbers) else numbers
        is_changed = np.maximum.reduceat(rows, begins) >= sessions
        return _Outcome(merged.filter(pl.Series(is_changed)), self._closed(batch, merged, counters), late)

    def _closed(self, batch: _Batch, sessions: pl.DataFrame, counters: Counters) -> pl.DataFrame:
        """Rows of the sessions that the batch closes, each at the first position that brings time behind its end (STRICT 17)."""
        closed = sessions.filter(pl.col(END) < batch.horizon)
        if closed.is_empty():
            return self._nothing
        closed = taken(closed, by_arrival(closed, closed[END].to_numpy(), closed[START].to_numpy()))
        starts, ends = closed[START].to_numpy(), closed[END].to_numpy()
        rows, marks = self._fold.finals(closed)
        marks.count(self._spec.name, counters)
        positions = pl.Series(POS, batch.moment.reached(ends + self._delay_ms + 1))
        rows = with_series(rows, positions, constant(NO_RECORD, rows.height, OFFSET), closed[FIRST])
        rows = ranked(rows, ends, starts, arrival(closed))
        return rows.filter(pl.col(OP).is_not_null()).select(self._nothing.columns)

    # EMIT CHANGES

    def _changes(
        self, batch: _Batch, elements: pl.DataFrame, sessions: int, components: Components, counters: Counters
    ) -> _Outcome | None:
        """Show each change of a session."""
        horizons = np.append([self._horizon], batch.horizons)
        is_late = components.are_late(horizons)
        is_touched = components.has_record & ~is_late
        followed = self._followed(batch, components, is_touched, horizons, counters)
        if followed is None:
            return None
        chains, more_late = followed
        late = np.concatenate([components.records[is_late[components.ids]], more_late])
        if not len(chains.elements):
            return _Outcome(elements.clear(), self._nothing, late)
        shown = self._fold.changes(elements, chains, sessions)
        shown.marks.count(self._spec.name, counters)
        return _Outcome(shown.sessions, self._placed(shown.frame, batch), late)

    def _placed(self, changes: pl.DataFrame, batch: _Batch) -> pl.DataFrame:
        """Give changes the places of the records that made them."""
        records = changes[RECORD].to_numpy()
        changes = with_series(changes, *taken(only(batch.frame, POS, OFFSET, RANK), records).get_columns())
        if self._corrections is not None:
            changes = at_one_place(changes, records)
        elif not self._spec.is_folded:
            changes = at_own_places(changes, records)
        return only(changes, *self._nothing.columns, *(name for name in (ARRIVED,) if name in changes.columns))

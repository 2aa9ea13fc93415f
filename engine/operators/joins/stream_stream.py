"""The stream-stream join: two streams whose records meet when their keys are equal and their event times near (Kafka's JoinWindows).

Both sides have one stream time (T1). A record is *closed*, for both sides alike, when ``ts + reach + grace < stream time``: the
reach of a left record is ``after``, that of a right one ``before``. What is closed before the place at which it comes is late, what closes
later meets nothing at later places, and what closes without a partner is shown with nulls at the place that closes it: one boundary for all
three, as in W5, so that no record is shown both with nulls and with a partner (Kafka can). The results of an inner join are those of an outer
one without the rows of nulls.

At one place first come the rows of nulls of what closes there, by (time, left before right, arrival), then matches by (record, the other
record's time, arrival).

An *eager* join (SS5) shows a record that has no partner at its own position with nulls at once, marked ``preliminary``, and says nothing
more of it but its matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import I64, NEVER
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, RANK, TS, Counters, add_counter, empty_frame, late_rows
from engine.operators.joins.stream_side import JoinSide, Probes, find_partners
from engine.operators.joins.stream_stream_rows import (
    Alone,
    Arrived,
    Caused,
    Order,
    Part,
    Rows,
    caused,
    gathered,
    in_order,
    passed,
    unmatched,
)
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.operators.pending.spans import Span
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.state.segments.ports import SegmentStore

PRELIMINARY, FINAL = "preliminary", "final"
"""What an eager join says of its rows."""

LATE: Final = "join_window_closed"
"""Counter and reason of a record that was closed when it came."""


class StreamStreamJoiner(Operator):
    """One stream-stream join of a stage.

    Null keys are dropped and counted (T6); those of a side whose records come with nulls pass at once and move no clock.

    Args:
        spec: what to do.
        left: columns of the running stream.
        right: columns of the other stream (qualified).
        state: what ``snapshot`` returned, or None. ``spec`` may differ from the one it was made with in grace: what has closed
            stays closed, what is closed under the new one closes at the next place of the streams.
        store: where records live.
    """

    def __init__(
        self, spec: StreamStreamJoin, left: Schema, right: Schema, state: dict[str, Any] | None, store: SegmentStore
    ) -> None:
        state = state or {}
        self.name = spec.name
        self._spec = spec
        carried = right.select(dict.fromkeys((*spec.right_columns, *spec.right_key)))
        state_columns = ((spec.state_column, STRING),) if spec.is_eager else ()
        self.schema = Schema((*left.items(), *right.select(spec.right_columns).items(), *state_columns))
        self._nothing = empty_frame(self.schema)
        self._hashing = store.hashing
        self._no_right = empty_frame(right)
        self._arrivals: int = state.get("arrivals", 0)
        self._is_outer = spec.shown_alone
        states = state.get("left"), state.get("right")
        self._sides = tuple(
            JoinSide(columns, waits=is_outer and not spec.is_eager, state=kept, store=store)
            for columns, is_outer, kept in zip((left, carried), self._is_outer, states, strict=True)
        )
        self._reaches = (spec.after_ms, spec.before_ms)
        self._has_unmatched = any(side.waits for side in self._sides)

    @property
    def buffered_rows(self) -> int:
        """Records kept, those that can meet nothing any more in shared segments included."""
        return sum(side.rows for side in self._sides)

    @property
    def waiting(self) -> dict[str, list[Span]]:
        """Records that may come with nulls, by the last event time at which they can meet a partner."""
        spans = [
            Span(span.low + reach, span.high + reach, span.least, span.most)
            for side, reach in zip(self._sides, self._reaches, strict=True)
            for span in side.spans
        ]
        return {self._spec.name: spans}

    @property
    def oldest_ms(self) -> int | None:
        """The smallest event time kept of either side."""
        return min((ms for side in self._sides if (ms := side.oldest_ms) is not None), default=None)

    @property
    def due_ms(self) -> int | None:
        """The time at which a record closes that may come with nulls."""
        earliest = [
            side.earliest_ms + reach
            for side, reach in zip(self._sides, self._reaches, strict=True)
            if side.earliest_ms is not None
        ]
        return min(earliest) + self._spec.grace_ms + 1 if earliest else None

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        left, right = (side.snapshot() for side in self._sides)
        return {"arrivals": self._arrivals, "left": left, "right": right}

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle the next records of both sides, and close what time has passed.

        Args:
            frame: the left side's rows in processing order.
            inputs: the right side's records under ``spec.stream_index``.
            moment: when.

        Returns:
            Rows with the left side's columns and ``spec.right_columns``; the time of a match is the later one of the two. Those of an
            eager join end with ``spec.state_column``.
            ``_key_hash`` is that of the left key, null without one. Counters ``null_value null_key join_window_closed``, late
            rows of the last.
        """
        right = inputs.get(self._spec.stream_index, self._no_right)
        if frame.is_empty() and right.is_empty() and moment.clock.next_place == NEVER and not moment.is_release:
            return OperatorOutput(self._nothing)
        for side, reach in zip(self._sides, self._reaches, strict=True):
            side.closed_to_ms = max(moment.closed_ms - reach - 1, side.closed_to_ms)
        counters: Counters = {}
        arrived = self._arrived((frame, right), counters)
        order = self._order(arrived, moment)
        self._arrivals += len(order.times)
        checked, passing, late = self._split(arrived, order, counters)
        rows = self._joined(checked, passing, order, moment)
        return OperatorOutput(rows, late, counters)

    def _arrived(self, frames: tuple[pl.DataFrame, pl.DataFrame], counters: Counters) -> tuple[Arrived, Arrived]:
        """Drop null values, and null keys where no row of nulls may come of them; merge both sides by position."""
        found = []
        for frame, key, is_outer in zip(frames, (self._spec.left_key, self._spec.right_key), self._is_outer, strict=True):
            hashes = self._hashing.of(frame, key)
            is_delete, is_null = frame.get_column(OP).to_numpy() != 0, hashes.is_null().to_numpy()
            add_counter(counters, self._spec.name, "null_value", int(is_delete.sum()))
            add_counter(counters, self._spec.name, "null_key", int((is_null & ~is_delete).sum()))
            is_out = is_delete if is_outer else is_delete | is_null
            rows = np.flatnonzero(~is_out)
            found.append((frame, hashes) if len(rows) == frame.height else (frame[rows], hashes[rows]))
        (left, left_hashes), (right, right_hashes) = found
        positions = np.concatenate([left.get_column(POS).to_numpy(), right.get_column(POS).to_numpy()])
        places = np.empty(len(positions), np.int64)
        places[np.argsort(positions, kind="stable")] = np.arange(len(positions))
        return Arrived(left, left_hashes, places[: left.height]), Arrived(right, right_hashes, places[left.height :])

    def _order(self, arrived: tuple[Arrived, Arrived], moment: BatchTime) -> Order:
        """Put the records of both sides into one order, with the time before each."""
        frame = pl.concat([side.frame[[POS, RANK, OFFSET]] for side in arrived])
        rows = np.empty(frame.height, np.int64)
        rows[np.concatenate([side.places for side in arrived])] = np.arange(frame.height)
        places = frame[rows]
        return Order(places, moment.before(places), self._arrivals)

    def _split(
        self, arrived: tuple[Arrived, Arrived], order: Order, counters: Counters
    ) -> tuple[tuple[Arrived, ...], tuple[Arrived, ...], pl.DataFrame]:
        """Split each side's records into those to join and those that pass for their null key; report the late ones."""
        checked, passing, late, late_places = [], [], [], []
        for records, side, reach in zip(arrived, self._sides, self._reaches, strict=True):
            is_null = records.hashes.is_null().to_numpy()
            before = order.times[records.places]
            closed_to = np.maximum(before - reach - self._spec.grace_ms - 1, side.closed_to_ms)
            is_late = (records.frame.get_column(TS).to_numpy() <= closed_to) & ~is_null
            checked.append(records.rows(np.flatnonzero(~is_late & ~is_null)))
            passing.append(records.rows(np.flatnonzero(is_null)))
            lost = np.flatnonzero(is_late)
            add_counter(counters, self._spec.name, LATE, len(lost))
            late.append(late_rows(records.frame[lost], self._spec.name, LATE, pl.Series(before[lost])))
            late_places.append(records.places[lost])
        return tuple(checked), tuple(passing), pl.concat(late)[np.argsort(np.concatenate(late_places))]

    def _joined(
        self, checked: tuple[Arrived, ...], passing: tuple[Arrived, ...], order: Order, moment: BatchTime
    ) -> pl.DataFrame:
        """Find the matches, close what time has passed, take the batch over; give the results in order."""
        probes = [self._probes(which, checked[which], order) for which in (0, 1)]
        parts = [self._part(which, probes[1 - which], checked[which], passing[which], order, moment) for which in (0, 1)]
        by_left = find_partners(probes[0], parts[1].targets, self._spec.right_key)
        by_right = find_partners(probes[1], parts[0].targets, self._spec.left_key)
        left = np.concatenate([by_left[0] + parts[0].old, by_right[1]])
        right = np.concatenate([by_left[1], by_right[0] + parts[1].old])
        places = np.concatenate([checked[0].places[by_left[0]], checked[1].places[by_right[0]]])
        alone = [self._take_over(which, parts[which], met, moment) for which, met in enumerate((left, right))]
        results = [Caused(places, left, right), *passed(parts, passing)]
        if self._spec.is_eager:
            met = (by_left[0], by_right[0])
            results += [
                self._at_once(which, checked[which], parts[which], met[which]) for which in (0, 1) if self._is_outer[which]
            ]
        rows = [unmatched(parts, alone), caused(results, order, has_unmatched=self._has_unmatched)]
        return self._assembled(in_order(rows), parts)

    @staticmethod
    def _at_once(which: int, records: Arrived, part: Part, met: I64) -> Caused:
        """Show the new records of a side that meet no partner at their own positions (SS5).

        Args:
            which: 0 left, 1 right.
            records: the side's new records.
            part: those that results can be made of.
            met: indexes of the records that meet one; may repeat.
        """
        has_met = np.zeros(len(records.places), np.bool_)
        has_met[met] = True
        alone = np.flatnonzero(~has_met)
        own, nothing = part.old + alone, np.full(len(alone), -1)
        return Caused(records.places[alone], nothing if which else own, own if which else nothing)

    def _probes(self, which: int, records: Arrived, order: Order) -> Probes:
        """Say what each new record of a side can meet: near in time, and not closed before its place."""
        own, other = self._reaches[which], self._reaches[1 - which]
        times, before = records.frame.get_column(TS).to_numpy(), order.times[records.places]
        low = np.maximum(times - other, before - other - self._spec.grace_ms)
        low = np.maximum(low, self._sides[1 - which].closed_to_ms + 1)
        key = [records.frame.get_column(name) for name in (self._spec.left_key, self._spec.right_key)[which]]
        return Probes(records.hashes.to_numpy(), key, low, times + own, records.places + order.first_arrival)

    def _part(self, which: int, probes: Probes, checked: Arrived, passing: Arrived, order: Order, moment: BatchTime) -> Part:
        """Gather one side's records that results can be made of. What closes leaves the side."""
        side = self._sides[which]
        old = side.candidates(probes)
        until = side.closed_to_ms
        if moment.clock.next_place < NEVER or moment.is_release:
            until = moment.clock.end - self._reaches[which] - self._spec.grace_ms - 1
        new, passed = (
            side.records(records.frame, records.hashes, records.places + order.first_arrival) for records in (checked, passing)
        )
        source = pl.concat([old, new, side.take_closed(until), passed], rechunk=True)
        return Part(source, old.height, old.height + new.height, source.height - passed.height)

    def _take_over(self, which: int, part: Part, met: I64, moment: BatchTime) -> Alone:
        """Keep one side's new records; say what closes without a partner.

        Args:
            which: 0 left, 1 right.
            part: its records.
            met: rows of those that met a partner.
            moment: when.
        """
        has_met = np.zeros(part.new, np.bool_)
        has_met[met] = True
        known = part.source[: part.old].filter(pl.Series(has_met[: part.old]))
        side = self._sides[which]
        side.keep(part.source[part.old : part.new], ~has_met[part.old :], known)
        if not side.waits:
            return Alone(np.empty(0, np.int64), np.empty(0, np.int64))
        arrivals = part.source.get_column(POS).to_numpy()
        is_met = np.isin(arrivals[part.new : part.closed], known.get_column(POS).to_numpy())
        rows = np.concatenate([part.old + np.flatnonzero(~has_met[part.old :]), part.new + np.flatnonzero(~is_met)])
        lasts_to = part.source.get_column(TS).to_numpy()[rows] + self._reaches[which] + self._spec.grace_ms
        positions = moment.reached(lasts_to + 1)
        is_closed = positions < NEVER
        return Alone(rows[is_closed], positions[is_closed])

    def _assembled(self, rows: Rows, parts: list[Part]) -> pl.DataFrame:
        """Put both sides' columns beside each other."""
        if not rows.places.height:
            return self._nothing
        left, right = (gathered(part.source, own) for part, own in zip(parts, (rows.left, rows.right), strict=True))
        service = [
            rows.places.get_column(POS),
            pl.select(pl.max_horizontal(left.get_column(TS), right.get_column(TS)).alias(TS)).to_series(),
            pl.repeat(0, rows.places.height, dtype=pl.Int8, eager=True).alias(OP),
            left.get_column(KEY_HASH),
            rows.places.get_column(OFFSET),
            rows.places.get_column(RANK),
        ]
        others = (*self._spec.right_columns, self._spec.state_column)
        columns = [*left[[name for name in self.schema.names if name not in others]], *right[list(self._spec.right_columns)]]
        if self._spec.is_eager:
            # What has no key meets nothing: it passed for good (SS4).
            has_key = left.get_column(KEY_HASH).is_not_null() | right.get_column(KEY_HASH).is_not_null()
            is_preliminary = has_key & pl.Series((rows.left < 0) | (rows.right < 0))
            states = pl.select(pl.when(is_preliminary).then(pl.lit(PRELIMINARY)).otherwise(pl.lit(FINAL)))
            columns.append(states.to_series().alias(self._spec.state_column))
        return pl.DataFrame([*service, *columns])

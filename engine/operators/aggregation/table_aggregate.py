"""Aggregation over a table, with undo (A1, A2), in two steps.

``TableRegrouper`` works in tasks by the table's key: it remembers each row and makes of every change messages for groups: the old
row goes, the new row comes. ``TableAggregator`` works in tasks by group and applies them. ``engine.plan.operators.regrouping`` names the
columns between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import BEFORE_ALL_TIME, I64, Bools
from engine.frames.frames import (
    OFFSET,
    OP,
    POS,
    RANK,
    TS,
    Counters,
    add_counter,
    constant,
    empty_frame,
    empty_late,
    late_rows,
    values_taken,
    with_series,
    without,
)
from engine.frames.places import apart
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.group_results import Grouping, GroupResults, with_one_zero
from engine.operators.aggregation.group_store import HASH, GroupStore
from engine.operators.aggregation.last_changes import MESSAGE
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.plan.operators.aggregation import TableAggregation, TableRegrouping
from engine.plan.operators.regrouping import (
    has_new_column,
    has_old_column,
    new_column,
    old_column,
    regrouped_rows,
    regrouped_schema,
)
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.running import Groups, grouped
from engine.state.sorted.sorted_search import distinct

__all__ = ["TableAggregator", "TableRegrouper", "regrouped_schema"]

_OF_PLACE: Final = (POS, RANK, OFFSET)
"""What a message has of the record that caused it."""

SEQ: Final = "_seq"
"""Number of a put by arrival: unlike positions, never shared."""


class TableRegrouper(Operator):
    """Makes a table's changes into messages for groups.

    A row counts by its latest-by-time value where the table is versioned (a put that is not its key's latest changes nothing), by
    its latest-by-arrival value where it is not (V7). The first change of a key replaces nothing (STRICT 9).

    Args:
        spec: what to do.
        schema: the columns of the frames to come.
        state: what ``snapshot`` returned, or None for a new operator.
        store: where the rows live.
    """

    def __init__(self, spec: TableRegrouping, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self._spec = spec
        self.schema = regrouped_schema(spec, schema)
        self._nothing = empty_frame(self.schema)
        self._payload = list(dict.fromkeys((*spec.key, *spec.group, *spec.columns)))
        self._doubles = [name for name in dict.fromkeys((*spec.key, *spec.group)) if schema[name].kind == "double"]
        self._table_time = BEFORE_ALL_TIME
        self._next: int = state.get("next", 0)
        self._hashing = store.hashing
        self._rows = GroupStore(store, self._newest, state.get("rows"))

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "rows": self._rows.snapshot()}

    def process(self, frame: pl.DataFrame, _inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle the next changes in processing order.

        Returns:
            Messages: of a row that stays in its group one, of one that moves the old group's, then the new one's, each with a place of its
            own (T1b). Counters:
            ``null_key``; ``null_group`` (rows that count nowhere); ``out_of_order`` (puts before their key's latest: of a versioned
            table they change nothing); ``table_history_expired`` (V1), whose rows are late.
        """
        counters: Counters = {}
        if frame.is_empty():
            return OperatorOutput(self._nothing)
        puts, late = self._numbered_puts(frame, moment, counters)
        if puts.is_empty():
            return OperatorOutput(self._nothing, late, counters)
        rows, is_new = self._chain(puts, counters)
        messages = self._messages(rows, np.flatnonzero(is_new), counters)
        self._table_time = moment.clock.end
        self._rows.append(without(rows.filter(pl.Series(is_new)), *_OF_PLACE))
        return OperatorOutput(messages, late, counters)

    def _numbered_puts(self, frame: pl.DataFrame, moment: BatchTime, counters: Counters) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Number the puts, drop null keys (T6) and what V1 rejects; return the puts and the late rows."""
        name, retention_ms = self._spec.name, self._spec.history_retention_ms
        frame = with_one_zero(frame, self._doubles)
        frame = with_series(frame, self._hashing.of(frame, self._spec.key).alias(HASH))
        if null_keys := frame[HASH].null_count():
            add_counter(counters, name, "null_key", null_keys)
            frame = frame.filter(pl.col(HASH).is_not_null())
        if frame.is_empty():
            return frame, empty_late()
        before, late = moment.before(frame), empty_late()
        if retention_ms is not None and (is_expired := frame[TS].to_numpy() < before - retention_ms).any():
            rejected = pl.Series(is_expired)
            add_counter(counters, name, "table_history_expired", int(is_expired.sum()))
            shown = frame.drop(HASH).filter(rejected)
            late = late_rows(shown, name, "table_history_expired", pl.Series(before[is_expired]))
            frame = frame.filter(~rejected)
        numbers = pl.Series(SEQ, np.arange(self._next, self._next + frame.height))
        self._next += frame.height
        return frame.with_columns(numbers)[[HASH, SEQ, TS, OP, *_OF_PLACE, *self._payload]], late

    def _chain(self, puts: pl.DataFrame, counters: Counters) -> tuple[pl.DataFrame, Bools]:
        """Return each touched key's row before the batch and the puts that replaced it, by key and arrival; and which are puts."""
        held = self._rows.matching(distinct(puts[HASH].to_numpy()))
        chain = puts
        if held:
            chain = pl.concat([self._newest(pl.concat(held), is_all=False), puts], how="diagonal")
        chain, groups = grouped(chain, HASH, self._spec.key)
        is_new = chain[SEQ].to_numpy() >= self._next - puts.height
        is_late = is_new & self._is_out_of_order(chain, groups)
        add_counter(counters, self._spec.name, "out_of_order", int(is_late.sum()))
        if self._spec.history_retention_ms is None or not is_late.any():
            return chain, is_new
        return chain.filter(pl.Series(~is_late)), is_new[~is_late]

    def _is_out_of_order(self, chain: pl.DataFrame, groups: Groups) -> Bools:
        """Say which puts are older than their key's latest before them: by time (versioned), or the last by arrival.

        In an unversioned table one that follows a delete replaces no row: whether the delete is still known decides nothing.
        """
        times = chain[TS].to_numpy()
        known = np.where(chain[OP].to_numpy() == 0, times, BEFORE_ALL_TIME)
        if self._spec.history_retention_ms is not None:
            known = groups.latest(times)
        before = np.empty_like(times)
        before[1:] = known[:-1]
        before[groups.firsts == np.arange(len(times))] = BEFORE_ALL_TIME
        return times < before

    def _messages(self, rows: pl.DataFrame, changed: I64, counters: Counters) -> pl.DataFrame:
        """Make messages of the rows at ``changed``, each of which replaces the row before it where that is of the same key."""
        spec = self._spec
        groups = Groups.of(rows.select(HASH, *spec.key))
        is_grouped = rows.select(pl.all_horizontal(pl.lit(value=True), *(pl.col(name).is_not_null() for name in spec.group)))
        is_row = rows[OP].to_numpy() == 0
        counts = is_row & is_grouped.to_series().to_numpy()
        add_counter(counters, spec.name, "null_group", int((is_row & ~counts)[changed].sum()))
        replaced = np.maximum(changed - 1, 0)
        has_old = (groups.firsts[changed] != changed) & counts[replaced]
        has_new = counts[changed]
        stays = has_old & has_new & _equal([rows[name] for name in spec.group], replaced, changed)
        leaves, joins = np.flatnonzero(has_old & ~stays), np.flatnonzero(has_new & ~stays)
        both, nothing = np.flatnonzero(stays), np.full(rows.height, -1)
        causes = np.concatenate([changed[both], changed[leaves], changed[joins]])
        old = np.concatenate([replaced[both], replaced[leaves], nothing[: len(joins)]])
        new = np.concatenate([changed[both], nothing[: len(leaves)], changed[joins]])
        order = np.argsort(2 * rows[SEQ].to_numpy()[causes] + (new >= 0))  # no two messages of a change are alike in this
        messages = self._assembled(rows, causes[order], old[order], new[order])
        is_second = np.concatenate([np.zeros(len(both) + len(leaves), np.int64), has_old[joins].astype(np.int64)])
        return apart(messages, is_second[order])

    def _assembled(self, rows: pl.DataFrame, causes: I64, old: I64, new: I64) -> pl.DataFrame:
        """Write messages: ``causes``, ``old`` and ``new`` are indexes of ``rows``, -1 for none."""
        spec, name = self._spec, self._spec.name
        shown = np.where(new >= 0, new, old)
        group = [values_taken(rows[column], shown) for column in spec.group]
        old_rows, new_rows = _optional(old), _optional(new)
        service = rows.select(TS, *_OF_PLACE)[causes].get_columns()
        columns = [
            *service,
            constant(0, len(causes), OP, np.int8),
            self._hashing.of(pl.DataFrame([*service, *group]), spec.group),
            *group,
            *(rows[column].gather(old_rows).alias(old_column(name, column)) for column in spec.columns),
            *(rows[column].gather(new_rows).alias(new_column(name, column)) for column in spec.columns),
            pl.Series(has_old_column(name), old >= 0),
            pl.Series(has_new_column(name), new >= 0),
        ]
        return pl.DataFrame(columns)[self._nothing.columns]

    def _newest(self, rows: pl.DataFrame, is_all: bool) -> pl.DataFrame:
        """Keep each key's last row; where no older one is hidden, forget deletes that tell nothing more.

        Those are all of an unversioned table, and of a versioned one those that every accepted put would replace (V4).
        """
        rows, groups = grouped(without(rows, *_OF_PLACE), HASH, self._spec.key)
        ids = groups.ids
        is_kept = np.ones(len(ids), np.bool_)
        is_kept[:-1] = ids[1:] != ids[:-1]
        if is_all:
            is_row, retention_ms = rows[OP].to_numpy() == 0, self._spec.history_retention_ms
            if retention_ms is None:
                is_kept &= is_row
            else:
                is_kept &= is_row | (rows[TS].to_numpy() >= self._table_time - retention_ms)
        return rows if is_kept.all() else rows.filter(pl.Series(is_kept))


class TableAggregator(Operator):
    """Applies a regrouper's messages to groups.

    The result's time is the greatest of the messages' and never falls (KS A4). A group that has become empty stays (A2).

    Args:
        spec: what to do.
        schema: the regrouper's columns (``regrouped_schema``).
        state: what ``snapshot`` returned, or None for a new operator.
        store: where partial results live.
    """

    def __init__(self, spec: TableAggregation, schema: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self._operator = spec.name
        self._grouping = Grouping.of(spec.group, schema, store.hashing)
        self._columns = regrouped_rows(spec.name, schema).names
        arguments = Schema((*schema.select(self._plain_sources()).items(), *regrouped_rows(spec.name, schema).items()))
        self._aggregates = Aggregates(spec.aggregates, arguments, with_undo=True)
        self._results = GroupResults(spec, self._grouping, self._aggregates, state.get("groups"), store)
        self.schema = self._results.schema
        self._nothing = empty_frame(self.schema)
        self._next: int = state.get("next", 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "groups": self._results.snapshot()}

    def process(self, frame: pl.DataFrame, _inputs: Mapping[int, pl.DataFrame], _moment: BatchTime) -> OperatorOutput:
        """Handle the next messages in processing order; returns one row for each. Counter ``sum_overflow`` as in A3."""
        counters: Counters = {}
        if frame.is_empty():
            return OperatorOutput(self._nothing)
        messages, hashes = self._grouping.admit(frame, self._operator, counters)
        if messages.is_empty():
            return OperatorOutput(self._nothing, counters=counters)
        shown = self._results.fold(self._partials(messages, hashes, counters), counters)
        causes = messages.select(_OF_PLACE)[shown[MESSAGE].to_numpy()]
        return OperatorOutput(with_series(shown, *causes.get_columns())[self._nothing.columns], counters=counters)

    def _partials(self, messages: pl.DataFrame, hashes: pl.Series, counters: Counters) -> pl.DataFrame:
        """Make a partial of each row that goes or comes, the one that goes first; a message is one place in the order."""
        name = self._operator
        gone, come = (np.flatnonzero(messages[has].to_numpy()) for has in (has_old_column(name), has_new_column(name)))
        plain = [TS, *self._plain_sources()]
        parts = [
            messages[rows].select(*plain, *(pl.col(written(name, column)).alias(column) for column in self._columns))
            for written, rows in ((old_column, gone), (new_column, come))
        ]
        self._aggregates.count_gaps(parts[1].with_columns(pl.lit(0, pl.Int8).alias(OP)), self._operator, counters)
        numbers = np.concatenate([gone, come])
        signs = np.repeat(np.array([-1, 1]), (len(gone), len(come)))
        order = np.argsort(2 * numbers + (signs > 0))
        numbers, signs = numbers[order], signs[order]
        positions = 2 * (self._next + numbers) + (signs > 0)
        self._next += messages.height
        rows = pl.concat(parts)[order]
        return pl.DataFrame([pl.Series(MESSAGE, numbers), *self._results.lift(rows, hashes[numbers], positions, signs)])

    def _plain_sources(self) -> list[str]:
        """The group's columns that are not among the old and new ones."""
        return [source for source in dict.fromkeys(self._grouping.sources) if source not in self._columns]


def _equal(columns: list[pl.Series], left: I64, right: I64) -> Bools:
    """Say where the rows at ``left`` and at ``right`` are equal."""
    is_equal = np.ones(len(left), np.bool_)
    for column in columns:
        is_equal &= values_taken(column, left).eq_missing(values_taken(column, right)).to_numpy()
    return is_equal


def _optional(rows: I64) -> pl.Series:
    """Return indexes for ``gather``, null for -1: that gathers null."""
    return pl.Series(rows, dtype=pl.Int64).set(pl.Series(rows < 0), None)

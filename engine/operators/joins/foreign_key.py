"""The foreign-key join (FK1-FK3) as three operators: subscriptions, lookups, results.

A left row *subscribes* to the right row that its foreign key names. The first operator (in tasks by left key) turns each change of
a left row into messages to the tasks of the foreign keys concerned: the old one is left, the new one entered. The second (by
foreign key) keeps the subscriptions and the right table, and answers with joined rows, or with deletes where there is none. The
third (by left key) puts the answers of different tasks together: each carries the *generation* of the left row it was made for, and
an answer to an older row than the newest one answered is dropped. So the tasks in between need no common order.

All messages and answers of a batch are handled in the same batch. Each has the place of the change that caused it, so all results stand in
one order again: both messages of a left change at its place, the answers to a right change each at a place of its own (T1b), by left key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.frames.clocks import I64, Bools
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import KEY_HASH, OFFSET, OP, POS, RANK, TS, Counters, add_counter, empty_frame, empty_late
from engine.frames.places import apart, ordinals
from engine.operators.joins.subscriptions import MEMBER, Subscriptions
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.foreign_keys import (
    action_column,
    answer_schema,
    foreign_key_columns,
    generation_column,
    subscription_schema,
)
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.keys import NO_KEY, different_keys
from engine.state.sorted.latest_rows import LatestBatch, LatestTable, Probed
from engine.state.sorted.segment_list import taken_or_null
from engine.state.sorted.sorted_search import stable_order

ENTER, LEAVE, DELETE = range(3)
"""What a message asks for: subscribe and answer; end the subscription silently; end it and answer with a delete."""


def _carried(spec: ForeignKeySubscription | ForeignKeyLookup, columns: Schema) -> Schema:
    """Return the left key's columns and those that go on."""
    return columns.select(dict.fromkeys((*spec.key, *spec.left_columns)))


class ForeignKeySubscriber(Operator):
    """The first step, in tasks by left key: what each change of a left row means for foreign keys.

    The generation is this operator's count of left changes, so it rises from change to change of a key.

    Args:
        spec: what to do.
        left: columns of the running table.
        state: what ``snapshot`` returned, or None.
        store: where the left rows' keys and foreign keys live; nothing else is kept of them.
    """

    def __init__(self, spec: ForeignKeySubscription, left: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self.schema = subscription_schema(spec, left)
        self._spec = spec
        self._hashing = store.hashing
        self._foreign_key = foreign_key_columns(spec)
        scalars = [compile_scalar(text, left) for text in spec.foreign_key]
        named = zip(self._foreign_key, scalars, strict=True)
        self._expressions = [pl.when(pl.col(OP) == 0).then(scalar.expr).alias(name) for name, scalar in named]
        self._gaps = GapCounter(spec.name, scalars)
        kept = self.schema.select((*spec.key, *self._foreign_key))
        retention_ms = spec.history_retention_ms
        self._left = LatestTable(kept, spec.key, retention_ms, state.get("left"), store, is_by_time=retention_ms is not None)
        self._next: int = state.get("next", 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "left": self._left.snapshot()}

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        """Handle changes of the left table.

        Returns:
            Messages (see ``subscription_schema``), of one change *leave* before *enter*. A change that makes no difference to any
            result has none. Counted are ``null_key``, ``table_history_expired`` (V1, also late rows), ``out_of_order`` (V7) and
            ``not_latest`` (TT2).
        """
        counters: Counters = {}
        frame = _with_key(frame, self._hashing.of(frame, self._spec.key), counters, self._spec.name, "null_key")
        if frame.is_empty():
            return OperatorOutput(empty_frame(self.schema), empty_late(), counters)
        self._gaps.count(frame, counters)
        numbers = pl.Series(POS, np.arange(self._next, self._next + frame.height))
        batch = self._left.open(frame.with_columns(*self._expressions, numbers), moment.before(frame))
        late = batch.checked(frame, self._spec.name, counters)
        output = self._messages(frame, batch)
        self._next += frame.height
        self._left.commit(batch, moment.clock.end)
        return OperatorOutput(output, late, counters)

    def _messages(self, frame: pl.DataFrame, batch: LatestBatch) -> pl.DataFrame:
        """Write the messages of the changes that count."""
        hashed = self._hashing.of(batch.rows, self._foreign_key)
        has_key, hashes = hashed.is_not_null().to_numpy(), hashed.fill_null(0).to_numpy()
        previous, is_replacing = batch.previous, batch.is_replacing
        was_subscribed = is_replacing & has_key[previous]
        is_row = batch.ops == 0
        if self._spec.type == "inner":  # a row without a foreign key is as good as none: the old foreign key's task deletes
            is_row, is_replacing = is_row & has_key, was_subscribed
        stays = has_key & (hashes == hashes[previous])
        same = np.flatnonzero(stays & was_subscribed)
        stays[same] = ~different_keys([batch.rows.get_column(name) for name in self._foreign_key], same, previous[same])
        is_left = is_row & was_subscribed & ~stays
        is_emitted = is_row | is_replacing
        leaving, kept_rows = np.flatnonzero(is_left & batch.is_new), np.flatnonzero(is_emitted & batch.is_new)
        rows = np.concatenate([leaving, kept_rows])
        actions = np.concatenate([np.full(len(leaving), LEAVE), np.where(is_row[kept_rows], ENTER, DELETE)])
        order = np.argsort(2 * batch.sequence[rows] + (actions != LEAVE))  # no two messages of a change are alike in this
        return self._written(frame, batch, rows[order], actions[order])

    def _written(self, frame: pl.DataFrame, batch: LatestBatch, rows: I64, actions: I64) -> pl.DataFrame:
        """Put the columns together: what enters takes the left row along, everything else only its keys."""
        generations = batch.sequence[rows]
        causes = generations - self._next
        is_entering = actions == ENTER
        payload = [name for name in _carried(self._spec, self.schema) if name not in self._spec.key]
        return (
            frame[causes][[POS, TS, KEY_HASH, OFFSET, RANK, *self._spec.key]]
            .hstack(taken_or_null(frame.select(payload), np.where(is_entering, causes, -1)).get_columns())
            .hstack(batch.rows[list(self._foreign_key)][np.where(is_entering, rows, batch.previous[rows])])
            .with_columns(
                pl.Series(OP, ~is_entering, pl.Int8),
                pl.Series(generation_column(self._spec.name), generations, pl.Int64),
                pl.Series(action_column(self._spec.name), actions, pl.Int32),
            )[empty_frame(self.schema).columns]
        )


class ForeignKeyAnswerer(Operator):
    """The second step, in tasks by foreign key: answers for each left row that a message or a right change concerns.

    Args:
        spec: what to do.
        subscriptions: ``subscription_schema``.
        right: columns of the right input.
        state: what ``snapshot`` returned, or None.
        store: where subscriptions and right rows live.
    """

    def __init__(
        self, spec: ForeignKeyLookup, subscriptions: Schema, right: Schema, state: dict[str, Any] | None, store: SegmentStore
    ) -> None:
        state = state or {}
        self.name = spec.name
        self.schema = answer_schema(spec, subscriptions, right)
        self._spec = spec
        self._hashing = store.hashing
        self._foreign_key = foreign_key_columns(spec)
        kept = right.select(dict.fromkeys((*spec.right_key, *spec.right_columns)))
        retention_ms = spec.right_retention_ms
        self._right = LatestTable(
            kept, spec.right_key, retention_ms, state.get("right"), store, is_by_time=retention_ms is not None
        )
        self._carried = (*_carried(spec, subscriptions), generation_column(spec.name))
        kept_state = state.get("subscriptions")
        self._subscriptions = Subscriptions(spec.key, self._foreign_key, self._carried, subscriptions, kept_state, store)
        self._next: int = state.get("next", 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "right": self._right.snapshot(), "subscriptions": self._subscriptions.snapshot()}

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:
        """Handle messages and changes of the right table.

        Returns:
            Answers (see ``answer_schema``); those to one right change by left key, column by column: texts by UTF-8 bytes, other
            types by value (FK3). A delete says that there is no row; whether there was one it does not know. Counted are
            ``table_null_key``, ``table_history_expired`` (V1, also late rows), ``out_of_order`` (V7) and ``not_latest`` (TT2).
        """
        counters: Counters = {}
        name, puts = self._spec.name, inputs.get(self._spec.table_index)
        if puts is not None:
            puts = _with_key(puts, self._hashing.of(puts, self._spec.right_key), counters, name, "table_null_key")
        if frame.is_empty() and (puts is None or puts.is_empty()):
            return OperatorOutput(empty_frame(self.schema), empty_late(), counters)
        index = self._spec.table_index
        before = None if puts is None else moment.table_before(index, puts)
        messages, puts, causes = self._numbered(frame, puts)
        has_key = np.flatnonzero(messages.get_column(KEY_HASH).is_not_null().to_numpy())
        messages = messages.with_columns(pl.col(KEY_HASH).fill_null(0))
        asked = frame[list(self._foreign_key)][has_key].get_columns()
        batch = self._right.open(puts, before, Probed(messages.get_column(KEY_HASH).to_numpy()[has_key], asked))
        numbers = np.full(messages.height, NO_KEY)
        numbers[has_key] = batch.probed
        late = empty_late() if puts is None else batch.checked(puts, name, counters)
        output = self._answers(messages, frame.get_column(action_column(name)).to_numpy(), numbers, batch, causes)
        self._right.commit(batch, moment.tables[index].end)
        self._subscriptions.append(messages[has_key])
        self._next += causes.height
        return OperatorOutput(output, late, counters)

    def _numbered(self, frame: pl.DataFrame, puts: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame]:
        """Count both inputs through as one sequence, the table's change first where they share a position.

        Returns:
            The messages as subscriptions are kept, with a null ``_key_hash`` where there is no foreign key; the puts; and for each
            number ``_pos``, ``_offset`` and ``_rank`` of its record.
        """
        messages = frame.with_columns(
            self._hashing.of(frame, self._foreign_key), self._hashing.of(frame, self._spec.key).alias(MEMBER)
        )
        sides = [side for side in (puts, messages) if side is not None]
        causes = pl.concat([side[[POS, OFFSET, RANK]] for side in sides])
        order = np.argsort(causes.get_column(POS).to_numpy(), kind="stable")
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(self._next, self._next + len(order))
        split = len(order) - frame.height
        messages = messages.with_columns(pl.Series(POS, numbers[split:]))[list(self._subscriptions.columns)]
        return messages, None if puts is None else puts.with_columns(pl.Series(POS, numbers[:split])), causes[order]

    def _answers(
        self, messages: pl.DataFrame, actions: NDArray[np.int32], numbers: I64, batch: LatestBatch, causes: pl.DataFrame
    ) -> pl.DataFrame:
        """Answer the messages, and the right changes for the left rows subscribed at their places.

        Args:
            messages: those of the batch.
            actions: what each asks for.
            numbers: of each one's foreign key in ``batch``, ``NO_KEY`` where it is null.
            batch: the right table.
            causes: ``_pos``, ``_offset`` and ``_rank`` by number.
        """
        changes = np.flatnonzero(batch.is_new & (batch.is_replacing | (batch.ops == 0) | (self._spec.type == "left")))
        bounds = (self._next, self._next + causes.height)
        source, subscribers, changed = self._subscriptions.meeting(messages, numbers, batch, changes, bounds)
        asked = np.flatnonzero(actions != LEAVE)
        found = np.full(len(asked), -1, np.int64)
        has_key = np.flatnonzero(numbers[asked] != NO_KEY)
        sequence = messages.get_column(POS).to_numpy()
        found[has_key] = batch.before(numbers[asked[has_key]], sequence[asked[has_key]])
        cause = np.concatenate([sequence[asked], batch.sequence[changed]]) - self._next
        order = stable_order(cause)
        is_ended = np.concatenate([actions[asked] == DELETE, np.zeros(len(changed), np.bool_)])
        left, right = np.concatenate([asked, subscribers]), np.concatenate([found, changed])
        own = apart(causes[cause[order]], ordinals(cause[order]))
        return self._written(source, batch, own, left[order], right[order], is_ended[order])

    def _written(
        self, source: pl.DataFrame, batch: LatestBatch, causes: pl.DataFrame, left: I64, right: I64, is_ended: Bools
    ) -> pl.DataFrame:
        """Put the columns of answers together (FK1, STRICT 10).

        Args:
            source: rows with the left side's columns.
            batch: the right table.
            causes: ``_pos``, ``_offset`` and ``_rank`` of each answer.
            left: row in ``source`` of each answer.
            right: row in ``batch`` of each answer, -1 for none; a delete stands for none but for its time.
            is_ended: where the left row is gone.
        """
        times = source.get_column(TS).to_numpy()[left]
        has_right = right >= 0
        times[has_right] = np.maximum(times[has_right], batch.times[right[has_right]])
        has_right[has_right] = batch.ops[right[has_right]] == 0
        is_delete = is_ended | ~has_right if self._spec.type == "inner" else is_ended
        payload = [name for name in self._carried if name not in (*self._spec.key, generation_column(self._spec.name))]
        return (
            source[[MEMBER, *self._spec.key, generation_column(self._spec.name)]][left]
            .rename({MEMBER: KEY_HASH})
            .hstack(causes)
            .hstack(taken_or_null(source.select(payload), np.where(is_delete, -1, left)).get_columns())
            .hstack(taken_or_null(batch.rows.select(self._spec.right_columns), np.where(has_right & ~is_delete, right, -1)))
            .with_columns(pl.Series(TS, times), pl.Series(OP, is_delete, pl.Int8))[empty_frame(self.schema).columns]
        )


class ForeignKeyResolver(Operator):
    """The third step, in tasks by left key: one result out of the answers of several tasks (FK2, STRICT 6, 8).

    Args:
        spec: what to do.
        answers: ``answer_schema``.
        state: what ``snapshot`` returned, or None.
        store: where it is kept which rows are shown, and of which generation.
    """

    def __init__(self, spec: ForeignKeyResult, answers: Schema, state: dict[str, Any] | None, store: SegmentStore) -> None:
        state = state or {}
        self.name = spec.name
        self.schema = answers.select(spec.columns)
        self._spec = spec
        self._hashing = store.hashing
        self._shown = LatestTable(answers.select(spec.key), spec.key, None, state.get("shown"), store, is_by_time=True)
        self._next: int = state.get("next", 0)

    def snapshot(self) -> dict[str, Any]:
        """State as JSON-able values; the segments it names are durable."""
        return {"next": self._next, "shown": self._shown.snapshot()}

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        """Handle answers.

        Returns:
            Changes of the result. Counted are answers to a left row that is no more, ``superseded``.
        """
        counters: Counters = {}
        if frame.is_empty():
            return OperatorOutput(empty_frame(self.schema), empty_late(), counters)
        batch = self._shown.open(
            frame.with_columns(
                self._hashing.of(frame, self._spec.key),
                pl.col(generation_column(self._spec.name)).alias(TS),  # the newest row is that of the newest generation
                pl.Series(POS, np.arange(self._next, self._next + frame.height)),
            )
        )
        add_counter(counters, self._spec.name, "superseded", batch.ignored)
        is_emitted = batch.is_new & (batch.is_replacing | (batch.ops == 0))
        rows = np.sort(batch.sequence[is_emitted]) - self._next
        self._next += frame.height
        self._shown.commit(batch)
        return OperatorOutput(frame[rows][empty_frame(self.schema).columns], empty_late(), counters)


def _with_key(frame: pl.DataFrame, hashes: pl.Series, counters: Counters, name: str, reason: str) -> pl.DataFrame:
    """Add the hash of the key; drop and count rows with a null in it (T6)."""
    frame = frame.with_columns(hashes)
    null_keys = hashes.null_count()
    add_counter(counters, name, reason, null_keys)
    return frame.filter(pl.col(KEY_HASH).is_not_null()) if null_keys else frame

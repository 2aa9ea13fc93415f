"""The subscriptions that a foreign key's task keeps: which left rows name which right row, and since when.

A subscription lasts from its message to the next one of the same left key and foreign key, so the right changes it sees are a range of
the right key's changes. What the messages are is said in ``foreign_key``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.types.types import Schema
from engine.frames.clocks import AFTER_ALL_TIME, I64
from engine.frames.frames import KEY_HASH, OP, POS
from engine.state.segments.ports import SegmentStore
from engine.state.sorted.keys import NO_KEY, Keys, tells_keys
from engine.state.sorted.latest_rows import INDEX_COLUMNS, LatestBatch, LatestIndex, arrival_codes
from engine.state.sorted.sorted_search import distinct, expand, numbered, search, stable_order

MEMBER: Final = "_member"
"""Hash of the left key, beside ``_key_hash``, which is the foreign key's in subscriptions."""


@dataclass(frozen=True, slots=True)
class _Spans:
    """Subscriptions by (foreign key, left key, place).

    Attributes:
        rows: row of each.
        keys: number of each one's foreign key.
        begins: place from which on it lasts.
        ends: place of the next message of the same keys.
    """

    rows: I64
    keys: I64
    begins: I64
    ends: I64


class Subscriptions:
    """Subscriptions of one task.

    Args:
        key: the left key's columns.
        foreign_key: the foreign key's columns.
        carried: the columns that are kept of a message, ``key`` among them.
        schema: the messages' columns.
        state: what ``snapshot`` returned, or None.
        store: where they live.
    """

    def __init__(
        self,
        key: tuple[str, ...],
        foreign_key: tuple[str, ...],
        carried: tuple[str, ...],
        schema: Schema,
        state: list[dict[str, Any]] | None,
        store: SegmentStore,
    ) -> None:
        compared = () if tells_keys([schema[name].polars for name in foreign_key]) else foreign_key
        self._key, self._compared = key, compared
        self.columns = (*INDEX_COLUMNS, MEMBER, *carried, *foreign_key)
        self._index = LatestIndex(store, state, (KEY_HASH, MEMBER), (*key, *compared))

    def snapshot(self) -> list[dict[str, Any]]:
        """Return the manifest and tell the store what it no longer names."""
        return self._index.snapshot()

    def append(self, messages: pl.DataFrame) -> None:
        """Take messages over: ``columns``, with a foreign key, newer than all before."""
        self._index.append(messages)

    def meeting(
        self, messages: pl.DataFrame, numbers: I64, batch: LatestBatch, changes: I64, bounds: tuple[int, int]
    ) -> tuple[pl.DataFrame, I64, I64]:
        """Find for each right change the left rows subscribed at its place.

        Args:
            messages: those of the batch, with ``columns``.
            numbers: of each one's foreign key in ``batch``, ``NO_KEY`` where it is null.
            batch: the right table.
            changes: rows of ``batch`` that must be answered, ascending.
            bounds: the batch's first place, and the one behind it.

        Returns:
            The messages with the kept subscriptions concerned behind them; its rows that meet a change, by left key; and the changes
            they meet, as rows of ``batch``.
        """
        keys = batch.numbers[changes]
        is_touched = np.zeros(len(batch.keys.hashes), np.bool_)
        is_touched[keys] = True
        stored = self._index.rows_of(distinct(batch.keys.hashes[is_touched]))
        source = pl.concat([messages, *stored], how="diagonal", rechunk=True)
        kept = source[messages.height :]
        columns = [kept.get_column(name) for name in self._compared]
        own_keys = np.append(numbers, batch.keys.numbers(kept.get_column(KEY_HASH).to_numpy(), columns))
        rows = np.flatnonzero(own_keys != NO_KEY)
        rows = rows[is_touched[own_keys[rows]]]
        spans = self._spans(source, rows, own_keys[rows])
        codes = arrival_codes(keys, batch.sequence[changes], *bounds)
        starts = search(codes, arrival_codes(spans.keys, spans.begins, *bounds))
        stops = search(codes, arrival_codes(spans.keys, spans.ends, *bounds))
        is_emitted = (source.get_column(OP).to_numpy()[spans.rows] == 0) & (stops > starts)
        rows, starts, stops = spans.rows[is_emitted], starts[is_emitted], stops[is_emitted]
        by_key = source[list(self._key)][rows].select(pl.arg_sort_by(*self._key)).to_series().to_numpy()
        rows, starts, stops = rows[by_key], starts[by_key], stops[by_key]
        return source, np.repeat(rows, stops - starts), changes[expand(starts, stops)]

    def _spans(self, source: pl.DataFrame, rows: I64, keys: I64) -> _Spans:
        """Say how long the subscriptions in some rows last, given the numbers of their foreign keys."""
        hashes, places = (source.get_column(name).to_numpy()[rows] for name in (MEMBER, POS))
        found, members, _ = numbered(hashes)
        if len(found) < len(rows):
            _, members = Keys.of(hashes, source[list(self._key)][rows].get_columns())
        order = np.argsort(places)
        for column in (members, keys):
            order = order[stable_order(column[order])]
        keys, members, places = keys[order], members[order], places[order]
        ends = np.full(len(order), AFTER_ALL_TIME)
        is_replaced = (keys[1:] == keys[:-1]) & (members[1:] == members[:-1])
        ends[:-1][is_replaced] = places[1:][is_replaced]
        return _Spans(rows[order], keys, places, ends)

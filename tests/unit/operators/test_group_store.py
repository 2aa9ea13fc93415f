"""State of groups: what is read, merged and released."""

from __future__ import annotations

import numpy as np
import polars as pl

from engine.operators.aggregation.group_store import HASH, GroupStore
from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.segment_list import MIN_MERGED, TINY_ROWS


class CountingStore(MemorySegmentStore):
    """Counts what is loaded and saved."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.saved_rows = 0

    def load(self, segment_id: str) -> pl.DataFrame:
        self.loads += 1
        return super().load(segment_id)

    def save(self, frame: pl.DataFrame) -> str:
        self.saved_rows += frame.height
        return super().save(frame)


def summed(rows: pl.DataFrame, is_all: bool) -> pl.DataFrame:
    return rows.group_by(HASH).agg(pl.col("n").sum()).filter((pl.col("n") != 0) | (not is_all))


def rows(*pairs: tuple[int, int]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={HASH: pl.UInt64, "n": pl.Int64}, orient="row")


def total(store: GroupStore, *hashes: int) -> int:
    return sum(part["n"].sum() for part in store.matching(np.array(hashes, np.uint64)))


def test_a_group_is_found_in_every_segment_that_holds_it() -> None:
    store = GroupStore(MemorySegmentStore(), summed, None)
    store.append(rows((7, 1), (3, 10), (9, 100)))
    store.append(rows((7, 2), (8, 1000)))
    assert [total(store, 7), total(store, 3, 8), total(store, 5)] == [3, 1010, 0]


def test_rows_of_tiny_segments_come_older_ones_first() -> None:
    store = GroupStore(MemorySegmentStore(), summed, None)
    for number in range(3):
        store.append(rows((9, number), (7, 10 + number)))
    found = pl.concat(store.matching(np.array([7, 8], np.uint64)))
    assert found["n"].to_list() == [10, 11, 12]


def test_a_segment_without_touched_hashes_is_not_loaded() -> None:
    segments = CountingStore()
    store = GroupStore(segments, summed, None)
    store.append(rows((10, 1), (20, 1)))
    store.append(rows((30, 1), (40, 1)))
    assert (total(store, 1, 25, 99), segments.loads) == (0, 0)
    assert (total(store, 20, 99), segments.loads) == (1, 1)


def test_small_segments_are_merged_and_released_and_survive_a_restart() -> None:
    segments = MemorySegmentStore()
    store = GroupStore(segments, summed, None)
    for n in range(MIN_MERGED):
        store.append(rows((1, n), (n + 2, 1)))
    state = store.snapshot()
    segments.purge()
    assert len(state) == len(segments.segment_ids) == 1
    assert total(GroupStore(segments, summed, state), 1, 4) == sum(range(MIN_MERGED)) + 1


def test_what_nothing_older_holds_may_be_forgotten() -> None:
    store = GroupStore(MemorySegmentStore(), summed, None)
    for _ in range(MIN_MERGED // 2):
        store.append(rows((1, 1)))
        store.append(rows((1, -1)))
    assert (store.rows, store.snapshot()) == (0, [])


def test_rows_are_rewritten_logarithmically_often() -> None:
    segments = CountingStore()
    store = GroupStore(segments, summed, None)
    batches, size = 64, TINY_ROWS
    for batch in range(batches):
        store.append(rows(*((batch * size + i, 1) for i in range(size))))
    assert segments.saved_rows <= 8 * batches * size
    assert len(store.snapshot()) <= 2 * MIN_MERGED

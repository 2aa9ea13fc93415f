"""Segments: what is written, merged, forgotten and released."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import named_segments
from engine.state.sorted.key_index import KeyIndex
from engine.state.sorted.keys import Keys
from engine.state.sorted.segment_list import MERGED_AT_ONCE, MIN_MERGED, TINY_ROWS, merge_start
from engine.state.sorted.sorted_search import expand, upper_bound


class CountingStore(MemorySegmentStore):
    """Counts the rows written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def save(self, frame: pl.DataFrame) -> str:
        self.written += frame.height
        return super().save(frame)


def versions(*rows: tuple[int, int, int], op: int = 0, keys: list[str] | None = None) -> pl.DataFrame:
    """Rows of (hash, time, position)."""
    schema = {"_key_hash": pl.UInt64, "_ts": pl.Int64, "_pos": pl.Int64}
    frame = pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(pl.lit(op, pl.Int8).alias("_op"))
    return frame if keys is None else frame.with_columns(pl.Series("key", keys))


def rows_of(index: KeyIndex, *hashes: int) -> list[tuple[int, ...]]:
    parts = index.ranges(Keys(np.array(hashes, np.uint64)))
    return [row for part in parts for row in part.select("_key_hash", "_ts", "_pos").rows()]


@pytest.mark.parametrize("rows", [1, 700])
def test_segments_stay_few_and_rows_are_rewritten_rarely(rows: int) -> None:
    store = CountingStore()
    index = KeyIndex(store, None, is_by_time=True)
    batches = 400
    for batch in range(batches):
        first = batch * rows
        index.append(versions(*((first + i, first + i, first + i) for i in range(rows))), horizon=-1)
    total = batches * rows
    assert index.rows == total
    assert len(index) <= MIN_MERGED + np.log2(max(total / TINY_ROWS, 2))
    assert store.written <= total * (2 + np.log2(total)) + batches * TINY_ROWS / 2


def test_merges_take_the_longest_run_whose_oldest_is_not_the_largest() -> None:
    assert merge_start([1_000_000, 1, 1, 1, 1, 1, 1]) == 1
    assert merge_start([1, 1, 1]) == 3
    assert merge_start([4_000, 2_000, 1_000, 1_000, 1_000, 1_000]) == 0


def test_a_lookup_takes_only_what_can_answer_for_its_times() -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=True)
    index.append(versions(*((7, ts, ts) for ts in range(0, 100, 10)), (8, 5, 200)), horizon=-1)
    [part] = index.ranges(Keys(np.array([7], np.uint64)), np.array([35]), np.array([52]))
    assert part["_ts"].to_list() == [30, 40, 50, 90]


def test_merging_forgets_what_ended_by_the_horizon_and_old_tombstones() -> None:
    store = MemorySegmentStore()
    index = KeyIndex(store, None, is_by_time=True)
    index.append(versions((1, 10, 0), (1, 20, 1), (2, 10, 2)), horizon=-1)
    index.append(versions((2, 30, 3), op=1), horizon=-1)
    for i in range(MIN_MERGED):
        index.append(versions((9, i, 4 + i)), horizon=50)
    assert rows_of(index, 1, 2) == [(1, 20, 1)]
    before = store.segment_ids
    manifest = index.snapshot()
    store.purge()
    assert store.segment_ids == named_segments(manifest)
    assert store.segment_ids < before


def test_a_tombstone_stays_while_an_older_segment_may_hold_what_it_hides() -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=True)
    index.append(versions(*((1, ts, ts) for ts in range(10 * TINY_ROWS))), horizon=-1)
    last = 10 * TINY_ROWS
    index.append(versions((1, last, last), op=1), horizon=-1)
    for i in range(MIN_MERGED - 1):
        index.append(versions((9, 2 * last + i, last + 1 + i)), horizon=2 * last)
    assert len(index) == 2
    assert rows_of(index, 1)[-1] == (1, last, last)


def test_an_index_by_arrival_keeps_the_last_row_of_each_key() -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=False)
    index.append(versions((1, 50, 0), (1, 10, 1), (2, 5, 2)), horizon=-1)
    index.append(versions((1, 7, 3)), horizon=-1)
    assert rows_of(index, 1, 2) == [(1, 10, 1), (2, 5, 2), (1, 7, 3)]
    for i in range(MIN_MERGED):
        index.append(versions((9, 0, 4 + i)), horizon=-1)
    assert rows_of(index, 1, 2) == [(1, 7, 3), (2, 5, 2)]


@pytest.mark.parametrize("is_by_time", [True, False])
def test_two_keys_of_one_hash_stay_apart_before_and_after_they_were_merged(is_by_time: bool) -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=is_by_time, key_columns=["key"])
    asked = Keys.of(np.array([1, 1], np.uint64), [pl.Series(["b", "a"])])[0]
    for i in range(2 * MIN_MERGED):
        index.append(versions((1, 0, 2 * i), (1, 0, 2 * i + 1), keys=["a", "b"]), horizon=-1)
        rows = [
            (asked.columns[0][int(number)], position)
            for part in index.find(asked)
            for number, position in zip(part.keys, part.frame["_pos"], strict=True)
        ]
        newest = {key: max(position for own, position in rows if own == key) for key in ("a", "b")}
        assert newest == {"a": 2 * i, "b": 2 * i + 1}
        assert index.rows == 2 * len(index)


def test_a_lookup_between_two_times_sees_past_the_rows_of_another_key_of_its_hash() -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=True, key_columns=["key"])
    index.append(versions((1, 10, 0), (1, 20, 1), (1, 30, 2), (1, 90, 3), keys=["a", "b", "b", "b"]), horizon=-1)
    asked = Keys.of(np.array([1], np.uint64), [pl.Series(["a"])])[0]
    [part] = index.ranges(asked, np.array([35]), np.array([52]))
    assert part["_ts"].to_list() == [10]


def test_a_large_merge_makes_one_run_of_several_segments() -> None:
    random, store = np.random.default_rng(3), MemorySegmentStore()
    index = KeyIndex(store, None, is_by_time=True)
    rows = MERGED_AT_ONCE // 4
    for batch in range(MIN_MERGED):
        hashes = random.integers(0, 2**64, rows, np.uint64)
        frame = pl.DataFrame({"_key_hash": hashes, "_ts": np.full(rows, batch), "_pos": np.arange(rows) + batch * rows})
        index.append(frame.with_columns(pl.lit(0, pl.Int8).alias("_op")), horizon=-1)
    state = index.snapshot()
    store.purge()
    assert [entry["is_continued"] for entry in state] == [False, True]
    assert state[0]["max_hash"] < state[1]["min_hash"]
    assert store.segment_ids == named_segments(state)
    again = KeyIndex(store, state, is_by_time=True)
    assert again.rows == MIN_MERGED * rows
    asked = np.sort(hashes[:100])
    assert pl.concat(again.ranges(Keys(asked)))["_key_hash"].to_list() == asked.tolist()
    for batch in range(1, MIN_MERGED):  # as few as these leave a run as large as it is alone
        again.append(versions((7, batch, MIN_MERGED * rows + batch)), horizon=-1)
    assert [entry["is_continued"] for entry in again.snapshot()[:2]] == [False, True]


def test_ranges_expand_and_bounds_are_found_inside_them() -> None:
    assert expand(np.array([5, 2, 9]), np.array([7, 2, 10])).tolist() == [5, 6, 9]
    assert expand(np.array([], np.int64), np.array([], np.int64)).tolist() == []
    values = np.array([1, 5, 9, 2, 2, 3])
    assert upper_bound(values, np.array([5, 0, 2]), np.array([0, 0, 3]), np.array([3, 3, 6])).tolist() == [2, 0, 5]


@pytest.mark.parametrize(("horizon", "kept"), [(19, [10, 20]), (20, [20])])
def test_a_version_is_kept_while_it_is_valid_at_the_horizon(horizon: int, kept: list[int]) -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=True)
    index.append(versions((1, 10, 0), (1, 20, 1)), horizon=-1)
    for i in range(MIN_MERGED - 1):
        index.append(versions((9, 100, 2 + i)), horizon=horizon)
    assert len(index) == 1
    assert [ts for _, ts, _ in rows_of(index, 1)] == kept


@pytest.mark.parametrize(("horizon", "is_kept"), [(10, True), (11, False)])
def test_a_tombstone_is_kept_until_the_horizon_has_passed_it(horizon: int, is_kept: bool) -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=True)
    index.append(versions((1, 10, 0), op=1), horizon=-1)
    for i in range(MIN_MERGED - 1):
        index.append(versions((9, 100, 1 + i)), horizon=horizon)
    assert bool(rows_of(index, 1)) == is_kept


def test_keys_with_an_old_tombstone_are_found_in_any_segment() -> None:
    index = KeyIndex(MemorySegmentStore(), None, is_by_time=True)
    index.append(versions(*((key, 50, key) for key in range(TINY_ROWS * 8)), (9_000, 50, 9_000)), 0)
    index.append(versions((3, 60, 10_000), (7, 99, 10_001), op=1), 0)
    index.append(versions((3, 90, 10_002), (5, 95, 10_003)), 0)
    asked = np.array([2, 3, 5, 7, 9_000, 9_001], np.uint64)
    assert index.deleted_before(asked, 80).tolist() == [3]
    assert index.deleted_before(asked, 100).tolist() == [3, 7]
    assert index.deleted_before(asked, 60).tolist() == []
    assert index.deleted_before(asked[:0], 100).tolist() == []

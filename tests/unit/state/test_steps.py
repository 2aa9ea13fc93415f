"""Merges in steps: groups and latest rows are the same as in a dictionary, and no step holds or saves more than it may."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
import pytest

from engine.operators.aggregation.group_store import HASH, GroupStore
from engine.state.segments.ports import named_segments
from engine.state.sorted.latest_rows import LatestIndex
from engine.state.sorted.segment_list import MIN_MERGED
from tests.unit.state.watched_store import WatchedStore

STEP_ROWS: Final = 4_000
BATCHES: Final = 60
KEYS: Final = 30_000


def hashes_of(keys: Any) -> Any:
    with np.errstate(over="ignore"):
        return keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def batches() -> list[Any]:
    random = np.random.default_rng(11)
    return [random.integers(0, KEYS, random.choice([1, 90, 1_500])) for _ in range(BATCHES)]


def test_groups_are_merged_step_by_step_and_add_up() -> None:
    merged: list[int] = []

    def summed(rows: pl.DataFrame, _is_all: bool) -> pl.DataFrame:
        merged.append(rows.height)
        return rows.group_by(HASH).agg(pl.col("n").sum())

    segments, counts = WatchedStore(), np.zeros(KEYS, np.int64)
    store = GroupStore(segments, summed, None, step_rows=STEP_ROWS)
    for keys in batches():
        store.append(pl.DataFrame({HASH: hashes_of(keys), "n": np.ones(len(keys), np.int64)}))
        np.add.at(counts, keys, 1)
        state = store.snapshot()
        segments.purge()
        assert segments.segment_ids == named_segments(state)
        store = GroupStore(segments, summed, state, step_rows=STEP_ROWS)
    found = pl.concat(store.matching(np.sort(hashes_of(np.arange(KEYS))))).group_by(HASH).agg(pl.col("n").sum())
    there = np.flatnonzero(counts)
    expected = pl.DataFrame({HASH: hashes_of(there), "n": counts[there]})
    assert found.sort(HASH).equals(expected.sort(HASH))
    assert sum(segments.saved) > STEP_ROWS * MIN_MERGED
    assert max(segments.saved) <= STEP_ROWS * 3 // 2
    assert max(merged) <= STEP_ROWS * 5 // 4
    assert sum(segments.saved) <= 8 * sum(map(len, batches()))


@pytest.mark.parametrize("deletes", [0.0, 0.5])
def test_the_latest_row_of_each_key_survives_merges_in_steps(deletes: float) -> None:
    random, segments, latest = np.random.default_rng(7), WatchedStore(), dict[int, tuple[int, int]]()
    index, position = LatestIndex(segments, None, step_rows=STEP_ROWS), 0
    for keys in batches():
        ops = (random.random(len(keys)) < deletes).astype(np.int8)
        places = position + np.arange(len(keys))
        columns = {"_key_hash": hashes_of(keys), "_ts": places, "_pos": places, "_op": ops}
        index.append(pl.DataFrame(columns))
        latest.update(zip(keys.tolist(), zip(places.tolist(), ops.tolist(), strict=True), strict=True))
        position += len(keys)
        state = index.snapshot()
        segments.purge()
        assert segments.segment_ids == named_segments(state)
        index = LatestIndex(segments, state, step_rows=STEP_ROWS)
    rows = pl.concat(index.rows_of(np.sort(hashes_of(np.arange(KEYS))))).sort("_key_hash", "_pos")
    newest = rows.unique("_key_hash", keep="last").filter(pl.col("_op") == 0)
    expected = [(int(hashes_of(np.array([key]))[0]), place) for key, (place, op) in latest.items() if op == 0]
    assert sorted(newest.select("_key_hash", "_pos").rows()) == sorted(expected)
    assert max(segments.saved) <= STEP_ROWS * 3 // 2

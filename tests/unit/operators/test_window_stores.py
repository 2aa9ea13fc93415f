"""State of windows and sessions: merges hold and save no more rows at once than a step has, and every row is found behind them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
import pytest

from engine.operators.windows.sessions.session_store import END, START, SessionStore
from engine.operators.windows.sliding.sliding_store import SEQ, SlidingStore
from engine.operators.windows.sliding.sliding_store import sorted_run as by_hash
from engine.operators.windows.window_store import HASH, NODE, WindowStore, sorted_run
from engine.state.segments.ports import named_segments
from engine.state.sorted import segment_list
from engine.state.sorted.segment_list import MIN_MERGED
from tests.unit.state.watched_store import WatchedStore

STEP_ROWS: Final = 4_000
BATCHES: Final = 8 * MIN_MERGED
ROWS: Final = 1_000


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is usual with half a million rows happens with a few thousand."""
    monkeypatch.setattr(segment_list, "MERGED_AT_ONCE", STEP_ROWS)


def hashes(batch: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.random.default_rng(batch).integers(0, 2**64, ROWS, np.uint64)


def test_open_sessions_are_merged_step_by_step() -> None:
    segments = WatchedStore()
    store = SessionStore(segments, [], None)
    for batch in range(BATCHES):
        own = hashes(batch % (BATCHES // 2))  # each session grows once
        times = {START: np.full(ROWS, 5), END: np.full(ROWS, 10 + batch)}
        store.append(pl.DataFrame({HASH: own, **times}), 0)
        state = store.snapshot()
        segments.purge()
        assert segments.segment_ids == named_segments(state)
        store = SessionStore(segments, [], state)
    assert max(segments.saved) <= STEP_ROWS * 3 // 2
    assert any(entry["is_continued"] for entry in state)
    asked = np.unique(np.concatenate([hashes(batch) for batch in range(BATCHES // 2)]))
    found = store.matching(asked, 0)
    assert found is not None
    assert found.height == BATCHES // 2 * ROWS
    assert found[END].to_numpy().min() == 10 + BATCHES // 2
    assert len(np.unique(store.due(10 + BATCHES - 2, 10 + BATCHES))) == 2 * ROWS
    assert store.earliest_end(10 + BATCHES // 2) == 10 + BATCHES // 2


def test_open_windows_are_merged_step_by_step_and_those_that_close_go_first() -> None:
    segments = WatchedStore()
    store = WindowStore(segments, lambda partials: partials, 1, None)
    for batch in range(BATCHES):
        nodes = np.arange(ROWS) % 10
        store.append(sorted_run(pl.DataFrame({NODE: nodes, HASH: hashes(batch)})), 0)
    assert max(segments.saved) <= STEP_ROWS * 3 // 2
    assert [sum(part.height for part in store.covering(window, window + 1)) for window in range(10)] == [
        BATCHES * ROWS // 10
    ] * 10
    own = hashes(3)
    assert sum(part.height for part in store.matching(np.arange(ROWS) % 10, own)) == ROWS
    before = store.rows
    store.append(pl.DataFrame({NODE: [9], HASH: pl.Series([1], dtype=pl.UInt64)}), 5)
    assert store.rows < before * 3 // 4
    assert store.earliest(5) == 5
    again = WindowStore(segments, lambda partials: partials, 1, store.snapshot())
    assert sum(part.height for part in again.covering(5, 10)) == BATCHES * ROWS // 2 + 1
    assert [ranges.tolist() for ranges in again.open_windows(5)] == [[5], [9]]


def test_reads_open_only_the_segments_that_can_hold_what_is_asked_for() -> None:
    segments = WatchedStore()
    store = WindowStore(segments, lambda partials: partials, 1, None)
    for batch in range(BATCHES):
        store.append(sorted_run(pl.DataFrame({NODE: np.arange(ROWS) % 10, HASH: hashes(batch)})), 0)
    held = store.snapshot()
    segments.loaded.clear()
    store.covering(0, 1)
    assert len(set(segments.loaded)) < len(held) // 2
    segments.loaded.clear()
    store.matching(np.array([4]), hashes(0)[4:5])
    assert len(set(segments.loaded)) < len(held) // 2


def test_records_of_sliding_windows_are_merged_step_by_step() -> None:
    segments = WatchedStore()
    store = SlidingStore(segments, None)
    for batch in range(BATCHES):
        records = {HASH: hashes(batch), "_ts": np.full(ROWS, batch), SEQ: np.arange(ROWS) + batch * ROWS}
        store.append(by_hash(pl.DataFrame(records)), 0)
    assert max(segments.saved) <= STEP_ROWS * 3 // 2
    asked = np.sort(hashes(7))
    found = pl.concat(store.matching(asked, np.full(ROWS, 0), np.full(ROWS, BATCHES)))
    assert sorted(found[HASH]) == asked.tolist()
    assert (found["_ts"] == 7).all()
    assert store.first_time(3) == 3
    store.append(by_hash(pl.DataFrame({HASH: asked[:1], "_ts": [BATCHES], SEQ: [BATCHES * ROWS]})), BATCHES)
    assert store.rows == 1

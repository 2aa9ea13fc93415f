"""Queues by time: what is taken, in which order, and what a merge writes and holds in memory."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import named_segments
from engine.state.sorted.segment_list import MIN_MERGED
from engine.state.sorted.time_queue import TimeQueue
from tests.examples import examples
from tests.unit.state.watched_store import WatchedStore

STEP_ROWS = 4_000


def waiting(*times: int) -> pl.DataFrame:
    return pl.DataFrame({"_ts": pl.Series(times, dtype=pl.Int64)})


def test_a_queue_gives_a_prefix_and_remembers_how_much_was_taken() -> None:
    store = MemorySegmentStore()
    queue = TimeQueue(store, None)
    queue.append(waiting(1, 3, 5, 9))
    queue.append(waiting(2, 3))
    assert [part["_ts"].to_list() for part in queue.take(3)] == [[1, 3], [2, 3]]
    assert queue.rows == 2
    state = queue.snapshot()
    assert store.purge() == 1
    again = TimeQueue(store, state)
    assert again.take(4) == []
    assert [part["_ts"].to_list() for part in again.take(9)] == [[5, 9]]
    assert again.rows == 0
    assert again.snapshot() == []


def test_a_merged_queue_keeps_arrival_order_at_equal_times() -> None:
    queue = TimeQueue(MemorySegmentStore(), None)
    for arrival in range(2 * MIN_MERGED):
        queue.append(waiting(arrival % 2, 5).with_columns(pl.lit(arrival).alias("n")))
        queue.take(0)
    taken = pl.concat(queue.take(5)).sort("_ts", maintain_order=True)
    assert taken.filter(pl.col("_ts") == 5)["n"].to_list() == list(range(2 * MIN_MERGED))
    assert taken.filter(pl.col("_ts") == 1)["n"].to_list() == list(range(1, 2 * MIN_MERGED, 2))


def numbered(first: int, times: list[int]) -> pl.DataFrame:
    """Rows in the order of time, numbered by arrival in that order."""
    return waiting(*sorted(times)).with_columns(n=pl.int_range(first, first + len(times), dtype=pl.Int64))


def checked(queue: TimeQueue, store: MemorySegmentStore) -> TimeQueue:
    """Go on from the state; only what it names is left in the store."""
    state = queue.snapshot()
    store.purge()
    assert store.segment_ids == named_segments(state)
    return TimeQueue(store, state, step_rows=STEP_ROWS)


BATCHES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 3), st.sampled_from([1, 7, 300, 1_500, 5_000]), st.integers(0, 30)),
    min_size=8,
    max_size=40,
)


@settings(deadline=None, max_examples=examples(60))
@given(batches=BATCHES, seed=st.integers(0, 2**32 - 1))
def test_rows_leave_by_time_and_then_by_arrival_wherever_merges_are_cut(
    batches: list[tuple[int, int, int, int]], seed: int
) -> None:
    random, store = np.random.default_rng(seed), MemorySegmentStore()
    queue, model, arrived, now = TimeQueue(store, None, step_rows=STEP_ROWS), np.empty((0, 2), np.int64), 0, 0
    for spread, rises, rows, behind in batches:
        now += rises
        times = now + random.integers(0, spread + 1, rows)
        frame = numbered(arrived, times.tolist())
        queue.append(frame)
        model, arrived = np.concatenate([model, frame.to_numpy()]), arrived + rows
        taken = [part.to_numpy() for part in queue.take(now - behind)]
        found = np.concatenate(taken) if taken else model[:0]
        is_due = model[:, 0] <= now - behind
        wanted, model = model[is_due], model[~is_due]
        assert found[np.argsort(found[:, 0], kind="stable")].tolist() == wanted[np.lexsort((wanted[:, 1], wanted[:, 0]))].tolist()
        queue = checked(queue, store)
        assert queue.rows == len(model)


@pytest.mark.parametrize("spread", [0, 1, 1_000_000], ids=["one time", "two times", "many times"])
def test_a_merge_saves_no_more_rows_at_once_than_a_step_has(spread: int) -> None:
    random, store = np.random.default_rng(5), WatchedStore()
    queue = TimeQueue(store, None, step_rows=STEP_ROWS)
    rows = STEP_ROWS // 5
    for batch in range(4 * MIN_MERGED):
        queue.append(numbered(batch * rows, random.integers(0, spread + 1, rows).tolist()))
    assert len(store.saved) > 4 * MIN_MERGED
    assert max(store.saved) <= STEP_ROWS * 5 // 4
    left = pl.concat(queue.take(spread)).sort("_ts", maintain_order=True)
    assert left.equals(left.sort("_ts", "n"))
    assert sorted(left["n"]) == list(range(4 * MIN_MERGED * rows))


def test_what_comes_in_the_order_of_time_is_hardly_rewritten() -> None:
    store = WatchedStore()
    queue = TimeQueue(store, None, step_rows=STEP_ROWS)
    rows, batches = STEP_ROWS // 2, 10 * MIN_MERGED
    for batch in range(batches):
        queue.append(numbered(batch * rows, list(range(batch * rows, (batch + 1) * rows))))
        queue.take(batch * rows // 2)
    assert sum(store.saved) <= 1.2 * rows * batches


def test_one_row_that_waits_long_does_not_keep_those_that_left_with_it_on_disk() -> None:
    store = MemorySegmentStore()
    queue = TimeQueue(store, None, step_rows=STEP_ROWS)
    for batch in range(10 * MIN_MERGED):
        queue.append(waiting(*[batch] * STEP_ROWS, 1_000_000))
        queue.take(batch)
        queue = checked(queue, store)
    assert sum(store.load(name).height for name in store.segment_ids) <= 2 * MIN_MERGED * STEP_ROWS

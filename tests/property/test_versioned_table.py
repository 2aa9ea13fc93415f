"""The versioned table equals a dictionary of all versions, however its steps are cut into batches and wherever it restarts."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import AFTER_ALL_TIME, BEFORE_ALL_TIME, Clock
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.versioned_table import MATCH_NAMES, VersionedTable
from tests.examples import examples
from tests.property.hashings import hashings
from tests.property.join_model import TableModel

COLUMNS = Schema((("key", STRING), ("value", STRING)))
KEYS = ("a", "b", "c")

times = st.integers(0, 30)
puts = st.tuples(st.just("put"), st.sampled_from(KEYS), times, st.sampled_from(["x", "y", None]))
reads = st.tuples(st.sampled_from(["as_of", "latest", "history"]), st.sampled_from(KEYS), times, times)
step = st.one_of(puts, puts, reads)
steps = st.lists(step, max_size=12) | st.lists(step, min_size=30, max_size=60)  # long ones are rare otherwise
Step = tuple[str, str, int, Any]


def expected(steps: list[Step], retention_ms: int | None) -> list[Any]:
    model = TableModel(retention_ms)
    results: list[Any] = []
    for kind, key, ts, more in steps:
        if kind == "put":
            accepted = model.put(key, more, ts)
            results.append((accepted, model.next_ts(key, ts) if accepted else None))
        elif kind == "history":
            results.append(model.history(key, min(ts, more), max(ts, more)))
        else:
            status, at, value = model.as_of(key, ts if kind == "as_of" else None)
            results.append((status, at, value, None if at is None else model.next_ts(key, at)))
    return results


class Batches:
    """Gives a table its time, batch after batch."""

    def __init__(self) -> None:
        self.time = BEFORE_ALL_TIME

    def clock(self, puts: pl.DataFrame) -> Clock:
        places, times = puts["_pos"].to_numpy(), puts["_ts"].to_numpy()
        clock = Clock(self.time).rising(places, times, self.time)
        self.time = clock.end
        return clock


def run(
    table: VersionedTable, steps: list[Step], first: int, batches: Batches, hashing: KeyHash = UNSEEDED, task: int | None = None
) -> list[Any]:
    """Run steps as one batch whose first position is ``first``; the table has the keys of one of two tasks, or all."""
    frame = pl.DataFrame(
        {
            "_pos": np.arange(first, first + len(steps)),
            "_ts": pl.Series([ts for _, _, ts, _ in steps], dtype=pl.Int64),
            "_op": pl.Series([int(more is None) for *_, more in steps], dtype=pl.Int8),
            "key": pl.Series([key for _, key, _, _ in steps], dtype=pl.String),
            "value": pl.Series([more if isinstance(more, str) else None for *_, more in steps], dtype=pl.String),
        }
    )
    frame = frame.with_columns(hashing.of(frame, ["key"]))
    kinds = np.array([kind for kind, *_ in steps])
    is_put = kinds == "put"
    clock = batches.clock(frame.filter(pl.Series(is_put)))
    if task is not None:
        own = np.array([KEYS.index(key) % 2 == task for _, key, _, _ in steps], np.bool_)
        steps = [each for each, is_own in zip(steps, own, strict=True) if is_own]
        frame, kinds, is_put = frame.filter(pl.Series(own)), kinds[own], is_put[own]
    batch = table.open(frame.filter(pl.Series(is_put)), clock)
    ends = iter(batch.put_valid_to().tolist())
    accepted = iter(batch.accepted.tolist())
    as_of = np.where(kinds == "latest", AFTER_ALL_TIME, frame["_ts"].to_numpy())
    probes = (frame["_key_hash"].to_numpy(), [frame["key"]], as_of, frame["_pos"].to_numpy())
    found, quick = batch.lookup(*probes, with_valid_to=True), batch.lookup(*probes)
    assert found.status.tolist() == quick.status.tolist()
    assert found.valid_to is not None
    results: list[Any] = []
    for i, (kind, _, ts, more) in enumerate(steps):
        if kind == "put":
            ok = next(accepted)
            results.append((ok, end(next(ends)) if ok else None))
        elif kind == "history":
            history = batch.history(
                int(frame["_key_hash"][i]), [frame["key"][i : i + 1]], min(ts, more), max(ts, more), int(frame["_pos"][i])
            )
            rows = history.versions.select("_ts", "value").rows()
            results.append([(*row, end(stop)) for row, stop in zip(rows, history.valid_to, strict=True)])
        elif found.rows[i] < 0:
            results.append((MATCH_NAMES[found.status[i]], None, None, None))
        else:
            row = found.versions.select("_ts", "value").row(int(found.rows[i]))
            assert row == quick.versions.select("_ts", "value").row(int(quick.rows[i]))
            results.append((MATCH_NAMES[found.status[i]], *row, end(found.valid_to[i])))
    table.commit(batch)
    return results


def end(valid_to: int) -> int | None:
    return None if valid_to == AFTER_ALL_TIME else int(valid_to)


@settings(max_examples=examples(120), deadline=None)
@given(
    steps=steps, retention_ms=st.integers(0, 25), cuts=st.sets(st.integers(0, 60)), is_single=st.booleans(), hashing=hashings()
)
def test_versioned_table_equals_the_model_in_every_slicing(
    steps: list[Step], retention_ms: int, cuts: set[int], is_single: bool, hashing: KeyHash
) -> None:
    store = MemorySegmentStore(hashing)
    table = VersionedTable(COLUMNS, ["key"], retention_ms, None, store)
    bounds = range(len(steps) + 1) if is_single else sorted({0, len(steps), *(cut for cut in cuts if cut < len(steps))})
    results: list[Any] = []
    batches = Batches()
    for start, stop in pairwise(bounds):
        results += run(table, steps[start:stop], start, batches, hashing)
        state = json.loads(json.dumps(table.snapshot()))
        store.purge()
        table = VersionedTable(COLUMNS, ["key"], retention_ms, state, store)
    assert results == expected(steps, retention_ms)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(puts, max_size=40),
    later=st.lists(puts, max_size=40),
    reads=st.lists(st.tuples(times, st.integers(0, 80)), max_size=10),
    hashing=hashings(),
)
def test_merging_segments_changes_no_answer(
    steps: list[Step], later: list[Step], reads: list[tuple[int, int]], hashing: KeyHash
) -> None:
    shifted = [(kind, key, ts + 40, value) for kind, key, ts, value in later]
    every = [*steps, *shifted, *(("as_of", KEYS[ts % 3], as_of, 0) for ts, as_of in reads)]
    store = MemorySegmentStore(hashing)
    one, many = (VersionedTable(COLUMNS, ["key"], 20, None, store) for _ in range(2))
    at_once = run(one, every, 0, Batches(), hashing)
    batches = Batches()
    singly = [result for i, step in enumerate(every) for result in run(many, [step], i, batches, hashing)]
    assert singly == at_once


@settings(max_examples=examples(60), deadline=None)
@given(steps=steps, retention_ms=st.integers(0, 25), cuts=st.sets(st.integers(0, 60)))
def test_the_keys_of_two_tasks_answer_as_those_of_one(steps: list[Step], retention_ms: int, cuts: set[int]) -> None:
    """V1: one clock for all keys of the table, whatever their tasks."""
    found: list[list[Any]] = []
    for task in (0, 1):
        table, batches = VersionedTable(COLUMNS, ["key"], retention_ms, None, MemorySegmentStore()), Batches()
        found.append([])
        for start, stop in pairwise(sorted({0, len(steps), *(cut for cut in cuts if cut < len(steps))})):
            found[-1] += run(table, steps[start:stop], start, batches, task=task)
    own = [iter(each) for each in found]
    assert [next(own[KEYS.index(key) % 2]) for _, key, _, _ in steps] == expected(steps, retention_ms)


def test_a_tombstone_whose_validity_reaches_into_the_retained_history_answers_deleted() -> None:
    steps: list[Step] = [
        ("put", "a", 0, "x"),
        ("put", "a", 5, None),
        ("put", "a", 20, "y"),
        ("as_of", "a", 12, 0),
        ("as_of", "a", 9, 0),
    ]
    table = VersionedTable(COLUMNS, ["key"], 10, None, MemorySegmentStore())
    assert [status for status, *_ in run(table, steps, 0, Batches())[3:]] == ["deleted", "history_expired"]


def test_a_tombstone_that_was_forgotten_as_the_latest_version_stays_so_whenever_segments_were_merged() -> None:
    steps: list[Step] = [("put", "a", 5, None), ("put", "b", 20, "y"), ("put", "a", 20, "z"), ("as_of", "a", 12, 0)]
    whole = VersionedTable(COLUMNS, ["key"], 10, None, MemorySegmentStore())
    apart = VersionedTable(COLUMNS, ["key"], 10, None, MemorySegmentStore())
    batches = Batches()
    found = [run(whole, steps, 0, Batches())[-1], [run(apart, [step], place, batches) for place, step in enumerate(steps)][-1][0]]
    assert [status for status, *_ in found] == ["no_version", "no_version"]

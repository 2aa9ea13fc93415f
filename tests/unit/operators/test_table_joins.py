"""The table-table join on literal changes: the tables of the reference (TT-4, TT-5, TT-8), keys, deletes, complete history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.expressions.types.types import BIGINT, INT, STRING, Schema
from engine.frames.clocks import AFTER_ALL_TIME
from engine.frames.hashing import key_hash
from engine.frames.places import place_order
from engine.operators.joins.table_table import TableTableJoiner
from engine.operators.operators import OperatorOutput
from engine.plan.operators.table_table_join import TableTableJoin
from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.version_search import MAX_LISTED, VersionSearch
from tests.batch_times import RunningTimes, unranked

LEFT = Schema((("l.id", INT), ("l.value", STRING)))
RIGHT = Schema((("r.id", BIGINT), ("r.value", STRING)))
INNER = TableTableJoin(
    "r", "inner", 4, ("l.id",), ("r.id",), ("l.id",), 100, 100, "latest", ("l.id", "l.value"), ("r.id", "r.value")
)  # fmt: skip

Change = tuple[str, int | None, str | None, int]


def side(changes: list[tuple[int, Change]], name: str, schema: Schema) -> pl.DataFrame:
    rows = [(pos, change) for pos, change in changes if change[0] == name]
    frame = pl.DataFrame(
        {
            "_pos": [pos for pos, _ in rows],
            "_ts": [change[3] for _, change in rows],
            "_op": [int(change[2] is None) for _, change in rows],
            "_key_hash": [None if change[1] is None else 0 for _, change in rows],
            "_offset": [pos for pos, _ in rows],
            f"{name}.id": [change[1] for _, change in rows],
            f"{name}.value": [change[2] for _, change in rows],
        },
        schema={
            "_pos": pl.Int64,
            "_ts": pl.Int64,
            "_op": pl.Int8,
            "_key_hash": pl.UInt64,
            "_offset": pl.Int64,
            **schema.polars(),
        },
    )
    return unranked(frame)


def process(joiner: TableTableJoiner, times: RunningTimes, changes: list[tuple[int, Change]]) -> OperatorOutput:
    """One batch of changes at their positions."""
    left, right = side(changes, "l", LEFT), side(changes, "r", RIGHT)
    return joiner.process(left, {4: right} if right.height else {}, times.at([left], {4: right}, is_table=True))


def told(spec: TableTableJoin, *changes: Change) -> list[tuple[Any, ...]]:
    """(position, time, left value, right value) of what one batch tells; a delete has ``None`` for its values."""
    placed = list(enumerate(changes))
    joiner = TableTableJoiner(spec, LEFT, RIGHT, None, MemorySegmentStore())
    output = process(joiner, RunningTimes(), placed)
    assert place_order(output.frame).tolist() == list(range(output.frame.height))
    rows = output.frame.select("_pos", "_ts", "_op", "l.value", "r.value").rows()
    return [(pos, ts, *(("delete",) if op else values)) for pos, ts, op, *values in rows]


def test_both_sides_are_read_at_their_latest() -> None:
    changes: list[Change] = [("l", 1, "a0", 0), ("l", 1, "a4", 4), ("r", 1, "b2", 2), ("r", 1, "b1", 1)]
    assert told(INNER, *changes) == [(2, 4, "a4", "b2")]


def test_out_of_order_change_of_an_unversioned_side_counts() -> None:
    changes: list[Change] = [("l", 1, "a4", 4), ("r", 1, "b2", 2), ("r", 1, "b1", 1)]
    assert told(replace(INNER, right_retention_ms=None), *changes) == [(1, 4, "a4", "b2"), (2, 4, "a4", "b1")]


def test_a_tombstone_at_the_latest_time_is_remembered() -> None:
    changes: list[Change] = [("r", 1, "b", 12), ("l", 1, "a", 12), ("l", 1, None, 12), ("l", 1, "old", 9)]
    assert told(INNER, *changes) == [(1, 12, "a", "b"), (2, 12, "delete")]


def test_nothing_is_deleted_twice_nor_what_never_was() -> None:
    changes: list[Change] = [("l", 1, None, 1), ("r", 1, "b", 2), ("l", 1, "a", 3), ("l", 1, None, 4), ("l", 1, None, 5)]
    assert told(INNER, *changes) == [(2, 3, "a", "b"), (3, 4, "delete")]


def test_right_join_keeps_right_rows_and_ignores_left_rows_alone() -> None:
    changes: list[Change] = [("l", 1, "a", 1), ("r", 1, "b", 2), ("l", 1, None, 3), ("r", 1, None, 4), ("l", 1, "a", 5)]
    spec = replace(INNER, type="right", key=("r.id",))
    assert told(spec, *changes) == [(1, 2, "a", "b"), (2, 3, None, "b"), (3, 4, "delete")]


def rows_of(type_: str, key: str) -> list[tuple[Any, ...]]:
    joiner = TableTableJoiner(replace(INNER, type=type_, key=(key,)), LEFT, RIGHT, None, MemorySegmentStore())  # type: ignore[arg-type]
    changes: list[tuple[int, Change]] = [
        (0, ("l", 1, "a", 1)),
        (1, ("r", 2**40, "b", 1)),
        (2, ("r", 1, "c", 2)),
        (3, ("l", 1, None, 2)),
        (4, ("r", 1, None, 2)),
        (5, ("r", 2**40, None, 2)),
    ]
    output = process(joiner, RunningTimes(), changes).frame
    assert output.schema["l.id"] == pl.Int32
    assert output.schema["r.id"] == pl.Int64
    return output.select("_op", pl.col(key).alias("key"), "l.id", "l.value", "r.id", "r.value").rows()


def test_an_outer_join_makes_a_key_and_leaves_the_columns_of_an_absent_side_null() -> None:
    assert rows_of("outer", "r.$key0") == [
        (0, 1, 1, "a", None, None),
        (0, 2**40, None, None, 2**40, "b"),
        (0, 1, 1, "a", 1, "c"),
        (0, 1, None, None, 1, "c"),
        (1, 1, None, None, None, None),
        (1, 2**40, None, None, None, None),
    ]


def test_a_left_join_keeps_the_left_key_and_leaves_the_right_one_null_where_there_is_no_right_row() -> None:
    assert [row[1:] for row in rows_of("left", "l.id")] == [
        (1, 1, "a", None, None),
        (1, 1, "a", 1, "c"),
        (1, 1, None, None, None),
    ]


def test_a_right_join_keeps_the_right_key_and_leaves_the_left_one_null_where_there_is_no_left_row() -> None:
    assert [row[1:] for row in rows_of("right", "r.id")] == [
        (2**40, None, None, 2**40, "b"),
        (1, 1, "a", 1, "c"),
        (1, None, None, 1, "c"),
        (1, None, None, 1, None),
        (2**40, None, None, 2**40, None),
    ]


def test_in_a_versioned_result_a_deleted_right_side_counts_for_the_time_of_what_the_left_row_becomes() -> None:
    spec = replace(INNER, type="left", is_result_versioned=True)
    changes: list[Change] = [("l", 1, "a", 10), ("r", 1, "b", 20), ("r", 1, None, 40), ("l", 1, "c", 30), ("l", 1, None, 35)]
    assert told(spec, *changes) == [
        (0, 10, "a", None),
        (1, 20, "a", "b"),
        (2, 40, "a", None),
        (3, 40, "c", None),  # at 30 it would stand behind what was told for 40, and never be read
        (4, 40, "delete"),
    ]
    assert told(replace(spec, is_result_versioned=False), *changes)[3:] == [(3, 30, "c", None), (4, 35, "delete")]


@pytest.mark.parametrize("left_retention_ms", [100, None])
def test_a_versioned_result_does_not_remember_deletes_for_ever(left_retention_ms: int | None) -> None:
    store = MemorySegmentStore()
    spec = replace(INNER, is_result_versioned=True, left_retention_ms=left_retention_ms)
    joiner = TableTableJoiner(spec, LEFT, RIGHT, None, store)
    times = RunningTimes()
    for key in range(200):
        for value in ("a", None):
            process(joiner, times, [(key, ("l", key, value, 50 * key))])
            process(joiner, times, [(key, ("r", key, value, 50 * key))])
    kept = joiner.snapshot()
    assert [sum(entry["rows"] for entry in kept[name]["versions"]) < 20 for name in ("left", "right")] == [True, True]


def test_unversioned_sides_do_not_keep_their_deletes_for_ever() -> None:
    store = MemorySegmentStore()
    joiner = TableTableJoiner(replace(INNER, left_retention_ms=None, right_retention_ms=None), LEFT, RIGHT, None, store)
    times = RunningTimes()
    for key in range(200):
        for value in ("a", None):
            process(joiner, times, [(key, ("l", key, value, key))])
            process(joiner, times, [(key, ("r", key, value, key))])
    kept = joiner.snapshot()
    assert [sum(entry["rows"] for entry in kept[name]["versions"]) < 20 for name in ("left", "right")] == [True, True]


def test_null_keys_and_expired_changes_are_counted_and_the_latter_kept() -> None:
    joiner = TableTableJoiner(INNER, LEFT, RIGHT, None, MemorySegmentStore())
    changes: list[tuple[int, Change]] = [
        (0, ("l", None, "a", 500)),
        (1, ("l", 1, "a", 200)),
        (2, ("l", 2, "b", 99)),
        (3, ("l", 2, "b", 100)),
    ]
    output = process(joiner, RunningTimes(), changes)
    assert output.counters == {("r", "null_key"): 1, ("r", "table_history_expired"): 1}
    assert output.late.select("input", "reason", "event_time_ms", "stream_time_ms", "offset").rows() == [
        ("r", "table_history_expired", 99, 200, 2)
    ]


def test_a_change_in_another_task_moves_the_table_time() -> None:
    joiner = TableTableJoiner(INNER, LEFT, RIGHT, None, MemorySegmentStore())
    changes: list[tuple[int, Change]] = [
        (0, ("l", 1, "a", 1)),
        (1, ("l", 2, "b", 200)),
        (2, ("r", 1, "c", 1)),
        (3, ("l", 1, "d", 2)),
    ]
    left, right = side(changes, "l", LEFT), side(changes, "r", RIGHT)
    moment = RunningTimes().at([left], {4: right}, is_table=True)
    output = joiner.process(left.filter(pl.col("l.id") == 1), {4: right}, moment)
    assert output.frame.select("_pos", "l.value", "r.value").rows() == [(2, "a", "c")]
    assert output.late.select("event_time_ms", "stream_time_ms", "offset").rows() == [(2, 200, 3)]


def test_complete_history_tells_again_every_version_that_a_late_change_alters() -> None:
    spec = replace(INNER, type="left", history="complete")
    changes: list[Change] = [("l", 1, "a0", 0), ("r", 1, "b10", 10), ("r", 1, "b20", 20), ("l", 1, "a5", 5), ("l", 1, None, 15)]
    assert told(spec, *changes) == [
        (0, 0, "a0", None),
        (1, 10, "a0", "b10"),
        (2, 20, "a0", "b20"),
        (3, 5, "a5", None),
        (3, 10, "a5", "b10"),
        (3, 20, "a5", "b20"),
        (4, 15, "delete"),
        (4, 20, "delete"),
    ]


def test_complete_history_ends_a_late_row_where_a_delete_was_not_worth_telling() -> None:
    spec = replace(INNER, history="complete")
    changes: list[Change] = [("l", 1, "a", 0), ("l", 1, None, 5), ("r", 1, "b", 3)]
    assert told(spec, *changes) == [(2, 3, "a", "b"), (2, 5, "delete")]


def test_complete_history_does_not_tell_versions_that_ended_before_the_horizon() -> None:
    spec = replace(INNER, history="complete", left_retention_ms=10)
    changes: list[Change] = [("l", 1, "a", 0), ("l", 1, "c", 95), ("l", 2, "x", 100), ("r", 1, "b20", 20), ("r", 1, "b10", 10)]
    assert told(spec, *changes) == [(3, 20, "a", "b20"), (3, 95, "c", "b20")]


def test_versions_between_are_found_in_parts_where_there_are_many() -> None:
    count = 1 + int(MAX_LISTED**0.5)
    keys = pl.DataFrame({"key": ["k"] * count})
    hashes = key_hash(keys, ["key"])
    frame = pl.DataFrame({"_key_hash": hashes, "_ts": np.arange(count), "_pos": np.arange(count)})
    search = VersionSearch(frame, hashes.unique().to_numpy(), 0, is_by_time=True)
    probes = np.zeros(count, np.int64)
    found, places = search.between(probes, probes - 1, np.full(count, AFTER_ALL_TIME), np.arange(count))
    assert np.bincount(found, minlength=count).tolist() == list(range(count))
    assert (np.diff(found) >= 0).all()
    assert places[-3:].tolist() == [count - 4, count - 3, count - 2]

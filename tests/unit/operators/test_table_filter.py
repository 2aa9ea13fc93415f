"""The filter over a table on literal changes."""

from __future__ import annotations

import polars as pl

from engine.expressions.types.types import BIGINT, STRING, Schema
from engine.frames.places import is_further
from engine.operators.operators import OperatorOutput
from engine.operators.rows.table_filter import LATE_END, TableFilterer
from engine.plan.operators.table_filter import TableFilter
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes, unranked

SCHEMA = Schema((("t.key", STRING), ("t.number", BIGINT)))
SPEC = TableFilter("kept", "t.number > 0", ("t.key",), 100)


def process(spec: TableFilter, *changes: tuple[str | None, int | None, int], is_delete: bool = False) -> OperatorOutput:
    frame = frame_of(*changes, is_delete=is_delete)
    moment = RunningTimes().at([frame], is_table=True)
    return TableFilterer(spec, SCHEMA, None, MemorySegmentStore()).process(frame, {}, moment)


def frame_of(*changes: tuple[str | None, int | None, int], is_delete: bool = False) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "_pos": range(len(changes)),
            "_ts": [ts for *_, ts in changes],
            "_op": [int(is_delete and i == len(changes) - 1) for i in range(len(changes))],
            "_key_hash": [None if key is None else 0 for key, *_ in changes],
            "_offset": range(len(changes)),
            "t.key": [key for key, *_ in changes],
            "t.number": [number for _, number, _ in changes],
        },
        schema={
            "_pos": pl.Int64,
            "_ts": pl.Int64,
            "_op": pl.Int8,
            "_key_hash": pl.UInt64,
            "_offset": pl.Int64,
            **SCHEMA.polars(),
        },
    )
    return unranked(frame)


def told(output: OperatorOutput) -> list[tuple[object, ...]]:
    return output.frame.select("_pos", "_ts", "_op", "t.key", "t.number").rows()


def test_a_row_that_fails_deletes_only_what_was_there() -> None:
    output = process(SPEC, ("a", -1, 5), ("a", 1, 6), ("a", -1, 7), ("a", -1, 8))
    assert told(output) == [(1, 6, 0, "a", 1), (2, 7, 1, "a", None)]


def test_a_condition_that_is_null_fails() -> None:
    assert told(process(SPEC, ("a", 1, 5), ("a", None, 6))) == [(0, 5, 0, "a", 1), (1, 6, 1, "a", None)]


def test_versioned_result_is_asked_as_of_the_failing_rows_own_time() -> None:
    output = process(SPEC, ("a", 1, 10), ("a", -1, 5), ("a", 2, 3), ("a", -1, 4))
    assert told(output) == [(0, 10, 0, "a", 1), (2, 3, 0, "a", 2), (2, 5, LATE_END, "a", None), (3, 4, 1, "a", None)]


def test_a_late_row_ends_where_a_delete_was_not_worth_telling() -> None:
    output = process(SPEC, ("a", -1, 10), ("a", 1, 5), ("a", 2, 7))
    further = is_further(output.frame["_rank"])
    assert further is not None
    assert further.tolist() == [False, True, False]
    assert told(output) == [(1, 5, 0, "a", 1), (1, 10, LATE_END, "a", None), (2, 7, 0, "a", 2)]


def test_unversioned_result_is_asked_for_the_last_by_arrival() -> None:
    unversioned = TableFilter("kept", "t.number > 0", ("t.key",), None)
    output = process(unversioned, ("a", 1, 10), ("a", -1, 5), ("a", -1, 11))
    assert told(output) == [(0, 10, 0, "a", 1), (1, 5, 1, "a", None)]
    assert output.counters == {("kept", "out_of_order"): 1}


def test_a_delete_passes_where_there_was_a_row() -> None:
    assert told(process(SPEC, ("a", 1, 5), ("a", None, 5), is_delete=True)) == [(0, 5, 0, "a", 1), (1, 5, 1, "a", None)]


def test_null_keys_and_expired_changes_are_counted_and_the_latter_kept() -> None:
    output = process(SPEC, (None, 1, 900), ("a", 1, 200), ("b", 1, 99))
    assert told(output) == [(1, 200, 0, "a", 1)]
    assert output.counters == {("kept", "null_key"): 1, ("kept", "table_history_expired"): 1}
    assert output.late.select("reason", "event_time_ms", "stream_time_ms").rows() == [("table_history_expired", 99, 200)]


def test_rows_that_fail_are_not_kept_for_ever_over_an_unversioned_table() -> None:
    operator = TableFilterer(TableFilter("kept", "t.number > 0", ("t.key",), None), SCHEMA, None, MemorySegmentStore())
    times = RunningTimes()
    for key in range(200):
        for number in (1, -1):
            frame = frame_of((f"k{key}", number, key))
            operator.process(frame, {}, times.at([frame], is_table=True))
    assert sum(entry["rows"] for entry in operator.snapshot()["passed"]["versions"]) < 20

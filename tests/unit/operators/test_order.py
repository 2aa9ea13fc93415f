"""T2: the total order of one batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import AFTER_ALL_TIME, NEVER, Rises
from engine.operators.tasks.order import BatchOrder, LaneReading
from engine.operators.tasks.slices import UPSTREAM, Slice, placed
from engine.plan.model import Feed, Input, Plan, RelationSchema, Stage
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.sources.feeds import NO_TS
from tests.batch_times import plan_reading
from tests.lane_readings import lane_readings

COLUMNS = Schema((("v", STRING),))


def source(index: int, alias: str, feed: str) -> Input:
    relation = RelationSchema(alias, "stream", COLUMNS, (), None, None, None, None, None)
    return Input(index, alias, relation, Feed(f"log:{feed}", "log", feed), ("v",), ())


def part(index: int, feed: str, rows: list[tuple[int, int, str]], partition: int = 0) -> Slice:
    """Rows are (offset, event time, value)."""
    frame = pl.DataFrame(rows, schema={"_offset": pl.Int64, "_ts": pl.Int64, "v": pl.String}, orient="row")
    frame = frame.with_columns(pl.lit(0, pl.Int8).alias("_op"), pl.lit(1, pl.UInt64).alias("_key_hash"))
    return Slice(index, f"log:{feed}", partition, frame)


def frames(slices: list[Slice], inputs: list[Input], first: int = 0) -> dict[int, pl.DataFrame]:
    order = BatchOrder.of(plan_reading(inputs), lane_readings(slices, inputs), first, {}, 0)
    return placed(slices, inputs, order)


def order(slices: list[Slice], inputs: list[Input], first: int = 0) -> str:
    """Values in total order, after checking that each has a position of its own."""
    found = frames(slices, inputs, first)
    rows = [row for frame in found.values() for row in frame.select("_pos", pl.last()).rows()]
    assert len({pos for pos, _ in rows}) == len(rows)
    assert min(pos for pos, _ in rows) >= first
    for frame in found.values():
        assert frame["_pos"].is_sorted()
    return "".join(value for _, value in sorted(rows))


A, B = source(0, "a", "x"), source(1, "b", "y")


def test_inputs_are_merged_by_head_event_time() -> None:
    slices = [part(0, "x", [(0, 1, "a"), (1, 3, "b"), (2, 5, "c")]), part(1, "y", [(0, 2, "p"), (1, 4, "q")])]
    assert order(slices, [A, B]) == "apbqc"


def test_an_input_is_never_reordered_inside() -> None:
    slices = [part(0, "x", [(0, 9, "a"), (1, 1, "b"), (2, 2, "c")]), part(1, "y", [(0, 5, "p"), (1, 9, "q")])]
    assert order(slices, [A, B]) == "pabcq"


def test_ties_go_to_the_declared_index_then_the_partition() -> None:
    slices = [part(1, "y", [(0, 5, "p")]), part(0, "x", [(0, 5, "b")], partition=1), part(0, "x", [(7, 5, "a")])]
    assert order(slices, [A, B]) == "abp"


def test_inputs_of_one_feed_keep_its_order_and_the_table_reads_a_record_first() -> None:
    first, second = source(0, "t", "x"), source(1, "s", "x")
    slices = [part(1, "x", [(0, 9, "a"), (2, 1, "d")]), part(0, "x", [(1, 3, "b"), (2, 1, "c")])]
    assert order(slices, [first, second]) == "abcd"


def test_a_shared_feed_has_the_smallest_index_of_its_readers() -> None:
    inputs = [source(0, "t", "x"), source(1, "m", "y"), source(2, "s", "x")]
    slices = [part(1, "y", [(0, 5, "p")]), part(2, "x", [(0, 5, "a")])]
    assert order(slices, inputs) == "ap"


def test_slices_of_a_partition_are_joined_by_offset() -> None:
    slices = [part(0, "x", [(2, 1, "c")]), part(0, "x", [(0, 4, "a"), (1, 2, "b")])]
    assert order(slices, [A, B], first=10) == "abc"


def test_payload_columns_get_the_inputs_alias_and_those_of_a_later_stage_keep_their_names() -> None:
    assert frames([part(0, "x", [(0, 1, "a")])], [A])[0].columns[-1] == "a.v"
    emitted = part(UPSTREAM, "", [(0, 1, "a")])
    placed_there = emitted.frame.select(
        "_ts", "_op", "_key_hash", "_offset", pl.lit(7).alias("_pos"), pl.lit(b"").alias("_rank"), "v"
    )
    assert frames([replace(emitted, frame=placed_there)], [A])[UPSTREAM].columns[-1] == "v"


def test_a_batch_without_records_has_no_frames() -> None:
    assert frames([], [A, B]) == {}
    assert frames([part(0, "x", [])], [A, B]) == {}


def test_each_task_knows_the_positions_of_its_own_records_alone() -> None:
    rows = [(0, 1, "a"), (1, 9, "b"), (2, 4, "c"), (3, 12, "d")]
    others = [part(1, "y", [(0, 5, "p"), (1, 10, "q")])]
    order = BatchOrder.of(plan_reading([A, B]), lane_readings([part(0, "x", rows), *others], [A, B]), 100, {}, 0)
    assert placed([part(0, "x", rows)], [A, B], order)[0]["_pos"].to_list() == [100, 102, 103, 105]
    assert placed([part(0, "x", rows[2:])], [A, B], order)[0]["_pos"].to_list() == [103, 105]


def test_one_reading_for_each_part_of_a_lane_gives_the_order_of_the_whole_lane() -> None:
    rows, other = [(0, 6, "a"), (1, 2, "b"), (2, 4, "c"), (3, 12, "d")], part(1, "y", [(0, 5, "p"), (1, 7, "q")])
    parts = [part(0, "x", rows[:2]), part(0, "x", rows[2:])]
    readings = [reading for each in (*parts, other) for reading in lane_readings([each], [A, B])]
    order = BatchOrder.of(plan_reading([A, B]), readings, 0, {}, 0)
    assert placed(parts, [A, B], order)[0]["_pos"].to_list() == [1, 2, 3, 5]
    assert order.heads(np.array([0, 1, 3, 4, 5, 6])).tolist() == [5, 6, 6, 7, 12, AFTER_ALL_TIME]


def test_time_rises_with_the_records_of_all_partitions() -> None:
    slices = [part(0, "x", [(0, 3, "a"), (1, 9, "c")]), part(0, "x", [(0, 6, "b"), (1, 6, "b")], partition=1)]
    order = BatchOrder.of(plan_reading([A]), lane_readings(slices, [A]), 10, {0: 1}, 2)
    clock = order.clock_of(0)
    assert (clock.begin, clock.end, order.end) == (1, 9, 16)
    assert clock.before(np.arange(10, 17)).tolist() == [1, 2, 3, 3, 6, 6, 9]
    assert clock.reached(np.array([0, 1, 2, 3, 4, 6, 9, 10])).tolist() == [10, 10, 10, 11, 13, 13, 15, NEVER]


def reading(
    feed: str, start: int, end: int, heads: list[tuple[int, int]], times: dict[int, list[tuple[int, int]]]
) -> LaneReading:
    """What a reader says of ``[start, end)``: heads and times are (offset, time)."""

    def columns(pairs: list[tuple[int, int]]) -> Rises:
        return np.array([offset for offset, _ in pairs], np.int64), np.array([time for _, time in pairs], np.int64)

    return LaneReading(
        f"log:{feed}", 0, end, columns([(start, NO_TS), *heads]), {key: columns(each) for key, each in times.items()}
    )


def test_a_lane_that_begins_with_a_rise_has_that_head_at_once() -> None:
    readings = [reading("x", 5, 7, [(5, 8)], {0: [(5, 8)]}), reading("y", 0, 2, [(0, 3)], {1: [(0, 3)]})]
    order = BatchOrder.of(plan_reading([A, B]), readings, 0, {}, 0)
    assert order.heads(np.arange(4)).tolist() == [3, 3, 8, 8]


def test_offsets_between_two_readings_take_no_positions() -> None:
    """A file is a range of 2**40 offsets: positions would be used up after four million files."""
    file = 1 << 40
    readings = [reading("x", n * file, n * file + 10, [(n * file, n)], {0: [(n * file, n)]}) for n in range(3)]
    order = BatchOrder.of(plan_reading([A]), readings, 100, {}, 0)
    assert order.end == 130
    assert order.positions(0, "log:x", 0, np.array([0, 9, file, 2 * file + 9])).tolist() == [100, 109, 110, 129]


def test_records_without_a_time_take_the_merge_nowhere() -> None:
    assert BatchOrder.of(plan_reading([A]), [reading("x", 0, 3, [], {0: []})], 0, {}, 0).newest_head is None
    assert BatchOrder.of(plan_reading([A]), [reading("x", 0, 3, [(2, 7)], {0: []})], 0, {}, 0).newest_head == 7


def test_what_an_edit_made_due_is_emitted_at_the_next_record_of_the_streams_and_not_of_what_shares_their_feed() -> None:
    table, stream = source(0, "t", "x"), source(1, "s", "x")
    slices = [part(0, "x", [(0, 9, "a"), (1, 10, "b")]), part(1, "x", [(2, 1, "c")])]
    readings = lane_readings(slices, [table, stream])
    order = BatchOrder.of(plan_reading([table, stream]), readings, 0, {1: 5}, 0)
    assert order.clock_of(1).reached(np.array([3])).tolist() == [5]


def test_a_record_that_moves_no_time_is_a_place_of_its_stream_all_the_same() -> None:
    early, late = part(0, "x", [(3, 9, "a")]), part(0, "x", [(4, 10, "b")])
    nameless = replace(early, frame=early.frame.with_columns(pl.lit(None, pl.UInt64).alias("_key_hash")))
    order = BatchOrder.of(plan_reading([A]), lane_readings([nameless, late], [A]), 0, {0: 5}, 0)
    assert order.clock_of(0).reached(np.array([3, 10])).tolist() == [0, 1]


def looking_up() -> Plan:
    table, stream = source(0, "t", "y"), source(1, "s", "x")
    join = StreamTableJoin("t", "inner", 0, ("s.v",), ("t.v",), None, None, "join", "null", ())
    return replace(plan_reading([table, stream]), stages=(Stage(0, COLUMNS, 1, (join,)),))


def test_a_table_that_is_looked_up_is_not_set_back_where_the_stream_has_waited() -> None:
    """T1: its time is made of its own records; T1d is for inputs whose changes make results."""
    waited = replace(reading("x", 0, 1, [(0, 8)], {1: [(0, 8)]}), waits={1: 5})
    order = BatchOrder.of(looking_up(), [reading("y", 0, 1, [(0, 9)], {0: [(0, 9)]}), waited], 0, {}, 0)
    assert [order.clock_of(index).end for index in (0, 1)] == [9, 8]
    assert [order.clock_of(index).wait_ms for index in (0, 1)] == [0, 5]


def test_silence_raises_the_time_of_streams_and_not_that_of_a_table_that_is_looked_up() -> None:
    order = BatchOrder.of(looking_up(), [], 10, {0: 5, 1: 5}, 7)
    assert [order.clock_of(index).end for index in (0, 1)] == [5, 12]
    assert (order.end, order.clock_of(0).is_silence(np.array([10])).tolist()) == (17, [False])

"""T2: the total order of one batch."""

from __future__ import annotations

import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.operators.tasks.order import UPSTREAM, Slice, order_batch
from engine.plan.model import Feed, Input, RelationSchema

COLUMNS = Schema((("v", STRING),))


def source(index: int, alias: str, feed: str) -> Input:
    relation = RelationSchema(alias, "stream", COLUMNS, (), None, None, None, None, None)
    return Input(index, alias, relation, Feed(f"log:{feed}", "log", feed), ("v",), ())


def part(index: int, feed: str, rows: list[tuple[int, int, str]], partition: int = 0) -> Slice:
    """Rows are (offset, event time, value)."""
    frame = pl.DataFrame(rows, schema={"_offset": pl.Int64, "_ts": pl.Int64, "v": pl.String}, orient="row")
    frame = frame.with_columns(pl.lit(0, pl.Int8).alias("_op"), pl.lit(1, pl.UInt64).alias("_key_hash"))
    return Slice(index, f"log:{feed}", partition, frame)


def order(slices: list[Slice], inputs: list[Input], first: int = 0) -> str:
    """Values in total order, after checking that positions have no gaps."""
    frames = order_batch(slices, inputs, first).frames
    rows = [row for frame in frames.values() for row in frame.select("_pos", pl.last()).rows()]
    assert sorted(pos for pos, _ in rows) == list(range(first, first + len(rows)))
    for frame in frames.values():
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
    assert order_batch([part(0, "x", [(0, 1, "a")])], [A], 0).frames[0].columns[-1] == "a.v"
    assert order_batch([part(UPSTREAM, "", [(0, 1, "a")])], [], 0).frames[UPSTREAM].columns[-1] == "v"


def test_a_batch_without_records_has_no_frames() -> None:
    assert order_batch([], [A, B], 0).frames == {}
    assert order_batch([part(0, "x", [])], [A, B], 0).frames == {}

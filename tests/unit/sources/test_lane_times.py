"""What a reader says of its lane: which records move time (T1a), and the bytes that every task gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.frames.clocks import BEFORE_ALL_TIME, NEVER
from engine.log.marks import NO_MARKS, Marks
from engine.operators.tasks.order import BatchOrder, LaneReading
from engine.plan.model import Feed, Input
from engine.sources.feeds import NO_TS
from engine.sources.lane_times import COMPRESSED_BYTES, LaneTimes, decode_reading, encode_reading
from tests.batch_times import plan_reading
from tests.unit.records.relations import relation

COLUMNS = relation({"k": "string", "n": "bigint"}, key=("k",), event_time=None)
STREAM = Input(0, "s", COLUMNS, Feed("log:r", "log", "r"), ("k", "n"), ("k",), time_key=('"k"',))
TABLE = replace(STREAM, relation=replace(COLUMNS, kind="table"))


def records(*rows: tuple[str | None, int, int], first: int = 10) -> pl.DataFrame:
    """Rows are (key, event time, operation)."""
    frame = pl.DataFrame(rows, schema={"k": pl.String, "_ts": pl.Int64, "_op": pl.Int8}, orient="row")
    return frame.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("_offset"), pl.col("_ts").alias("n"))


def times(source: Input, *pieces: pl.DataFrame) -> list[tuple[int, int]]:
    """Return what the reading has behind the place of the relation's first record."""
    lane = LaneTimes(None, 10)
    for piece in pieces:
        lane.add_records(source, piece)
    offsets, found = lane.reading("log:r", 0, 20).times[source.index]
    assert (int(offsets[0]), int(found[0])) == (10, BEFORE_ALL_TIME)
    return list(zip(offsets[1:].tolist(), found[1:].tolist(), strict=True))


@pytest.mark.parametrize(
    ("source", "rows", "expected"),
    [
        (STREAM, [("a", 5, 0), ("b", 4, 0), ("a", 7, 0)], [(10, 5), (12, 7)]),
        (STREAM, [(None, 5, 0), ("b", 4, 0)], [(11, 4)]),  # the null of a key is dropped (T6)
        (STREAM, [("a", 5, 1), ("b", 4, 0)], [(11, 4)]),  # so is a stream's null value
        (TABLE, [("a", 5, 1), (None, 9, 0), ("b", 7, 0)], [(10, 5), (12, 7)]),  # a table's is a delete
        (replace(STREAM, time_key=()), [(None, 5, 0)], [(10, 5)]),
        (replace(STREAM, start=6), [("a", 5, 0), ("a", 6, 0)], [(11, 6)]),  # not read before that time
        (replace(STREAM, where="n > 8"), [("a", 5, 0)], [(10, 5)]),  # a condition may leave it out
        (
            replace(STREAM, time_key=("nullif(k, 'a')",)),
            [("a", 5, 0), ("b", 4, 0)],
            [(11, 4)],
        ),
    ],
)
def test_a_record_moves_time_unless_its_stage_drops_it(source: Input, rows: list[Any], expected: list[tuple[int, int]]) -> None:
    assert times(source, records(*rows)) == expected


def test_the_pieces_of_a_split_are_one_lane() -> None:
    assert times(STREAM, records(("a", 5, 0)), records(("a", 3, 0), ("a", 9, 0), first=11)) == [(10, 5), (12, 9)]


@pytest.mark.parametrize("head", [None, BEFORE_ALL_TIME, 7])
def test_the_head_begins_where_the_batch_begins(head: int | None) -> None:
    lane = LaneTimes(head, 10)
    lane.add_times(np.array([11, 12, 13]), np.array([5, 9, 8]))
    offsets, found = lane.reading("log:r", 0, 20).heads
    expected = [(10, 7), (12, 9)] if head == 7 else [(10, NO_TS), (11, 5), (12, 9)]
    assert list(zip(offsets.tolist(), found.tolist(), strict=True)) == expected
    assert lane.head == 9


def of_rows(marks: Marks) -> BatchOrder:
    """The order of a batch that reads the rows 10 and 11 of a derived relation, whose event times tell nothing."""
    derived = replace(STREAM, feed=Feed("log:r", "log", "r", is_derived=True))
    lane = LaneTimes(None, 10)
    lane.add_times(np.array([10, 11]), np.array([3, 8]))
    lane.add_records(derived, records(("a", 99, 0), ("b", 98, 0)))
    lane.add_marks(marks, [derived])
    return BatchOrder.of(plan_reading([derived]), [lane.reading("log:r", 0, 12)], 0, {0: 1}, 0)


def test_rows_of_a_derived_relation_are_judged_by_its_marks_which_have_places_of_their_own() -> None:
    order = of_rows(Marks(np.array([10, 11]), np.array([3, 8]), np.array([2, 7])))
    assert order.positions(0, "log:r", 0, np.array([10, 11])).tolist() == [1, 3]
    assert order.clock_of(0).before(np.arange(5)).tolist() == [1, 2, 2, 7, 7]
    assert order.end == 4


def test_rows_without_marks_are_places_of_their_stream_all_the_same() -> None:
    order = of_rows(NO_MARKS)
    assert (order.clock_of(0).end, order.end) == (1, 2)
    assert order.clock_of(0).reached(np.array([0, 2])).tolist() == [0, NEVER]


@pytest.mark.parametrize(("marks", "waits"), [(NO_MARKS, {}), (Marks(np.array([11]), np.array([3]), np.array([2]), 0), {0: 0})])
def test_marks_say_also_that_their_rows_do_not_wait_any_more(marks: Marks, waits: dict[int, int]) -> None:
    """T1d: else others would be set back for ever after an edit of the producer."""
    lane = LaneTimes(None, 10)
    lane.add_records(STREAM, records(("a", 9, 0)))
    lane.add_marks(marks, [STREAM])
    assert decode_reading("log:r", 0, encode_reading(lane.reading("log:r", 0, 11))).waits == waits


@pytest.mark.parametrize("rises", [0, 1, COMPRESSED_BYTES])
def test_a_reading_comes_out_of_its_bytes_as_it_went_in(rises: int) -> None:
    ramp = np.arange(rises, dtype=np.int64)
    first = np.array([1 << 50]), np.array([BEFORE_ALL_TIME])
    reading = LaneReading("log:r", 3, (1 << 50) + 9, (ramp * 3, ramp * 7), {4: first, 2: (ramp, ramp * 5)})
    found = decode_reading("log:r", 3, encode_reading(reading))
    assert (found.feed_name, found.partition, found.end) == ("log:r", 3, reading.end)
    for (offsets, values), (read_offsets, read_values) in zip(
        [reading.heads, reading.times[2], reading.times[4]], [found.heads, found.times[2], found.times[4]], strict=True
    ):
        assert (read_offsets.tolist(), read_values.tolist()) == (offsets.tolist(), values.tolist())

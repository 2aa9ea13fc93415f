"""The order of rows at one place: what ranks are made of, and which rows get a place of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from engine.frames.places import apart, arrivals, is_further, levels, place_order, ranked


def frame_of(positions: Sequence[int], ranks: Sequence[bytes | None] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {"_pos": positions, "_rank": ranks or [None] * len(positions)}, schema={"_pos": pl.Int64, "_rank": pl.Binary}
    )


def test_records_as_they_were_read_stand_before_all_others_of_their_place() -> None:
    released = ranked(frame_of([5, 5]), 1, np.array([7, -2]))
    together = pl.concat([released, frame_of([5, 4])])
    assert place_order(together).tolist() == [3, 2, 1, 0]


def test_equal_ranks_stay_as_they_stand() -> None:
    frame = ranked(frame_of([3, 3, 2, 2]), 0, np.array([1, 1, 1, 1]))
    assert place_order(frame).tolist() == [2, 3, 0, 1]


def test_each_further_row_of_a_record_has_a_place_of_its_own() -> None:
    frame = apart(frame_of([5, 5, 5, 6]), np.array([0, 1, 2, 0]))
    further = is_further(frame.get_column("_rank"))
    assert further is not None
    assert further.tolist() == [False, True, True, False]
    again = apart(frame[[1, 1]], np.array([0, 1]))
    assert [len(level) for level in levels(again.get_column("_rank"))] == [5, 10]
    everything = pl.concat([frame, again[1:]])
    assert place_order(everything).tolist() == [0, 1, 4, 2, 3]


def test_rows_of_a_further_place_keep_it_when_they_are_ranked_there() -> None:
    frame = apart(frame_of([5, 5]), np.array([0, 1]))
    passed = ranked(frame, 0, frame.get_column("_rank"), within=levels(frame.get_column("_rank")))
    further = is_further(passed.get_column("_rank"))
    assert further is not None
    assert further.tolist() == [False, True]


def test_what_time_released_stays_at_one_place_however_often_it_passes() -> None:
    released = ranked(frame_of([5, 5]), 1, np.array([1, 1]))
    passed = ranked(released, 0, released.get_column("_rank"), within=levels(released.get_column("_rank")))
    for frame in (released, passed):
        assert apart(frame, np.array([0, 1])).equals(frame)
    own = frame_of([5, 5])
    own = ranked(own, 3, np.array([1, 1]), within=levels(own.get_column("_rank")))
    assert is_further(apart(own, np.array([0, 1])).get_column("_rank")) is not None


def test_arrivals_sort_by_place_and_rank() -> None:
    frame = ranked(frame_of([-3, 2, 2]), 1, np.array([9, 4, 3]))
    assert arrivals(frame).arg_sort().to_list() == [0, 2, 1]
    assert arrivals(frame_of([-3, 2, 1])).arg_sort().to_list() == [0, 2, 1]

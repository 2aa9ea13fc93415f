"""Which rows are the first ones at their places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from engine.frames.places import apart, begins_place


def frame_of(positions: Sequence[int]) -> pl.DataFrame:
    return pl.DataFrame({"_pos": positions, "_rank": [None] * len(positions)}, schema={"_pos": pl.Int64, "_rank": pl.Binary})


def test_rows_of_one_position_stand_at_one_place_unless_they_are_further_ones_of_a_record() -> None:
    assert begins_place(apart(frame_of([5, 5, 6, 6]), np.array([0, 1, 0, 0]))).tolist() == [True, True, True, False]
    assert begins_place(frame_of([5, 5, 7])).tolist() == [True, False, True]
    assert begins_place(frame_of([])).tolist() == []

"""Rows that are gathered, with nulls where there is none; rows in the order of a hash."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from engine.state.sorted.segment_list import ascending, taken_or_null

FRAME = pl.DataFrame(
    {
        "n": [1, 2, 3],
        "text": ["a", None, "c"],
        "exact": [Decimal("1.50"), Decimal("2.25"), None],
        "nested": [{"x": [1, 2]}, {"x": None}, None],
        "many": [[{"y": True}], [], None],
        "raw": [b"", b"x", b"y"],
    },
    schema_overrides={"exact": pl.Decimal(20, 2)},
)


@pytest.mark.parametrize("rows", [[0, 2, 1], [2, 2, -1, 0], [-1, -1], []])
@pytest.mark.parametrize("height", [3, 0])
def test_rows_are_gathered_with_nulls_for_those_that_are_missing(rows: list[int], height: int) -> None:
    frame = FRAME.head(height)
    wanted = [None if row < 0 or height == 0 else row for row in rows]
    expected = pl.DataFrame(
        {name: [None if row is None else frame[name].to_list()[row] for row in wanted] for name in frame.columns},
        schema=frame.schema,
    )
    assert_frame_equal(taken_or_null(frame, np.array([row if height else -1 for row in rows], np.int64)), expected)


def test_equal_hashes_stand_as_they_came() -> None:
    frame = pl.DataFrame({"hash": [3, 2**64 - 1, 3, 0], "place": [0, 1, 2, 3]}, schema_overrides={"hash": pl.UInt64()})
    assert ascending(frame, "hash")["place"].to_list() == [3, 0, 2, 1]
    in_order = frame[[3, 0, 2, 1]]
    assert ascending(in_order, "hash") is in_order

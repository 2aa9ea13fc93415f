"""What is done without a query plan gives what the plan gave."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from engine.frames.evaluation import Evaluation
from engine.frames.frames import constant, is_value, with_series, without

FRAME = pl.DataFrame({"a": [3, 1, None], "b": ["x", None, "z"], "c": [1.5, 2.5, 3.5]})


@pytest.mark.parametrize("rows", [3, 1, 0])
def test_expressions_give_one_value_for_each_row(rows: int) -> None:
    columns = [
        ("first", pl.col("b")),
        ("same", pl.col("a")),
        ("literal", pl.lit(7)),
        ("sum", pl.col("a") + pl.col("c")),
        ("again", pl.col("a").alias("other")),
    ]
    frame = FRAME.head(rows)
    given = pl.DataFrame(Evaluation(columns).of(frame))
    assert given.equals(frame.select(pl.lit(0).alias("_"), pl.col("a").alias("_a"), *(e.alias(n) for n, e in columns))[:, 2:])
    assert given.height == rows


def test_a_single_literal_has_a_value_for_each_row() -> None:
    assert Evaluation([("one", pl.lit(1))]).of(FRAME)[0].to_list() == [1, 1, 1]


def test_columns_are_replaced_where_they_stand_and_added_behind() -> None:
    own, further = pl.Series("b", [7, 8, 9]), pl.Series("d", [True, False, None])
    before = FRAME.clone()
    assert with_series(FRAME, further, own).equals(FRAME.with_columns(further, own))
    assert FRAME.equals(before), "the frame itself stays as it was"
    assert with_series(FRAME).equals(FRAME)
    with pytest.raises(pl.exceptions.ShapeError):
        with_series(FRAME, pl.Series("d", [1]))


def test_columns_are_left_out_where_they_are() -> None:
    assert without(FRAME, "b", "no such column").equals(FRAME.drop("b"))
    assert without(FRAME).equals(FRAME)


def test_values_are_told_from_nulls() -> None:
    assert is_value(FRAME["a"]).tolist() == [True, True, False]
    assert is_value(FRAME["c"]).tolist() == [True, True, True]
    assert is_value(FRAME["c"].clear()).tolist() == []


def test_a_constant_column_has_its_type() -> None:
    made = constant(4, 2, "n", np.int8)
    assert (made.name, made.dtype, made.to_list()) == ("n", pl.Int8(), [4, 4])
    assert constant(0, 0, "n").dtype == pl.Int64()

"""Key hashes are part of checkpoints: these values must never change."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from engine.core.hashing import HASH_OF_NOTHING, key_hash


def hashed(*columns: pl.Series) -> list[int | None]:
    frame = pl.DataFrame([column.alias(f"c{i}") for i, column in enumerate(columns)])
    result = key_hash(frame, frame.columns)
    assert result.name == "_key_hash"
    assert result.dtype == pl.UInt64
    return result.to_list()


def test_hashes_are_those_of_the_first_release() -> None:
    assert hashed(pl.Series(["x", "y"])) == [6665539201184043299, 13923454618160480178]
    assert hashed(pl.Series([0, 1, -1])) == [16294208416658607535, 10451216379200822465, 16490336266968443936]
    assert hashed(pl.Series([1.5])) == [15481881892811333770]
    assert hashed(pl.Series(["x"]), pl.Series([1])) == [3699656555015619367]


def test_equal_values_of_other_widths_hash_alike() -> None:
    assert hashed(pl.Series([7], dtype=pl.Int32)) == hashed(pl.Series([7], dtype=pl.Int64))
    assert hashed(pl.Series([0.0])) == hashed(pl.Series([-0.0]))
    decimals = [pl.Series([Decimal("100.5")], dtype=pl.Decimal(10, scale)) for scale in (1, 4)]
    assert hashed(decimals[0]) == hashed(decimals[1])


def test_trailing_zeros_before_the_point_count() -> None:
    hundred, one = (pl.Series([Decimal(text)], dtype=pl.Decimal(10, 2)) for text in ("100", "1"))
    assert hashed(hundred) != hashed(one)
    assert hashed(pl.Series([Decimal(100)], dtype=pl.Decimal(10, 0))) == hashed(hundred)


def test_a_null_in_any_column_gives_no_hash() -> None:
    assert hashed(pl.Series(["x", None]))[1] is None
    assert hashed(pl.Series([1, None]), pl.Series(["x", "y"]))[1] is None
    assert hashed(pl.Series(["x", "y"]), pl.Series([None, 2.5]))[0] is None


def test_the_order_of_columns_counts_and_so_does_where_text_is_split() -> None:
    assert hashed(pl.Series(["a"]), pl.Series(["b"])) != hashed(pl.Series(["b"]), pl.Series(["a"]))
    assert hashed(pl.Series(["ab"]), pl.Series(["c"])) != hashed(pl.Series(["a"]), pl.Series(["bc"]))


def test_a_key_without_columns_is_one_key() -> None:
    assert key_hash(pl.DataFrame({"a": [1, 2]}), []).to_list() == [HASH_OF_NOTHING, HASH_OF_NOTHING]


def test_dates_times_and_booleans_hash() -> None:
    values = [pl.Series([True]), pl.Series([date(2013, 1, 1)]), pl.Series([datetime(2013, 1, 1, tzinfo=UTC)]), pl.Series([b"x"])]
    assert len({hashed(value)[0] for value in values}) == len(values)


def test_a_nested_key_is_refused() -> None:
    with pytest.raises(TypeError):
        hashed(pl.Series([[1]]))


def test_no_rows_give_no_hashes() -> None:
    assert hashed(pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.Int64)) == []

"""Keys that share a hash have numbers of their own."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from engine.state.sorted.keys import NO_KEY, Keys, layers, tells_keys


def hashes(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_rows_with_one_hash_and_equal_columns_have_one_number() -> None:
    keys, numbers = Keys.of(hashes(9, 5, 9), [pl.Series(["a", "b", "a"])])
    assert keys.hashes.tolist() == [5, 9]
    assert numbers.tolist() == [1, 0, 1]


def test_keys_that_share_a_hash_stand_together_and_the_others_move_on() -> None:
    keys, numbers = Keys.of(hashes(5, 5, 7, 5, 2), [pl.Series(["a", "b", "c", "a", "d"]), pl.Series([1, 1, 1, 1, 1])])
    assert keys.hashes.tolist() == [2, 5, 5, 7]
    assert [column.to_list() for column in keys.columns] == [["d", "a", "b", "c"], [1, 1, 1, 1]]
    assert numbers.tolist() == [1, 2, 3, 1, 0]
    assert keys.are_shared.tolist() == [False, True, True, False]


def test_rows_of_other_keys_have_no_number() -> None:
    keys, _ = Keys.of(hashes(5, 5, 7), [pl.Series(["a", "b", "c"])])
    found = keys.numbers(hashes(7, 5, 5, 5, 6), [pl.Series(["c", "b", "a", "z", "a"])])
    assert found.tolist() == [2, 1, 0, NO_KEY, NO_KEY]


def test_no_keys_number_nothing() -> None:
    keys, numbers = Keys.of(hashes(), [pl.Series([], dtype=pl.String)])
    assert numbers.tolist() == []
    assert keys.numbers(hashes(5), [pl.Series(["a"])]).tolist() == [NO_KEY]


def test_whole_numbers_of_another_width_a_nan_and_either_zero_are_equal() -> None:
    narrow, wide = pl.Series([1, 1, 2], dtype=pl.Int32), pl.Series([2, 1, 1], dtype=pl.Int64)
    doubles = pl.Series([float("nan"), 0.0, 0.0]), pl.Series([-0.0, float("nan"), -0.0])
    keys, numbers = Keys.of(hashes(5, 5, 5), [narrow, doubles[0]])
    assert numbers.tolist() == [0, 1, 2]
    assert keys.numbers(hashes(5, 5, 5), [wide, doubles[1]]).tolist() == [2, 0, 1]


def test_a_column_that_state_lacks_equals_every_key() -> None:
    keys, _ = Keys.of(hashes(5), [pl.Series(["a"]), pl.Series(["x"])])
    assert keys.numbers(hashes(5), [pl.Series(["a"]), pl.Series([None], dtype=pl.String)]).tolist() == [0]


def test_a_row_that_lacks_a_part_does_not_stand_for_the_keys_of_its_hash() -> None:
    first, second = pl.Series([None, "a", "b", "a"]), pl.Series([2, 2, 2, 2])
    keys, numbers = Keys.of(hashes(5, 5, 5, 5), [first, second])
    assert [column.to_list() for column in keys.columns] == [["a", "b"], [2, 2]]
    assert numbers.tolist()[1:] == [0, 1, 0]
    assert keys.numbers(hashes(5, 5), [pl.Series(["b", "a"]), pl.Series([2, 2])]).tolist() == [1, 0]


def test_layers_keep_apart_what_shares_a_hash() -> None:
    found = layers([hashes(5, 5, 7, 5), hashes(1, 1, 1, 2)], [pl.Series(["a", "b", "c", "d"])])
    assert found.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("types", "is_told"),
    [
        ([], True),
        ([pl.Int64()], True),
        ([pl.Float64()], True),
        ([pl.Boolean()], True),
        ([pl.Datetime("us", "UTC")], True),
        ([pl.String()], False),
        ([pl.Binary()], False),
        ([pl.Decimal(10, 2)], False),
        ([pl.Int64(), pl.Int64()], False),
    ],
)
def test_the_hash_tells_keys_of_one_column_of_at_most_64_bits(types: list[pl.DataType], is_told: bool) -> None:
    assert tells_keys(types) is is_told

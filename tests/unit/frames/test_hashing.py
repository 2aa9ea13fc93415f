"""Key hashes are part of checkpoints: these values must never change."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from engine.frames.hashing import HASH_OF_NOTHING, KeyHash, key_hash


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


def test_nested_keys_have_these_hashes_in_every_version() -> None:
    lists = pl.Series([[], [None], [1, 2], [2, 1], None], dtype=pl.List(pl.Int64))
    structs = pl.Series([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None])
    assert hashed(lists) == [16294208416658607535, 16404305781709561122, 9560113412493113587, 11870541122167124266, None]
    assert hashed(lists.cast(pl.List(pl.Int32))) == hashed(lists)
    assert hashed(structs) == [9045420645044798130, 8326710745353623221, None]
    deep = pl.Series([[{"a": [1]}], [{"a": [1, None]}], [{"a": None}]])
    assert hashed(deep) == [10294871287760862156, 16100426028515924377, 8533387480951124903]


def test_a_nested_key_has_its_hash_wherever_it_stands_and_under_every_seed() -> None:
    values = [[], ["a"], ["a", None], [None, "a"], [""], [None], ["a", "a"]]
    for seed in (0, 7):
        whole = KeyHash(seed).of(pl.DataFrame({"k": values}), ["k"]).to_list()
        assert len(set(whole)) == len(values)
        alone = [
            KeyHash(seed).of(pl.DataFrame({"k": [value]}, schema={"k": pl.List(pl.String)}), ["k"]).item() for value in values
        ]
        assert alone == whole


def test_no_rows_give_no_hashes() -> None:
    assert hashed(pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.Int64)) == []


def test_seeded_hashes_are_those_of_the_first_release_with_seeds() -> None:
    frame = pl.DataFrame({"text": ["x"], "number": [1], "double": [1.5]})
    seeded = KeyHash(0x0123_4567_89AB_CDEF)
    assert [seeded.of(frame, [name])[0] for name in frame.columns] == [
        5414319214606716839,
        3519706209665466087,
        14978074127885142793,
    ]
    assert seeded.of(frame, ["text", "number"])[0] == 4693887512697770825


@pytest.mark.parametrize("values", [[1, 2, 2**62, -1], [0.5, -1.0, 2.5, 0.0], ["a", "b", "ab", ""]])
def test_every_seed_gives_other_hashes_and_equal_values_one(values: list[object]) -> None:
    frame = pl.DataFrame({"a": values * 2, "b": [1] * 8})
    for columns in (["a"], ["a", "b"], ["b", "a"]):
        found = [KeyHash(seed).of(frame, columns).to_list() for seed in (0, 1, 2**64 - 1)]
        assert all(hashes[:4] == hashes[4:] for hashes in found)
        assert len({value for hashes in found for value in hashes}) == 12


def test_keys_made_to_share_a_hash_do_so_under_no_seed() -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": [1, -5986597001865693592]})
    assert key_hash(frame, ["a", "b"]).n_unique() == 1
    assert [KeyHash(seed).of(frame, ["a", "b"]).n_unique() for seed in range(1, 100)] == [2] * 99


def test_long_texts_that_share_their_xxhash64_under_many_seeds_do_not_share_the_seeded_hash() -> None:
    """Two changes of a lane of xxHash64 that cancel out whatever the seed, with a probability of a half."""
    prime_1, prime_2, word = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 1 << 64
    inverse = pow(prime_2, -1, word)
    lanes = [[0] * 8 for _ in range(2)]
    lanes[1][0] = (1 << 63) * inverse % word
    lanes[1][4] = -(1 << 30) * prime_1 * inverse % word
    frame = pl.DataFrame({"k": [b"".join(lane.to_bytes(8, "little") for lane in each) for each in lanes]})
    xxhash64 = [frame.select(pl.col("k").nchash.xxhash64(seed=seed)).to_series().n_unique() for seed in range(64)]  # type: ignore[attr-defined]
    assert 1 in xxhash64
    assert [KeyHash(seed).of(frame, ["k"]).n_unique() for seed in range(1, 64)] == [2] * 63

"""A segment's directory of hashes finds the rows that a search finds."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.frames import KEY_HASH
from engine.state.sorted.hash_directory import DIRECTORY, DIRECTORY_FROM, runs_in, with_directory, without_directory
from engine.state.sorted.sorted_search import U64, distinct, runs_of
from tests.examples import examples

SPREADS = [2**20, 2**31, 2**32, 2**40, 2**63, 2**64 - 1]


def segment(hashes: U64) -> pl.DataFrame:
    return pl.DataFrame({KEY_HASH: np.sort(hashes), "row": np.arange(len(hashes))})


def drawn(seed: int, spread: int, crowd: int) -> U64:
    """Hashes below ``spread``, of which ``crowd`` rows share one and as many lie beside it."""
    random = np.random.default_rng(seed)
    spread_out = random.integers(0, spread, DIRECTORY_FROM + 10, dtype=np.uint64, endpoint=True)
    one = spread_out[0]
    return np.concatenate(
        [spread_out, np.repeat(one, crowd), np.minimum(one, np.uint64(spread - crowd)) + np.arange(crowd, dtype=np.uint64)]
    )


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    spread=st.sampled_from(SPREADS),
    crowd=st.sampled_from([0, 1, 3, 50, 9_000]),
    asked=st.sampled_from([1, 7, 5_000, 60_000]),
)
def test_a_directory_finds_the_runs_that_a_search_finds(seed: int, spread: int, crowd: int, asked: int) -> None:
    own = drawn(seed, spread, crowd)
    random = np.random.default_rng(seed + 1)
    others = random.integers(0, 2**64 - 1, asked, dtype=np.uint64, endpoint=True)
    near = random.choice(own, asked) + random.integers(0, 2, asked, dtype=np.uint64)  # present ones, and their neighbours
    wanted = distinct(np.concatenate([others, near]))
    frame = with_directory(segment(own))
    assert frame.columns[-1] == DIRECTORY
    found, plain = runs_in(frame, wanted), runs_of(np.sort(own), wanted)
    for each, expected in zip(found, plain, strict=True):
        assert np.array_equal(each, expected)


@pytest.mark.parametrize("hashes", [[0], [2**64 - 1], [5, 2**64 - 1]])
def test_rows_of_one_or_two_hashes_are_found_in_a_directory(hashes: list[int]) -> None:
    own = np.sort(np.resize(np.array(hashes, np.uint64), DIRECTORY_FROM))
    wanted = np.array([0, 5, 7, 2**64 - 1], np.uint64)
    for each, expected in zip(runs_in(with_directory(segment(own)), wanted), runs_of(own, wanted), strict=True):
        assert each.tolist() == expected.tolist()


@pytest.mark.parametrize("wanted", [[0, 1], [2**64 - 2, 2**64 - 1], [2**63]])
def test_hashes_outside_of_a_segment_or_between_its_rows_are_not_found(wanted: list[int]) -> None:
    own = np.concatenate([np.arange(10, DIRECTORY_FROM + 10, dtype=np.uint64), np.array([2**62, 2**63 + 1], np.uint64)])
    assert not len(runs_in(with_directory(segment(own)), np.array(wanted, np.uint64)).keys)


def test_a_directory_comes_off_again_and_few_rows_have_none() -> None:
    many, few = segment(np.arange(DIRECTORY_FROM, dtype=np.uint64)), segment(np.arange(9, dtype=np.uint64))
    assert without_directory(with_directory(many)).equals(many)
    assert with_directory(few).equals(few)
    assert without_directory(few).equals(few)

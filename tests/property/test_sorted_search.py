"""The fast ways of finding and ordering give what the plain ones give."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.state.sorted.running import grouped
from engine.state.sorted.sorted_search import (
    SORTED_FROM,
    are_shared,
    distinct,
    key_order,
    lower_bound,
    numbered,
    pair_order,
    runs_of,
    search,
    stable_order,
    time_order,
    upper_bound,
)
from tests.examples import examples

HASHES = st.one_of(st.integers(0, 5), st.integers(2**64 - 6, 2**64 - 1), st.sampled_from([2**40, 2**40 + 1, 2**63, 2**63 + 2]))


def unsigned(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


@settings(max_examples=examples(100), deadline=None)
@given(values=st.lists(HASHES, max_size=60))
def test_ordering_by_packed_numbers_is_stable(values: list[int]) -> None:
    hashes = unsigned(values)
    assert stable_order(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()
    wanted, starts, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    found, numbers, firsts = numbered(hashes)
    assert (found.tolist(), numbers.tolist(), firsts.tolist()) == (wanted.tolist(), inverse.tolist(), starts.tolist())
    assert distinct(hashes).tolist() == wanted.tolist()


@settings(max_examples=examples(100), deadline=None)
@given(pairs=st.lists(st.tuples(st.sampled_from([0, 3, 1 << 52, (1 << 52) + 1]), HASHES), max_size=60), is_merge=st.booleans())
def test_pairs_are_ordered_by_both_and_stable(pairs: list[tuple[int, int]], is_merge: bool) -> None:
    firsts, hashes = np.array([first for first, _ in pairs], np.int64), unsigned([each for _, each in pairs])
    rows = pair_order(firsts, hashes, is_merge=is_merge)
    assert rows.tolist() == np.lexsort((hashes, firsts)).tolist()
    counts = [pairs.count(pairs[row]) for row in rows.tolist()]
    assert are_shared(firsts[rows], hashes[rows]).tolist() == [count > 1 for count in counts]


@settings(max_examples=examples(50), deadline=None)
@given(times=st.lists(st.integers(-(2**50), 2**50), max_size=40))
def test_times_before_all_others_come_first(times: list[int]) -> None:
    assert time_order(np.array(times, np.int64)).tolist() == np.argsort(np.array(times, np.int64), kind="stable").tolist()


@settings(max_examples=examples(50), deadline=None)
@given(ranges=st.lists(st.tuples(st.lists(HASHES, max_size=8), HASHES), min_size=1, max_size=8))
def test_bounds_are_found_inside_each_range(ranges: list[tuple[list[int], int]]) -> None:
    values = unsigned([each for own, _ in ranges for each in sorted(own)])
    stops = np.cumsum([len(own) for own, _ in ranges])
    starts, wanted = stops - [len(own) for own, _ in ranges], unsigned([each for _, each in ranges])
    low = [sum(each < limit for each in own) for own, limit in ranges]
    high = [sum(each <= limit for each in own) for own, limit in ranges]
    assert (lower_bound(values, wanted, starts, stops) - starts).tolist() == low
    assert (upper_bound(values, wanted, starts, stops) - starts).tolist() == high


@settings(max_examples=examples(100), deadline=None)
@given(own=st.lists(HASHES, min_size=1, max_size=60), wanted=st.lists(HASHES, min_size=1, max_size=20))
def test_the_runs_of_some_keys_are_all_their_rows(own: list[int], wanted: list[int]) -> None:
    hashes, keys = unsigned(sorted(own)), distinct(unsigned(wanted))
    runs = runs_of(hashes, keys)
    found = {int(keys[key]): list(range(start, stop)) for key, start, stop in zip(*(each.tolist() for each in runs), strict=True)}
    assert list(found) == sorted(found)
    assert found == {key: np.flatnonzero(hashes == np.uint64(key)).tolist() for key in keys.tolist() if key in own}


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=st.lists(st.tuples(HASHES, st.integers(0, 3), st.integers(0, 9)), max_size=60),
    is_by_time=st.booleans(),
    is_merge=st.booleans(),
)
def test_rows_are_ordered_by_hash_time_and_position(rows: list[tuple[int, int, int]], is_by_time: bool, is_merge: bool) -> None:
    hashes = unsigned([each for each, _, _ in rows])
    times, positions = np.array([row[1:] for row in rows], np.int64).reshape(-1, 2).T
    order = key_order(hashes, times if is_by_time else None, positions, is_merge=is_merge)
    columns = (hashes, times, positions) if is_by_time else (hashes, positions)
    wanted = np.lexsort(columns[::-1])
    for column in columns:
        assert column[order.rows].tolist() == column[wanted].tolist()
    assert sorted(order.rows.tolist()) == list(range(len(rows)))
    assert order.is_same.tolist() == [i > 0 and hashes[wanted[i]] == hashes[wanted[i - 1]] for i in range(len(rows))]


@pytest.mark.parametrize("side", ["left", "right"])
def test_many_needles_in_no_order_are_found_as_few_are(side: str) -> None:
    random = np.random.default_rng(5)
    ascending, wanted = np.sort(random.integers(0, 500, 300)), random.integers(-5, 505, 2 * SORTED_FROM)
    assert search(ascending, wanted, side).tolist() == np.searchsorted(ascending, wanted, side).tolist()  # type: ignore[arg-type,call-overload]


@settings(max_examples=examples(100), deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None])), max_size=30))
def test_groups_of_one_hash_are_kept_apart(rows: list[tuple[int, str | None]]) -> None:
    frame = pl.DataFrame(rows, schema={"h": pl.UInt64, "g": pl.String}, orient="row").with_row_index("row")
    found, groups = grouped(frame, "h", ["g"])
    parts = [
        part["row"].to_list() for _, part in found.with_columns(pl.Series("id", groups.ids)).group_by("id", maintain_order=True)
    ]
    wanted = [part["row"].to_list() for _, part in frame.group_by("h", "g", maintain_order=True)]
    assert sorted(parts) == sorted(wanted)


@settings(max_examples=examples(50), deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5), st.sampled_from([0, 2**61])), max_size=20))
def test_the_latest_time_of_a_group_runs_with_it(rows: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame({"h": pl.Series([row[0] for row in rows], dtype=pl.UInt64), "t": [row[1] + row[2] for row in rows]})
    found, groups = grouped(frame.cast({"t": pl.Int64}), "h", [])
    assert groups.latest(found["t"].to_numpy()).tolist() == found.select(pl.col("t").cum_max().over("h"))["t"].to_list()

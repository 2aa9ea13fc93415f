"""Searching versions equals looking at every one, also where most of them were put after the probe."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.state.sorted.version_search import VersionSearch
from tests.examples import examples

FAR = 253_402_300_799_999

versions = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, 3, 4, FAR])), min_size=1, max_size=120)
probes = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 3, 4, 5, FAR]), st.integers(0, 120)), min_size=1, max_size=40
)


def search_of(found: list[tuple[int, int]], first_new: int, key_count: int = 4) -> VersionSearch:
    frame = pl.DataFrame(
        {
            "_key_hash": pl.Series([key for key, _ in found], dtype=pl.UInt64),
            "_ts": pl.Series([ts for _, ts in found], dtype=pl.Int64),
            "_pos": np.arange(len(found)),
        }
    )
    return VersionSearch(frame, np.arange(key_count, dtype=np.uint64), first_new, is_by_time=True)


@settings(max_examples=examples(150), deadline=None)
@given(found=versions, probes=probes, key_count=st.sampled_from([4, 20_000]))
def test_as_of_finds_the_greatest_time_put_before_the_probe(
    found: list[tuple[int, int]], probes: list[tuple[int, int, int]], key_count: int
) -> None:
    search = search_of(found, 0, key_count)
    keys, times, positions = (np.array(column, np.int64) for column in zip(*probes, strict=True))
    places = search.as_of(keys, times, positions)
    for place, (key, as_of, position) in zip(places, probes, strict=True):
        seen = [(ts, row) for row, (own, ts) in enumerate(found) if own == key and ts <= as_of and row < position]
        assert (search.rows[place] if place >= 0 else None) == max(seen, default=(None, None))[1]
    latest = search.latest(keys, positions)
    for place, (key, _, position) in zip(latest, probes, strict=True):
        seen = [(ts, row) for row, (own, ts) in enumerate(found) if own == key and row < position]
        assert (search.rows[place] if place >= 0 else None) == max(seen, default=(None, None))[1]


@pytest.mark.parametrize("count", [1_000, 65_537])
def test_probes_before_every_put_of_a_long_run_find_the_old_version(count: int) -> None:
    found = [(0, 0), *((0, ts) for ts in range(1, count))]
    search = search_of(found, 1)
    positions = np.arange(1, count)
    places = search.as_of(np.zeros(count - 1, np.int64), np.full(count - 1, FAR), positions)
    assert search.rows[places].tolist() == list(range(count - 1))

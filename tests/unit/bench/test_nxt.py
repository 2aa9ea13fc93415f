"""The benchmark's input equals the published definition, and its judges see what is wrong."""

from __future__ import annotations

import numpy as np
import polars as pl

from tests.bench.nxt import BASE_MS, check_values, generate, replay, true_version
from tests.bench.oracle import judge_join, judge_windows


def test_the_generator_gives_the_published_check_values() -> None:
    assert check_values()


def test_the_common_order_holds_every_record_once() -> None:
    bids, versions, order = replay("tiny")
    assert sorted(order[order >= 0]) == list(range(len(bids.ts)))
    assert sorted(-1 - order[order < 0]) == list(range(len(versions.ts)))


def test_the_judge_of_joins_counts_wrong_missing_twice_and_absent() -> None:
    bids, _ = generate("tiny")
    right = true_version(bids.auction, bids.ts)
    versions = pl.Series([None if version < 0 else version for version in right.tolist()], dtype=pl.Int64)
    numbers = pl.Series(bids.number)
    perfect = judge_join("tiny", numbers, versions)
    assert (perfect.wrong, perfect.missing, perfect.absent) == (0, 0, 0)
    known = int(np.flatnonzero(right > 0)[0])
    spoiled = versions.clone()
    spoiled[known] = right[known] - 1
    assert judge_join("tiny", numbers, spoiled).wrong == 1
    spoiled[known] = None
    assert judge_join("tiny", numbers, spoiled).missing == 1
    assert judge_join("tiny", numbers[1:], versions[1:]).absent == 1


def test_the_judge_of_windows_knows_what_one_task_would_count() -> None:
    nothing = pl.DataFrame(schema={"key": pl.Int64, "start": pl.Int64, "count": pl.Int64})
    expected = judge_windows("tiny", nothing, "auction", 10_000, 5_000)
    assert (expected.rows, expected.equal) == (0, 0)
    assert 0 < expected.expected_counted < 46_000
    one = pl.DataFrame({"key": [0], "start": [BASE_MS], "count": [-1]})
    assert judge_windows("tiny", one, "auction", 10_000, 5_000).equal == 0

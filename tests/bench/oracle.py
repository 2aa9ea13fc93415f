"""What is right: the version each bid should have met, and which bids an hour-glass of grace still counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tests.bench.nxt import BASE_MS, generate, replay, true_version

# reference: wrong or missing versions on the small input under plain KIP-923 rules (one task, late records joined at once)
PUBLISHED_WRONG = {0: 98_719, 1: 83_326, 5: 57_041, 10: 36_857, 30: 12_150, 60: 6_662, 120: 3_758, 180: 0}


@dataclass(frozen=True, slots=True)
class JoinQuality:
    """How good joined bids are. ``wrong`` and ``missing`` count only bids whose key already had a version at their time."""

    rows: int
    distinct: int
    wrong: int
    missing: int
    absent: int


def judge_join(size: str, numbers: pl.Series, versions: pl.Series) -> JoinQuality:
    """Compare joined bids (``n``, ``version``; null = no version) with the truth."""
    bids, _ = generate(size)
    wanted = true_version(bids.auction, bids.ts)
    place = np.searchsorted(bids.number, numbers.to_numpy())
    want = wanted[place]
    got = versions.fill_null(-1).to_numpy()
    counted = want >= 0
    return JoinQuality(
        rows=len(numbers),
        distinct=numbers.n_unique(),
        wrong=int((counted & (got >= 0) & (got != want)).sum()),
        missing=int((counted & (got < 0)).sum()),
        absent=len(bids.ts) - numbers.n_unique(),
    )


@dataclass(frozen=True, slots=True)
class WindowQuality:
    """How many bids are counted in final windows, and whether each window has the oracle's count."""

    rows: int
    counted: int
    expected_rows: int
    expected_counted: int
    equal: int


def judge_windows(size: str, got: pl.DataFrame, key: str, size_ms: int, grace_ms: int) -> WindowQuality:
    """Compare final counts (columns ``key``, ``start``, ``count``; starts with ``BASE_MS``) with one stream time in arrival order."""
    bids, _, _ = replay(size)
    keys = bids.auction if key == "auction" else bids.bidder
    frame = pl.DataFrame({"key": keys, "ts": bids.ts}).with_columns(
        start=pl.col("ts") // size_ms * size_ms, stream_time=pl.col("ts").cum_max()
    )
    end = pl.col("start") + size_ms + grace_ms
    expected = (
        frame.filter((end > pl.col("stream_time")) & (end <= frame["stream_time"].max()))
        .group_by("key", "start")
        .agg(count=pl.len().cast(pl.Int64))
    )
    both = got.with_columns(start=pl.col("start") - BASE_MS).join(expected, on=["key", "start"], suffix="_expected")
    return WindowQuality(
        rows=len(got),
        counted=int(got["count"].sum()),
        expected_rows=len(expected),
        expected_counted=int(expected["count"].sum()),
        equal=len(both.filter(pl.col("count") == pl.col("count_expected"))),
    )

"""What is right: the version each bid should have met, which bids an hour-glass of grace still counts, and what a merge counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tests.bench.nxt import BASE_MS, generate, replay, true_version

# reference: wrong or missing versions on the small input under plain KIP-923 rules (one task, late records joined at once)
PUBLISHED_WRONG = {0: 98_719, 1: 83_326, 5: 57_041, 10: 36_857, 30: 12_150, 60: 6_662, 120: 3_758, 180: 0}

_HEAD = "head"


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


@dataclass(frozen=True, slots=True)
class Finals:
    """Final windows beside those of the merge: its own count, by the rules.

    Attributes:
        expected: windows that the merge makes final.
        equal: of them, those that are there with its count.
        wrong: those that are there with another count.
        missing: those that are not there.
        extra: windows that the merge does not make final, or that are there again.
    """

    expected: int
    equal: int
    wrong: int
    missing: int
    extra: int

    @property
    def share(self) -> float:
        """Of the merge's windows, those that are right."""
        return self.equal / self.expected

    @property
    def is_exact(self) -> bool:
        return not (self.wrong or self.missing or self.extra)

    def __str__(self) -> str:
        share = int(self.share * 10_000) / 100  # 100.00 is said of all alone
        return f"{share:.2f} % of the merge's own: {self.wrong:,} wrong, {self.missing:,} missing, {self.extra:,} extra of {self.expected:,}"


def merge(partitions: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Put records into the order T2: by the running maximum of ``ts`` in each partition, ties by partition, then by offset."""
    headed = [part.with_columns(pl.col("ts").cum_max().alias(_HEAD)) for part in partitions]
    return pl.concat(headed).sort(_HEAD, maintain_order=True).drop(_HEAD)


def merged_counts(merged: pl.DataFrame, key: str, size_ms: int, grace_ms: int, condition: pl.Expr | None = None) -> pl.DataFrame:
    """Count what a merge of records gives in final windows (``key``, ``start``, ``count``): T1, T1a and W2.

    Args:
        merged: records in the order T2, all of which move time.
        key: the column that is grouped by.
        size_ms: of a tumbling window.
        grace_ms: behind its end.
        condition: which records are counted; None: all.
    """
    frame = merged.with_columns((pl.col("ts") // size_ms * size_ms).alias("start"), pl.col("ts").cum_max().alias("now"))
    end = pl.col("start") + size_ms + grace_ms
    counted = frame.filter((end > pl.col("now")) & (end <= pl.col("ts").max()))
    counted = counted if condition is None else counted.filter(condition)
    return counted.group_by(pl.col(key).alias("key"), "start").agg(pl.len().cast(pl.Int64).alias("count"))


def compare_finals(got: pl.DataFrame, expected: pl.DataFrame) -> Finals:
    """Compare final counts (``key``, ``start``, ``count``)."""
    once = got.unique(["key", "start"], keep="any")
    both = once.join(expected, on=["key", "start"], suffix="_expected")
    equal = both.filter(pl.col("count") == pl.col("count_expected")).height
    return Finals(expected.height, equal, both.height - equal, expected.height - both.height, got.height - both.height)

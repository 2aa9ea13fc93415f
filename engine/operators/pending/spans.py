"""How much waits, by time: a few spans per operator and task that travel with every commit.

What waits lies in segments that only a worker can read. From the spans the service can say how much another grace or limit would let
go, exactly where no span is cut and between bounds where one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from engine.frames.clocks import I64

MAX_SPANS: Final = 16
"""Spans per operator and task: a sixteenth is how far an answer may be off, and a commit carries them all."""


class Span(NamedTuple):
    """Between ``least`` and ``most`` things that wait, at times from ``low`` to ``high``, both inclusive."""

    low: int
    high: int
    least: int
    most: int


def ranked(times: I64, *, weight: int = 1, is_exact: bool = True) -> list[Span]:
    """Cut ascending times into spans of about equally many.

    Args:
        times: one for each row.
        weight: how many things a row stands for at most.
        is_exact: a row stands for that many; else perhaps for none.
    """
    cuts = np.unique(np.linspace(0, len(times), MAX_SPANS + 1).astype(np.int64))
    rows = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    return [
        Span(int(times[first]), int(times[stop - 1]), weight * (stop - first) if is_exact else 0, weight * (stop - first))
        for first, stop in rows
    ]


def counted(lows: I64, highs: I64, counts: I64) -> list[Span]:
    """Make spans of exactly known counts: at most ``MAX_SPANS``, of about equal weight.

    Args:
        lows: where each range begins; the ranges ascend and are apart.
        highs: where it ends.
        counts: how many things it holds, at least one.
    """
    group = np.arange(len(counts))
    if len(counts) > MAX_SPANS:
        before = np.cumsum(counts) - counts
        group = before * MAX_SPANS // counts.sum()
    begins = np.flatnonzero(np.append([True], group[1:] != group[:-1])[: len(counts)])
    ends = np.append(begins[1:], len(counts))[: len(begins)] - 1
    sums = np.add.reduceat(counts, begins).tolist() if len(counts) else []
    return [Span(*each) for each in zip(lows[begins].tolist(), highs[ends].tolist(), sums, sums, strict=True)]


def behind(spans: Iterable[Span], low: int, gone: int = 0) -> list[Span]:
    """Return the spans without what is before ``low``, and without the first ``gone`` things, which are known to be gone."""
    kept = []
    for span in spans:
        taken = min(gone, span.most)
        gone -= taken
        if span.high < low or taken == span.most:
            continue
        is_cut = span.low < low and not taken
        kept.append(Span(max(span.low, low), span.high, 0 if is_cut else max(span.least - taken, 0), span.most - taken))
    return kept


def bounded(spans: Sequence[Span]) -> list[Span]:
    """Merge neighbours until there are at most ``MAX_SPANS``, of about equal weight."""
    spans = sorted(spans)
    if len(spans) <= MAX_SPANS:
        return spans
    share = sum(span.most for span in spans) / MAX_SPANS
    groups: list[list[Span]] = [[]]
    filled = 0
    for span in spans:
        # What weighs nothing and comes last goes with the last.
        if groups[-1] and len(groups) < MAX_SPANS and filled >= share * len(groups):
            groups.append([])
        groups[-1].append(span)
        filled += span.most
    return [
        Span(
            group[0].low,
            max(span.high for span in group),
            sum(span.least for span in group),
            sum(span.most for span in group),
        )
        for group in groups
    ]


class SpanCache:
    """Spans of immutable segments, computed once for each.

    Args:
        make: computes the spans of the segment of that name.
    """

    def __init__(self, make: Callable[[str], list[Span]]) -> None:
        self._make = make
        self._known: dict[str, list[Span]] = {}

    def of(self, segments: Iterable[str]) -> list[list[Span]]:
        """Return the spans of each segment, and forget all others."""
        known = self._known
        self._known = {name: known[name] if name in known else self._make(name) for name in segments}
        return list(self._known.values())

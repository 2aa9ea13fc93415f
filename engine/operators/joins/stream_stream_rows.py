"""What a stream-stream join handles in one batch: each side's records, and its results as rows of both sides in order of place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.frames import POS, TS


@dataclass(frozen=True, slots=True)
class Arrived:
    """A side's records of the batch, without null values; arrays hold one entry for each.

    Attributes:
        frame: its input's rows.
        hashes: of the join key, null where it is null.
        places: place of each among the records of both sides, in order.
    """

    frame: pl.DataFrame
    hashes: pl.Series
    places: I64

    def rows(self, indexes: I64) -> Arrived:
        return Arrived(self.frame[indexes], self.hashes[indexes], self.places[indexes])


@dataclass(frozen=True, slots=True)
class Order:
    """The batch's records of both sides, in order, and the advance of an idle task behind them.

    Attributes:
        clock: stream time with each; ``BEFORE_ALL_TIME`` before the first.
        positions: position of each.
        offsets: offset of each, -1 of the advance.
        first_arrival: how many records came before the batch.
    """

    clock: I64
    positions: I64
    offsets: I64
    first_arrival: int


@dataclass(frozen=True, slots=True)
class Part:
    """One side's records that results can be made of.

    Attributes:
        source: kept ones that could be partners, new ones, those that waited for a partner and close, those that pass.
        old: end of the first part.
        new: end of the second.
        closed: end of the third.
    """

    source: pl.DataFrame
    old: int
    new: int
    closed: int

    @property
    def targets(self) -> pl.DataFrame:
        """What the other side's new records may meet."""
        return self.source[: self.new]


@dataclass(frozen=True, slots=True)
class Alone:
    """One side's records that close without a partner: rows of the part, and the place where each closes."""

    rows: I64
    places: I64


@dataclass(frozen=True, slots=True)
class Rows:
    """Results in order of place: which records stand side by side.

    Attributes:
        places: place of the record that causes each.
        left: row of the left records; -1: nulls.
        right: row of the right records; -1: nulls.
    """

    places: I64
    left: I64
    right: I64


def nulls(parts: list[Part], alone: list[Alone]) -> Rows:
    """Order what closes without a partner: by place, event time, left before right, arrival."""
    rows, places = (np.concatenate([getattr(side, name) for side in alone]) for name in ("rows", "places"))
    is_right = np.repeat([False, True], [len(side.rows) for side in alone])
    times, arrivals = (
        np.concatenate([part.source.get_column(name).to_numpy()[side.rows] for part, side in zip(parts, alone, strict=True)])
        for name in (TS, POS)
    )
    order = np.lexsort((arrivals, is_right, times, places))
    rows, is_right = rows[order], is_right[order]
    return Rows(places[order], np.where(is_right, -1, rows), np.where(is_right, rows, -1))


def passed(parts: list[Part], passing: tuple[Arrived, ...]) -> list[Rows]:
    """The rows of records with a null key, at their own places."""
    left, right = (part.closed + np.arange(len(records.places)) for part, records in zip(parts, passing, strict=True))
    nothing = np.full(max(len(left), len(right)), -1)
    return [Rows(passing[0].places, left, nothing[: len(left)]), Rows(passing[1].places, nothing[: len(right)], right)]


def in_order(rows: list[Rows]) -> Rows:
    """Merge results by place; of one place, those of an earlier list come first."""
    places = np.concatenate([each.places for each in rows])
    order = np.argsort(places, kind="stable")
    left, right = np.concatenate([each.left for each in rows]), np.concatenate([each.right for each in rows])
    return Rows(places[order], left[order], right[order])


def gathered(source: pl.DataFrame, rows: I64) -> pl.DataFrame:
    """Take rows of ``source``, nulls for -1."""
    is_missing = rows < 0
    if not is_missing.any():
        return source[rows]
    return source.select(pl.all().gather(pl.Series(np.where(is_missing, 0, rows)).set(pl.Series(is_missing), None)))

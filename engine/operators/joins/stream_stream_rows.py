"""What a stream-stream join handles in one batch: each side's records, and its results as rows of both sides in order of place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from engine.frames.clocks import I64
from engine.frames.frames import OFFSET, POS, RANK, TS, with_series
from engine.frames.places import apart, levels, ordinals, place_order, ranked
from engine.operators.joins.stream_side import PLACE

UNMATCHED: Final = 0
CAUSED: Final = 1
"""At one place what closes without a partner stands before what records make there (SS3)."""


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
    """The batch's records of both sides, in order.

    Attributes:
        places: ``_pos``, ``_rank`` and ``_offset`` of each.
        times: stream time before each.
        first_arrival: how many records came before the batch.
    """

    places: pl.DataFrame
    times: I64
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


class Alone(NamedTuple):
    """One side's records that close without a partner: rows of the part, and the position where each closes."""

    rows: I64
    positions: I64


class Caused(NamedTuple):
    """Results that records make where they stand.

    Attributes:
        causes: place of each one's record in the order of the batch; several of one are by the partner's time and arrival.
        left: row of the left records; -1: nulls.
        right: row of the right records; -1: nulls.
    """

    causes: I64
    left: I64
    right: I64


class Rows(NamedTuple):
    """Results: which records stand side by side, and where.

    Attributes:
        places: ``_pos``, ``_rank`` and ``_offset`` of each.
        left: as in ``Caused``.
        right: as in ``Caused``.
    """

    places: pl.DataFrame
    left: I64
    right: I64


def unmatched(parts: list[Part], alone: list[Alone]) -> Rows:
    """Say where what closes without a partner stands: of one place by event time, left before right, arrival."""
    columns = [PLACE, RANK, OFFSET, TS]
    frame = pl.concat([part.source[columns][side.rows] for part, side in zip(parts, alone, strict=True)])
    frame = with_series(frame, pl.Series(POS, np.concatenate([side.positions for side in alone])))
    is_right = np.repeat([False, True], [len(side.rows) for side in alone])
    times, arrivals = (frame.get_column(name).to_numpy() for name in (TS, PLACE))
    places = ranked(frame, UNMATCHED, times, is_right, arrivals, frame.get_column(RANK))[[POS, RANK, OFFSET]]
    rows = np.concatenate([side.rows for side in alone])
    return Rows(places, np.where(is_right, -1, rows), np.where(is_right, rows, -1))


def passed(parts: list[Part], passing: tuple[Arrived, ...]) -> list[Caused]:
    """The rows of records with a null key, at their own places."""
    left, right = (part.closed + np.arange(len(records.places)) for part, records in zip(parts, passing, strict=True))
    nothing = np.full(max(len(left), len(right)), -1)
    return [Caused(passing[0].places, left, nothing[: len(left)]), Caused(passing[1].places, nothing[: len(right)], right)]


def caused(results: Sequence[Caused], order: Order, *, has_unmatched: bool) -> Rows:
    """Say where what records make stands: the first row of each at its own place, further ones at places of their own (T1b).

    Args:
        results: of different records each.
        order: of the batch.
        has_unmatched: whether other rows may stand there.
    """
    causes, left, right = (np.concatenate(columns) for columns in zip(*results, strict=True))
    by_cause = np.argsort(causes, kind="stable")
    causes = causes[by_cause]
    places = order.places[causes]
    if has_unmatched:
        own = places.get_column(RANK)
        places = ranked(places, CAUSED, own, within=levels(own))
    return Rows(apart(places, ordinals(causes)), left[by_cause], right[by_cause])


def in_order(rows: Sequence[Rows]) -> Rows:
    """Bring results into the order of their places."""
    places = pl.concat([each.places for each in rows])
    order = place_order(places)
    left, right = np.concatenate([each.left for each in rows]), np.concatenate([each.right for each in rows])
    return Rows(places[order], left[order], right[order])


def gathered(source: pl.DataFrame, rows: I64) -> pl.DataFrame:
    """Take rows of ``source``, nulls for -1."""
    is_missing = rows < 0
    if not is_missing.any():
        return source[rows]
    return source.select(pl.all().gather(pl.Series(np.where(is_missing, 0, rows)).set(pl.Series(is_missing), None)))

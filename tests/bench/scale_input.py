"""The input of `scale`: a versioned table of any size and streams to join with it, in closed form, so that every answer can be checked.

Row ``i`` of the table is version ``i // keys`` of key ``i % keys``; event times spread rows evenly over an hour, whatever their number. A
probe's key and time follow from its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from tests.bench.nxt import BASE_MS, Ints, below, draw, unit

SPAN_MS: Final = 3_600_000
ROWS_PER_FILE: Final = 1_000_000
ROWS_PER_GROUP: Final = 100_000

SPREAD: Final = 7_919
"""A prime, so that the keys that zipf asks for most are not neighbours."""

Keys = Literal["uniform", "zipf"]


@dataclass(frozen=True, slots=True)
class Table:
    """A versioned table: each key has ``versions // keys`` versions, or one more."""

    keys: int
    versions: int

    def rows(self, first: int, stop: int) -> pl.DataFrame:
        """Return some of its records in the order of event time."""
        number = np.arange(first, min(stop, self.versions))
        return pl.DataFrame(
            {"item": number % self.keys, "version": number // self.keys, "ts": BASE_MS + number * SPAN_MS // self.versions}
        )

    def true_version(self, item: Ints, ts: Ints) -> Ints:
        """Return the version valid at ``ts``, -1 before the first."""
        newest = np.minimum(((ts - BASE_MS + 1) * self.versions - 1) // SPAN_MS, self.versions - 1)
        return np.where(newest >= item, (newest - item) // self.keys, -1)


@dataclass(frozen=True, slots=True)
class Probes:
    """Records of a stream, in the order of event time, which goes through the table's hour once.

    Attributes:
        keys: ``uniform``, or ``zipf``: a key's frequency falls as one over its rank.
        first: number of the first.
        count: how many.
    """

    table: Table
    keys: Keys
    first: int
    count: int

    def rows(self, first: int, stop: int) -> pl.DataFrame:
        """Return some of them, counted from 0."""
        place = np.arange(first, min(stop, self.count))
        number = self.first + place
        return pl.DataFrame({"n": number, "item": self._items(number), "ts": BASE_MS + place * SPAN_MS // self.count})

    def wrong(self, number: Ints, version: Ints, grace_ms: int = 0) -> int:
        """Count the answers, -1 for none, that are not the true ones, and those that are missing, too early or there twice."""
        asked = self.rows(0, self.count)
        item, ts = asked["item"].to_numpy(), asked["ts"].to_numpy()
        is_own = (number >= self.first) & (number < self.first + self.count)
        places = number[is_own] - self.first
        is_due = ts <= ts.max() - grace_ms
        is_wrong = version[is_own] != self.table.true_version(item, ts)[places]
        return int(is_wrong.sum() + (np.bincount(places, minlength=self.count) != is_due).sum())

    def _items(self, number: Ints) -> Ints:
        if self.keys == "uniform":
            return below(draw(17, number, 0), self.table.keys)
        rank = np.exp(unit(draw(19, number, 0)) * np.log(self.table.keys)).astype(np.int64)
        chosen: Ints = rank * SPREAD % self.table.keys
        return chosen


def write_files(rows: Table | Probes, first: int, stop: int, folder: Path) -> list[Path]:
    """Write some of the rows as Parquet files whose names sort in the order of time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for begin in range(first, stop, ROWS_PER_FILE):
        number = begin if isinstance(rows, Table) else rows.first + begin
        paths.append(folder / f"{number:012d}.parquet")
        frame = rows.rows(begin, min(begin + ROWS_PER_FILE, stop))
        frame.write_parquet(paths[-1], compression="snappy", row_group_size=ROWS_PER_GROUP)
    return paths


def write_table(table: Table, root: Path) -> Path:
    """Write a table below ``root``, unless it is there; returns its directory."""
    folder = root / f"table-{table.keys}-{table.versions}"
    if not (folder / ".complete").exists():
        write_files(table, 0, table.versions, folder)
        (folder / ".complete").touch()
    return folder

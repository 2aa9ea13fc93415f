"""Where the timed jobs read the NX-T input: directories of files, or the built-in log with everything appended before the query starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import polars as pl

from engine.frames.hashing import key_hash
from engine.log.storage import append_batches, encode_batch, find_feed
from engine.postgres.links import LinkedConnection
from engine.postgres.postgres import Connection
from tests.bench.files import bid_rows, version_rows
from tests.bench.nxt import replay

PARTITIONS = 4
BATCH_ROWS = 10_000  # what a client that sends large bodies makes of each request
HUGE_SHARE = 7  # tenths of the keys that are in the huge partition
SMALL_BATCH_ROWS = 500  # a producer of small requests

Layout = Literal["even", "huge", "behind", "paused"]
Input = Literal["bids", "versions"]

DATED: Final[Mapping[str, str]] = {"event_time": "ts"}


class Source(Protocol):
    """One form of the input.

    Attributes:
        name: in tables.
    """

    @property
    def name(self) -> str: ...

    @property
    def dating(self) -> Mapping[str, str]:
        """What a definition says of its event time."""
        ...

    def connector(self, of: Input) -> dict[str, Any]:
        """Return the connector of a relation."""
        ...

    def fill(self, dsn: str, of: Input) -> int:
        """Put the records where the registered relation reads them; returns how many there are."""
        ...

    def partitions(self, of: Input) -> list[pl.DataFrame]:
        """Return the records of each partition of the feed, in the order of their offsets."""
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """Directories that ``files.write_input`` has written: of each feed one partition."""

    folders: dict[str, Path]
    name: str = "files"
    dating: Mapping[str, str] = field(default_factory=lambda: DATED)

    def connector(self, of: Input) -> dict[str, Any]:
        return {"type": "files", "path": str(self.folders[of]), "format": "ndjson"}

    def fill(self, dsn: str, of: Input) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.folders[of].iterdir())

    def partitions(self, of: Input) -> list[pl.DataFrame]:
        return [pl.concat([pl.read_ndjson(path) for path in sorted(self.folders[of].iterdir())])]


@dataclass(frozen=True, slots=True)
class LogSource:
    """Four partitions of the log, in arrival order within each.

    Attributes:
        layout: ``even``: by the key's hash. ``huge``: 70 % of the keys are in one partition. ``behind``: one partition was appended after
            all others were, in small batches; its records are as old as theirs. ``paused``: one partition has nothing of the middle third of
            the time; another one takes it.
    """

    size: str
    layout: Layout = "even"
    dating: Mapping[str, str] = field(default_factory=lambda: DATED)

    @property
    def name(self) -> str:
        return "log" if self.layout == "even" else f"log, one partition {self.layout}"

    def connector(self, of: Input) -> dict[str, Any]:
        return {"type": "log", "partitions": PARTITIONS}

    def partitions(self, of: Input) -> list[pl.DataFrame]:
        bids, versions, _ = replay(self.size)
        frame = bid_rows(bids) if of == "bids" else version_rows(versions)
        hashes = key_hash(frame, ["auction"]).to_numpy()
        partition = (hashes % np.uint64(PARTITIONS)).astype(np.int64)
        if self.layout == "huge":
            partition[(hashes >> np.uint64(8)) % np.uint64(10) < HUGE_SHARE] = 0
        if self.layout == "paused":
            third = np.arange(frame.height) * 3 // max(frame.height, 1)
            partition[(partition == PARTITIONS - 1) & (third == 1)] = 0
        return [frame.filter(pl.Series(partition == number)) for number in range(PARTITIONS)]

    def fill(self, dsn: str, of: Input) -> int:
        parts = [logged(part) for part in self.partitions(of)]
        rows = sum(part.height for part in parts)
        with LinkedConnection.connect(dsn, autocommit=True) as connection:
            feed_id = feed_of(connection, of)
            if self.layout == "behind":
                last = parts.pop()
            for first in range(0, max(part.height for part in parts), BATCH_ROWS):
                cut = [(number, part.slice(first, BATCH_ROWS)) for number, part in enumerate(parts)]
                append_batches(connection, feed_id, [(number, encode_batch(part, 0)) for number, part in cut if part.height])
            if self.layout == "behind":
                rest = [(PARTITIONS - 1, encode_batch(part, 0)) for part in last.iter_slices(SMALL_BATCH_ROWS)]
                append_batches(connection, feed_id, rest)
        return rows


def logged(records: pl.DataFrame) -> pl.DataFrame:
    """Return records as the log holds them."""
    return records.with_columns(pl.col("ts").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"))


def feed_of(connection: Connection, relation: str) -> int:
    """Return the feed of a registered relation."""
    feed = find_feed(connection, relation)
    if feed is None:
        raise RuntimeError(f"there is no feed {relation!r}")
    return feed.id

"""The port through which a query reads its inputs' feeds, and the values that pass it. ``open_feed`` chooses the implementation.

A feed has partitions; a partition has offsets that never change their meaning. Inputs that read one feed share one reader, so
that its records keep their order (T2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.connectors.admission import Chunk
from engine.connectors.fetched import Fetched
from engine.connectors.packets import Packet
from engine.plan.model import Feed, Input, RelationSchema

Start = Literal["earliest", "latest"] | int


@dataclass(frozen=True, slots=True)
class Limit:
    """How far to look ahead: until either bound is passed."""

    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    """What one Spark task reads: ``[start, end)`` of a partition, on record boundaries.

    Attributes:
        head: the head that its first record has at least (``engine.core.order``): what the batch holds of the partition before the split may
            be later than it. None: only this partition is read, so heads decide nothing.
        file: name of the file, for files feeds.
        file_start: first byte (ndjson, csv) or row (parquet) inside the file.
        file_end: the one behind the last.
    """

    partition: int
    start: int
    end: int
    head: int | None = None
    file: str | None = None
    file_start: int = 0
    file_end: int = 0


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to make of the records.

    Attributes:
        inputs: the inputs that read this feed.
        now_ms: the batch's wall clock (T5).
        tasks: number of the query's tasks.
        fetched: what was asked of the database beforehand; None: nothing.
    """

    inputs: Sequence[Input]
    now_ms: int
    tasks: int
    fetched: Fetched | None = None


class FeedReader(Protocol):
    """Reads one feed. It pickles; every method may run in another process.

    Every method raises SourceUnavailable where the feed cannot be read now, and DataInvalid where it lost what it had.
    """

    @property
    def feed(self) -> Feed:
        """The feed it reads."""
        ...

    def starts(self, start: Start) -> Mapping[int, int]:
        """Return, by partition, the offset where reading begins."""
        ...

    def ends(self) -> Mapping[int, int]:
        """Return, by partition, the position behind the last record there is now."""
        ...

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """Return what lies behind ``start``, in order, until the limit is passed; at least one chunk if there is any record.

        Args:
            partition: which.
            start: an offset.
            limit: how far.
            is_dated: the chunks' event times will be asked for; they are exact then.
        """
        ...

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        """Return the offset of the first record in ``[start, end)`` that moves the partition's head to ``bound_ms`` or later; else ``end``."""
        ...

    def splits(self, partition: int, start: int, end: int, head: int | None) -> list[Split]:
        """Cut ``[start, end)`` into what single tasks read.

        Args:
            partition: which.
            start: where a batch begins.
            end: where it ends.
            head: the head at ``start``, from which those of the splits are computed; None: they are not wanted.
        """
        ...

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """Yield ``data``, ``reject`` and ``stats`` packets and at last one ``progress`` packet."""
        ...


def open_feed(dsn: str, feed: Feed, relations: Sequence[RelationSchema]) -> FeedReader:
    """Return the reader of a feed.

    Args:
        dsn: the database of the log and of the registry of files.
        feed: which feed.
        relations: the relations that are read from it; their event times date the chunks.
    """
    from engine.connectors.file_reader import FileReader
    from engine.connectors.log_reader import LogReader
    from engine.connectors.sequence_reader import SequenceReader

    if feed.is_derived:
        return SequenceReader(dsn, feed)
    if feed.type == "log":
        return LogReader(dsn, feed)
    return FileReader(dsn, feed, tuple(relations))

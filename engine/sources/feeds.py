"""The port through which a query reads its inputs' feeds, and its values. ``connector_kinds.open_feed`` chooses the implementation.

A feed has partitions; a partition has offsets that never change their meaning. Inputs that read one feed share one reader, so
that its records keep their order (T2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.errors import EngineError
from engine.log.backlogs import Unread
from engine.log.fetched import Fetched, LogSplit
from engine.plan.model import Feed, Input
from engine.postgres.incarnation import receded
from engine.sources.packets import Packet

UNKNOWN_TS = 1 << 62
"""Later than every event time."""


NO_TS = -1
"""Earlier than every event time: the head before any record has moved it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a feed partition.

    Attributes:
        end_offset: offset after its last record.
        rows: records inside; an estimate if the feed does not count them.
        size_bytes: its size as stored.
        max_ts: greatest event time (ms) inside, None if unknown; ``NO_TS`` if no record inside can move the head.
    """

    end_offset: int
    rows: int
    size_bytes: int
    max_ts: int | None


Start = Literal["earliest", "latest"] | int

BYTES_PER_RECORD = 80
"""Approximate size of a record where offsets count records."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How far to look ahead: until either bound is passed."""

    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    """The input of one Spark task: ``[start, end)`` of a partition, on record boundaries. A connector may have a subclass of it.

    Attributes:
        head: of the partition where the batch begins (``engine.operators.tasks.order``). None: only this partition is read, so heads
            decide nothing.
    """

    partition: int
    start: int
    end: int
    head: int | None = None

    @property
    def weight_bytes(self) -> int:
        """Its approximate size."""
        return (self.end - self.start) * BYTES_PER_RECORD


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to make of the records.

    Attributes:
        inputs: the inputs that read this feed.
        now_ms: the batch's wall clock (T5).
        tasks: number of the query's tasks.
        fetched: prefetched from the database; None: nothing.
        is_here: this process also handles the packets: small ones may carry their frame itself.
        is_hashed_anew: there is one task, which computes its own hashes of keys: the reader's hashes only have to exist.
    """

    inputs: Sequence[Input]
    now_ms: int
    tasks: int
    fetched: Fetched | None = None
    is_here: bool = False
    is_hashed_anew: bool = False


class FeedReader(Protocol):
    """Reads one feed. It pickles; every method may run in another process.

    Offsets rise within a partition and never change their meaning; offsets between two records may have no record. New
    partitions may appear while a query runs; none disappears. Every method raises SourceUnavailable if the feed cannot be read now, and
    DataInvalid if it has lost records.
    """

    __slots__ = ()
    feed: Feed

    def starts(self, start: Start) -> Mapping[int, int]:
        """Return, by partition, the offset where reading begins."""
        ...

    def ends(self) -> Mapping[int, int]:
        """Return, by partition, the position after the newest record."""
        ...

    def chunks(self, partition: int, start: int, limit: Limit, *, is_dated: bool) -> list[Chunk]:
        """Return the chunks from ``start`` on, in order, until the limit is passed; at least one chunk if there is any record.

        Args:
            partition: which.
            start: an offset.
            limit: how far.
            is_dated: the chunks' event times are needed; they are exact then.
        """
        ...

    def first_at(self, partition: int, start: int, end: int, bound_ms: int) -> int:
        """Return the offset of the first record in ``[start, end)`` that moves the partition's head to ``bound_ms`` or later; else ``end``."""
        ...

    def splits(self, partition: int, start: int, end: int) -> Sequence[Split]:
        """Cut what a batch reads, ``[start, end)``, into the inputs of single tasks; nobody knows their heads yet."""
        ...

    def last_mark_ms(self, until_head: int | None = None) -> int | None:  # noqa: ARG002 - of those that have marks
        """Return the time of a derived feed's last mark (P14); None, the default: it has none, or records tell the feed's time.

        Args:
            until_head: the last one of a commit in all of which the merge had not come so far; None: the very last.
        """
        return None

    def with_marks(
        self,
        splits: Sequence[Split],
        end: int,  # noqa: ARG002 - of those that have marks
        until_head: int | None,  # noqa: ARG002
        last_mark_ms: int | None,  # noqa: ARG002
    ) -> Sequence[Split]:
        """Return the splits of a batch so that the marks right before its end are read too, also where it has no rows; by default as they are.

        Args:
            splits: of a partition.
            end: where the batch ends.
            until_head: marks right before ``end`` are read where the merge had not come so far with them; None: all are.
            last_mark_ms: what ``last_mark_ms`` gave for the batch before: marks up to there are read; None: none is.
        """
        return splits

    def read(self, split: Split, request: ReadRequest) -> Iterator[Packet]:
        """Yield ``data``, ``reject`` and ``stats`` packets, then those of ``times`` and one ``progress`` packet."""
        ...

    @property
    def is_asked_in_one_statement(self) -> bool:
        """Whether one statement for the logs of many queries (``engine.log.backlogs``) finds its unread records; by default not."""
        return False

    @property
    def is_announced(self) -> bool:
        """Whether its ends in the database (``feed_ends``) show new data; else only a look shows it. By default not."""
        return False

    def fetchable(self, split: Split) -> LogSplit | None:  # noqa: ARG002 - of those that can
        """Return the part of a split that one statement can prefetch together with other queries' parts; None, the default: nothing."""
        return None

    def chunks_of(self, unread: Unread, partition: int, start: int, limit: Limit) -> list[Chunk] | None:  # noqa: ARG002 - of those that can
        """Return the result of ``chunks`` from the answer of the statement for many queries; None, the default: this is not possible."""
        return None

    def receded(self, partition: int, position: int, end: int, *, is_committed: bool) -> EngineError:
        """Return the error about a feed that ends before a position that was read; the database's own feeds do only if it was restored.

        Args:
            partition: which.
            position: where reading stopped.
            end: where the feed ends now.
            is_committed: committed results depend on the lost records; else the next attempt begins at the existing ones.
        """
        return receded(self.feed.name, str(partition), position, end, is_committed=is_committed)

    def epochs(self) -> Mapping[int, int]:
        """Return, by partition, the epoch of its log at the last ``ends``; empty if records cannot be replaced unnoticed.

        The epochs are kept with the positions before those ends, for ``check_epochs``.
        """
        return {}

    def check_epochs(self, positions: Mapping[int, int], epochs: Mapping[int, int], committed: Mapping[int, int]) -> None:  # noqa: ARG002 - of those that can
        """Check that the records read before positions still exist; called after ``ends``.

        Args:
            positions: by partition.
            epochs: that were kept with them.
            committed: committed positions; if they are before ``positions``, the next attempt begins there.

        Raises:
            DataInvalid, SourceUnavailable: other records have replaced those that were read; see ``receded``.
        """
        return

"""The port through which a query reads its inputs' feeds, and the values that pass it. ``connector_kinds.open_feed`` chooses the implementation.

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
from engine.sources.chunks import Chunk
from engine.sources.packets import Packet

Start = Literal["earliest", "latest"] | int

BYTES_PER_RECORD = 80
"""Where offsets count records: a record weighs about this much."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How far to look ahead: until either bound is passed."""

    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Split:
    """What one Spark task reads: ``[start, end)`` of a partition, on record boundaries. A connector may have a class of its own over it.

    Attributes:
        head: the head that its first record has at least (``engine.operators.tasks.order``): what the batch holds of the partition before the
        split may
            be later than it. None: only this partition is read, so heads decide nothing.
    """

    partition: int
    start: int
    end: int
    head: int | None = None

    @property
    def weight_bytes(self) -> int:
        """About how much is read."""
        return (self.end - self.start) * BYTES_PER_RECORD


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to make of the records.

    Attributes:
        inputs: the inputs that read this feed.
        now_ms: the batch's wall clock (T5).
        tasks: number of the query's tasks.
        fetched: what was asked of the database beforehand; None: nothing.
        is_here: who works with the packets does so in this process: small ones may carry their frame itself.
        is_hashed_anew: there is one task, which hashes keys anew: of a hash only that there is one counts.
    """

    inputs: Sequence[Input]
    now_ms: int
    tasks: int
    fetched: Fetched | None = None
    is_here: bool = False
    is_hashed_anew: bool = False


class FeedReader(Protocol):
    """Reads one feed. It pickles; every method may run in another process.

    Offsets rise within a partition and never change their meaning; between two records there may be others that nothing stands for. New
    partitions may come while a query runs; none goes. Every method raises SourceUnavailable where the feed cannot be read now, and
    DataInvalid where it lost what it had.
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

    def splits(self, partition: int, start: int, end: int, head: int | None) -> Sequence[Split]:
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

    @property
    def is_asked_in_one_statement(self) -> bool:
        """Whether one statement for the logs of many queries (``engine.log.backlogs``) tells what lies unread in it."""
        ...

    @property
    def is_announced(self) -> bool:
        """Whether its ends in the database (``feed_ends``) tell whether there is something new; else only a look tells."""
        ...

    def fetchable(self, split: Split) -> LogSplit | None:
        """Say what of a split can be asked of the database beforehand, together with that of other queries; None: nothing."""
        ...

    def chunks_of(self, unread: Unread, partition: int, start: int, limit: Limit) -> list[Chunk] | None:
        """Return what ``chunks`` would, of what was asked of the database together with that of other queries; None: it cannot be asked so."""
        ...

    def receded(self, partition: int, position: int, end: int, *, is_committed: bool) -> EngineError:
        """Return the error about a feed that ends before what was read of it.

        Args:
            partition: which.
            position: what was read.
            end: where it ends now.
            is_committed: whether results rest on what is gone; else the next attempt begins at what is there.
        """
        ...

    def epochs(self) -> Mapping[int, int]:
        """Return, by partition, which epoch of its log the last ``ends`` found; nothing where what was read cannot be replaced unnoticed.

        They are kept with the positions that lie before those ends, for ``check_epochs``.
        """
        ...

    def check_epochs(self, positions: Mapping[int, int], epochs: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """Make sure that what was read before positions is there still; called behind ``ends``.

        Args:
            positions: by partition.
            epochs: that were kept with them.
            committed: positions on which results rest; where they lie before ``positions``, the next attempt begins there.

        Raises:
            DataInvalid, SourceUnavailable: other records have taken the place of what was read; see ``receded``.
        """
        ...


class UsualAnswers:
    """What a reader answers where it has nothing of its own to say."""

    __slots__ = ()
    feed: Feed

    @property
    def is_asked_in_one_statement(self) -> bool:
        """See ``FeedReader``."""
        return False

    @property
    def is_announced(self) -> bool:
        """See ``FeedReader``."""
        return False

    def fetchable(self, split: Split) -> LogSplit | None:  # noqa: ARG002 - the port's
        """See ``FeedReader``."""
        return None

    def chunks_of(self, unread: Unread, partition: int, start: int, limit: Limit) -> list[Chunk] | None:  # noqa: ARG002 - the port's
        """See ``FeedReader``."""
        return None

    def receded(self, partition: int, position: int, end: int, *, is_committed: bool) -> EngineError:
        """See ``FeedReader``: what the database says of its own feeds only recedes when the database was put back."""
        return receded(self.feed.name, str(partition), position, end, is_committed=is_committed)

    def epochs(self) -> Mapping[int, int]:
        """See ``FeedReader``."""
        return {}

    def check_epochs(self, positions: Mapping[int, int], epochs: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """See ``FeedReader``."""

"""What an explanation is drawn from, as values, and the port that gives them. All facts are of one snapshot of the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from app.catalog.queries.columns import Values
from engine.plan.model import Input

Code = Literal[
    "passed", "no_record", "not_read_yet", "rejected", "filtered", "late", "buffered_until", "window_open_until", "expired", "no_version",
    "joined_version", "final", "shown", "unknown",
]  # fmt: skip
Clock = Literal["stream_time", "table_time", "wall_clock"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is in the feed of its relation.

    Attributes:
        part: the part of a stream with several writers that has it (P13); None: the relation's own feed.
    """

    partition: int
    offset: int
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record or a version in a feed.

    Attributes:
        values: its columns, unqualified.
        is_read: the query's position is behind it.
    """

    place: Place
    event_time_ms: int
    is_delete: bool
    is_read: bool
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records that were looked for.

    Attributes:
        is_complete: False: there may be more; the feed cannot be searched, or not all of it.
        is_trimmed: there are no records, and the oldest ones of the feed were removed: what was looked for may have been among them.
    """

    records: Sequence[Record] = ()
    is_complete: bool = True
    is_trimmed: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    """What a table's feed says of one key around a time; only versions that the query has read count, but for ``unread``.

    Attributes:
        as_of: the newest at or before the time, tombstones included.
        next: the oldest after it.
        latest: the newest of all (V5).
        unread: one that would answer instead of ``as_of`` and is not read yet.
        is_complete: False: not all of the feed was searched, or none.
    """

    as_of: Record | None = None
    next: Record | None = None
    latest: Record | None = None
    unread: Record | None = None
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class LateFact:
    """A kept late record.

    Attributes:
        is_replayed: it was fed through the query again.
        offset: in its feed; None where it is not made of one record.
        columns: the names that it has, qualified where a join made them so.
    """

    operator: str
    reason: str
    event_time_ms: int
    stream_time_ms: int | None
    is_replayed: bool = False
    offset: int | None = None
    columns: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class RejectFact:
    """A kept reject of a relation.

    Attributes:
        place: None where it never entered a feed.
        event_time_ms: None where it cannot be read from what was kept.
    """

    reason: str
    detail: str
    place: Place | None
    event_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResultFact:
    """A row or a record of the result.

    Attributes:
        window_start_ms: None without windows.
    """

    event_time_ms: int
    window_start_ms: int | None = None
    window_end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What the last commit says.

    Attributes:
        clocks: operator → task → stream time.
        buffered: operator → task → rows waiting.
        wakes: ``stage:task`` → wall clock at which the task has something to do without input.
        position: feed → partition → next offset.
        ends: feed → partition → end; feeds outside of the log are absent.
    """

    clocks: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    buffered: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wakes: Mapping[str, int] = field(default_factory=dict)
    position: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def lag(self, feed: str) -> int:
        """Count the records of a feed that are not read yet, as far as known."""
        read = self.position.get(feed, {})
        return sum(max(0, end - read.get(str(partition), 0)) for partition, end in self.ends.get(feed, {}).items())


class Facts(Protocol):
    """Looks facts up. Values of columns are Python values of their types; those that are not given match anything."""

    @property
    def committed(self) -> Committed:
        """What the last commit says."""
        ...

    def record_at(self, source: Input, place: Place) -> Record | None:
        """Return the record at a place of an input's feed, or of a part of it."""
        ...

    def records(self, source: Input, values: Values, from_ms: int, to_ms: int) -> FoundRecords:
        """Return records of an input and its parts, of event times from ``from_ms`` to ``to_ms``, both included.

        Values may be those of columns that the input computes (``Input.computed``).
        """
        ...

    def nearest(self, source: Input, values: Values, at_ms: int) -> Sequence[Record]:
        """Return the last record of an input and its parts before a time and the first after it, as far as the feeds can be searched."""
        ...

    def versions(self, source: Input, key: Values, at_ms: int) -> Versions:
        """Return what a table's feed says of a key around a time."""
        ...

    def read_to_ms(self, source: Input) -> int | None:
        """Return the event time up to which every partition of an input was read, None where one was not or it is not known (J9)."""
        ...

    def late(self, values: Values, from_ms: int, to_ms: int) -> Sequence[LateFact]:
        """Return kept late records with these qualified values and event times in the range, both ends included."""
        ...

    def rejects(self, source: Input, values: Values, place: Place | None) -> Sequence[RejectFact]:
        """Return kept rejects of an input's relation: the one at a place, or those that have all these values."""
        ...

    def results(self, values: Values, from_ms: int, to_ms: int) -> Sequence[ResultFact]:
        """Return rows of the result with these values: those of windows that meet the range, records with a time inside it."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        values: qualified columns → value.
        at_ms: the event time.
        place: of one record, in the feed of the query's first input; None: any with these values and this time.
    """

    values: Values
    at_ms: int
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one part of the plan says.

    Attributes:
        code: the verdict.
        is_blocking: nothing gets past here (now).
        sentence: for people.
        kind: ``source``, the operator's kind, or ``result``.
        stage: which stage of the plan.
        operator: its name, where it has one.
        task: whose clock counts; None: the key is not known here, so the smallest of all counts.
        clock: which clock ``now_ms`` and ``until_ms`` are of.
        now_ms: where the clock is.
        until_ms: where it must be.
        version_ms: time of the version or row that answers.
        next_version_ms: when it ends.
        reason: a finer code: of late records, rejects, misses.
        place: of the record.
    """

    code: Code
    is_blocking: bool
    sentence: str
    kind: str = ""
    stage: int = 0
    operator: str | None = None
    task: int | None = None
    clock: Clock | None = None
    now_ms: int | None = None
    until_ms: int | None = None
    version_ms: int | None = None
    next_version_ms: int | None = None
    reason: str | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer and how it was found.

    Attributes:
        answer: the first step that blocks, else the last that says something.
        record: the record that it is about, where the feed has it.
        nearest: records of the same key around the time, where there is none with it.
    """

    answer: Step
    steps: Sequence[Step]
    record: Record | None = None
    nearest: Sequence[Record] = ()

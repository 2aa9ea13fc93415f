"""The facts of an explanation, as values, and the port that gives them. All facts are of one snapshot of the database."""

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
    """Place of a record in the feed of its relation.

    Attributes:
        part: of a stream with several writers (P13); None: the relation's own feed.
    """

    partition: int
    offset: int
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record or a version in a feed.

    Attributes:
        values: of its columns, unqualified.
        is_read: whether the query's position is after it.
    """

    place: Place
    event_time_ms: int
    is_delete: bool
    is_read: bool
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Result of a search for records.

    Attributes:
        is_complete: False: there may be more; the feed cannot be searched, or only in part.
        is_trimmed: the search found no records, and the oldest ones of the feed were removed: the record may have been one of them.
    """

    records: Sequence[Record] = ()
    is_complete: bool = True
    is_trimmed: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one key around a time in a table's feed. Except for ``unread``, these are versions that the query has read.

    Attributes:
        as_of: the newest at or before the time, also a tombstone.
        next: the oldest after it.
        latest: the newest of all (V5).
        unread: a version that would replace ``as_of`` and is not read yet.
        is_complete: False: the feed was searched only in part, or not at all.
    """

    as_of: Record | None = None
    next: Record | None = None
    latest: Record | None = None
    unread: Record | None = None
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class LateFact:
    """A stored late record.

    Attributes:
        is_replayed: it was replayed through the query.
        offset: in its feed; None if several records made it.
        columns: its columns' names, qualified if a join did so.
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
    """A stored reject of a relation.

    Attributes:
        place: None if it never entered a feed.
        event_time_ms: None if the stored part does not show it.
    """

    reason: str
    detail: str
    place: Place | None
    event_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResultFact:
    """A row or a record of the result.

    Attributes:
        window_start_ms: None if there are no windows.
    """

    event_time_ms: int
    window_start_ms: int | None = None
    window_end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The facts of the last commit.

    Attributes:
        clocks: operator → the time before it; ``<operator>.table`` → that of the table beside it.
        buffered: operator → task → waiting rows.
        wakes: ``stage:task`` → wall clock time at which the task must run without input.
        position: feed → partition → next offset.
        ends: feed → partition → end; feeds outside of the log are absent.
    """

    clocks: Mapping[str, int] = field(default_factory=dict)
    buffered: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wakes: Mapping[str, int] = field(default_factory=dict)
    position: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def lag(self, feed: str) -> int:
        """Return the number of unread records of a feed, as far as known."""
        read = self.position.get(feed, {})
        return sum(max(0, end - read.get(str(partition), 0)) for partition, end in self.ends.get(feed, {}).items())


class Facts(Protocol):
    """Reads facts. Values of columns are Python values of their types; a column without a value matches anything."""

    @property
    def committed(self) -> Committed: ...

    def record_at(self, source: Input, place: Place) -> Record | None:
        """Return the record at a place of an input's feed, or of a part of it."""
        ...

    def records(self, source: Input, values: Values, from_ms: int, to_ms: int) -> FoundRecords:
        """Return records of an input and its parts with event times from ``from_ms`` to ``to_ms``, both included.

        Values may be of columns that the input computes (``Input.computed``).
        """
        ...

    def nearest(self, source: Input, values: Values, at_ms: int) -> Sequence[Record]:
        """Return the last record of an input and its parts before a time and the first after it, as far as the feeds can be searched."""
        ...

    def versions(self, source: Input, key: Values, at_ms: int) -> Versions:
        """Return the versions of a key around a time in a table's feed."""
        ...

    def read_to_ms(self, source: Input) -> int | None:
        """Return the event time up to which every partition of an input was read; None if one was not, or if it is unknown (J9)."""
        ...

    def late(self, values: Values, from_ms: int, to_ms: int) -> Sequence[LateFact]:
        """Return stored late records with these qualified values and event times in the range, both ends included."""
        ...

    def rejects(self, source: Input, values: Values, place: Place | None) -> Sequence[RejectFact]:
        """Return stored rejects of an input's relation: the one at a place, or those with all these values."""
        ...

    def results(self, values: Values, from_ms: int, to_ms: int) -> Sequence[ResultFact]:
        """Return rows of the result with these values: windows that overlap the range, records with a time in it."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """The question of an explanation.

    Attributes:
        values: qualified columns → value.
        at_ms: the event time.
        place: of one record, in the feed of the query's first input; None: any record with these values and this time.
    """

    values: Values
    at_ms: int
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The explanation of one part of the plan.

    Attributes:
        code: the result.
        is_blocking: the record does not pass this step (now).
        sentence: for users.
        kind: ``source``, the operator's kind, or ``result``.
        stage: index in the plan.
        operator: its name, if it has one.
        task: the task that handles the key; None: the key is unknown here.
        clock: kind of ``now_ms`` and ``until_ms``.
        now_ms: present value of the clock.
        until_ms: value that it must reach.
        version_ms: time of the version or row that is used.
        next_version_ms: its end.
        reason: a finer code: of late records, rejects, missing versions.
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
    """The answer, and the steps to it.

    Attributes:
        answer: the first step that blocks, else the last informative one.
        record: of the question, if the feed has it.
        nearest: records of the same key around the time, if there is none with it.
    """

    answer: Step
    steps: Sequence[Step]
    record: Record | None = None
    nearest: Sequence[Record] = ()

"""A query as the planning process of its slot knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.commit.task_states import Cursor
from engine.errors import SourceUnavailable
from engine.log.backlogs import LogPlace, UnreadLook, unread_behind
from engine.postgres.postgres import shared_connection
from engine.runtime.checkpoint import note_planned
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.source_spec import SourceSpec, SplitGroup

Ends = Mapping[str, Mapping[str, int]]
"""Feed → partition → next offset, from ``feed_ends``."""


@dataclass(slots=True)
class Planned:
    """A query in the planning process.

    Attributes:
        written: its spec, as read from its file.
        spec: the decoded spec; None: it cannot be read.
        planner: None: its feeds cannot be opened.
        start: where its next batch begins.
        end: where this batch ends, until a cycle takes it.
        groups: the splits to read; None: not yet known.
        next_batch: its number.
        failure: why no further batch is planned.
        watched: see ``BatchPlanner.watched``.
    """

    written: bytes
    spec: SourceSpec | None = None
    planner: BatchPlanner | None = None
    start: Cursor | None = None
    end: Cursor | None = None
    groups: Sequence[SplitGroup] | None = None
    next_batch: int = 0
    failure: str = ""
    is_reported: bool = False
    is_discovered: bool = False
    watched: frozenset[str] | None = None

    @property
    def is_postponed(self) -> bool:
        """Whether its next batch was postponed, because earlier batches had emitted as much as a cycle may."""
        return self.spec is not None and self.spec.is_postponed and self.next_batch == self.spec.next_batch

    @property
    def place(self) -> tuple[BatchPlanner, Cursor] | None:
        """The planner and the position from which it reads on; None: only a separate look can find new data."""
        if not self.is_discovered or not self.watched or self.planner is None or self.start is None:
            return None
        return self.planner, self.start

    def cut(self) -> None:
        """Find the splits that the planned batch reads."""
        if self.groups is None and self.planner is not None and self.start is not None and self.end is not None:
            self.groups = self.planner.groups(self.start, self.end)

    def plan_again(self) -> None:
        """Let the next look decide again where a left-over batch ends, because more data may exist by now.

        A batch with known splits stays, because it is large. A batch without records stays too: ``BatchPlanner`` gives the reason for such a
        batch once per launch, and a batch with records reports the same anyway.
        """
        has_records = self.start is not None and self.end is not None and self.end["feeds"] != self.start["feeds"]
        if self.groups is None and has_records:
            self.end = None

    @property
    def weight_bytes(self) -> int:
        """The approximate size of the splits; 0 for a batch that failed."""
        return sum(split.weight_bytes for group in self.groups or () for _, split in group.splits)

    def note(self) -> None:
        """Record in a file which batch is planned, before any work on it."""
        if self.spec is not None and self.spec.run is not None:
            note_planned(self.spec.run, self.next_batch)

    def go_on(self) -> None:
        """Begin the next batch where this one ends."""
        if self.end is not None:
            self.start, self.end, self.groups, self.next_batch = self.end, None, None, self.next_batch + 1

    def rests(self, ends: Ends) -> bool:
        """Whether a look is needless: the query has read everything, and only records concern it."""
        if (place := self.place) is None:
            return False
        planner, start = place
        return planner.has_read(start, ends)

    def unread(self, ends: Ends) -> list[LogPlace]:
        """Return what a look at it will ask of logs, if this can be asked in advance."""
        if (place := self.place) is None:
            return []
        planner, start = place
        return planner.unread(start, ends)


def looked_at(awake: Mapping[int, Planned], ends: Ends) -> dict[int, UnreadLook]:
    """Ask the logs once for several queries; queries without an answer ask by themselves."""
    places = {number: own for number, planned in awake.items() if (own := planned.unread(ends))}
    if not places:
        return {}
    dsn = next(planned.spec.dsn for planned in awake.values() if planned.spec is not None)
    try:
        with shared_connection(dsn) as connection:
            looked = UnreadLook(ends, unread_behind(connection, [place for own in places.values() for place in own]))
    except SourceUnavailable:
        return {}
    return dict.fromkeys(places, looked)

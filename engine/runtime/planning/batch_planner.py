"""Where a query's batches end.

One planner per query sees the positions of every input, so it can let them advance together in event time
(``engine.runtime.planning.admission``). ``next_cursor`` returns the query's *cursor*: positions, the wall clock of the batch (T5) and more.
The cursor travels with the batch, the sink commits it, and the next launch begins there. Its field ``is_full`` says that the batch's bound
left records unread, which makes a query heavy (``engine.runtime.limits.load``). ``engine.spark.streams.scheduling`` calls the planner;
``engine.runtime.source`` reads a batch's records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from engine.commit.commit_row import earliest_wake
from engine.commit.removed_records import Gap, gaps_between, gaps_of_cursor
from engine.commit.task_states import Cursor
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.log.backlogs import LogPlace, UnreadLook
from engine.log.sequences import LAST_MARK
from engine.plan.model import Input
from engine.postgres.postgres import shared_connection
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.admission import Admitted, Backlog, admit, admit_groups
from engine.runtime.planning.cursors import FeedInputs, Positions, Reach, feeds_of, heads_behind, lanes, new_cursor
from engine.runtime.planning.idle_partitions import AT_END, PartitionEnds, idle_partitions
from engine.runtime.planning.marks_read import marks_read, with_marks_read
from engine.runtime.planning.source_spec import HoldProgress, SourceSpec, SplitGroup, Weighed, grouped
from engine.runtime.planning.unread import UnreadRecords, is_table
from engine.runtime.planning.upstream import Reached, reached
from engine.runtime.planning.wall_clock import WallClock
from engine.sources.feeds import Limit

LOOK_GAP_MS = 2_000
"""Records found after a longer time without a look may have come at any moment in it: the feed was not silent (T10)."""

FIRST_ROWS = 125_000
"""Bound of a launch's first batch: if records hold their event times, all records are read before a worker begins."""

RAMP = 10
"""How many batches may each be twice as large as the one before."""

Upstream = Callable[[Sequence[str]], Mapping[str, Reached]]
"""Names of derived log feeds → the progress of their producers."""


class BatchPlanner:
    """Plans a query's batches, in the planning process of its slot.

    Args:
        spec: what is read, and how much at once.
        feeds: a reader for each feed, with the inputs that read it.
        clock: of the batches.
        upstream: returns the progress of derived feeds' producers; None: read from the database.
    """

    def __init__(
        self, spec: SourceSpec, feeds: Sequence[FeedInputs], clock: WallClock | None = None, upstream: Upstream | None = None
    ) -> None:
        self._spec = spec
        self._upstream = upstream or partial(_reached_in, spec.dsn)
        self._clock = clock or WallClock()
        self._feeds = feeds
        self._targets: Mapping[str, Mapping[int, int]] | None = None
        self._unread = UnreadRecords(spec.start, feeds)
        self._looked_ms: int | None = None
        self._planned = 0
        self._awake_ms = 0
        self._behind: dict[str, Reached] = {}
        self._last_marks: dict[str, int] = {}
        self._sources: tuple[tuple[str, int], ...] = ()
        self._partition_ends = PartitionEnds()

    @classmethod
    def of(cls, spec: SourceSpec) -> BatchPlanner:
        """Return the planner of a query's inputs, its replays included."""
        return cls(spec, feeds_of(spec))

    @property
    def start(self) -> Cursor:
        """Where the first batch of the launch begins."""
        return self._spec.start

    @property
    def watched(self) -> frozenset[str] | None:
        """The feeds in ``log.feed`` whose ends show whether a look would find data; None: only a look shows it, or time decides."""
        if self._spec.clock is not None or not all(reader.is_announced for reader, _ in self._feeds):
            return None
        return frozenset(reader.feed.log_feed for reader, _ in self._feeds)

    def has_read(self, cursor: Cursor, ends: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether a cursor is at the ends of all feeds. The feed of replays, which no input reads, need not exist.

        Args:
            cursor: of the query.
            ends: of ``watched``, from ``feed_ends``.
        """
        for reader, inputs in self._feeds:
            own = ends.get(reader.feed.log_feed)
            if own is None and inputs:
                return False
            read = {**cursor["feeds"].get(reader.feed.name, {}), LAST_MARK: cursor.get("last_marks", {}).get(reader.feed.name)}
            if any(read.get(partition, 0) != end for partition, end in (own or {}).items()):
                return False
        return True

    def prepare(self) -> None:
        """Limit reading to the records that exist now."""
        self._targets = self._ends_now(None)

    def unread(self, cursor: Cursor, ends: Mapping[str, Mapping[str, int]]) -> list[LogPlace]:
        """Return what a look from a cursor on will ask of logs; nothing if it also needs files, or the progress of derived feeds' producers."""
        is_asked_together = all(reader.is_asked_in_one_statement for reader, inputs in self._feeds if inputs)
        if not is_asked_together or any(reader.feed.log_feed not in ends for reader, inputs in self._feeds if inputs):
            return []
        return [
            LogPlace(reader.feed.log_feed, int(partition), position)
            for reader, inputs in self._feeds
            if inputs
            for partition, end in ends.get(reader.feed.log_feed, {}).items()
            if partition != LAST_MARK and (position := cursor["feeds"].get(reader.feed.name, {}).get(partition, 0)) < end
        ]

    def next_cursor(self, start: Cursor, looked: UnreadLook | None = None) -> Cursor:
        """Return where the next batch ends; ``start`` itself if there is no new data.

        Args:
            start: where it begins.
            looked: the answers for ``unread``, from one look at all feeds; None: nothing was asked.
        """
        found = self._look(start, looked)
        self._planned += found is not start
        return found

    def _look(self, start: Cursor, looked: UnreadLook | None) -> Cursor:
        targets = self._ends_now(looked) if self._targets is None else self._targets
        is_merged = lanes(self._feeds, targets) > 1
        behind = self._behind
        backlogs, gaps = self._unread.look(start, targets, looked, self._ahead(self._planned), is_merged=is_merged)
        self._check_epochs(start)
        horizon_ms = self._horizon_ms(behind) if is_merged else None
        limit = self._bound(self._planned)
        if is_merged:
            admitted = admit_groups(backlogs, limit, self._unread.first_at, horizon_ms, partial(self._unread.further, targets))
        else:
            admitted = admit(backlogs, limit, None)
        now_ms = self._clock.now_ms(start["now_ms"])
        self._note_look(backlogs, admitted, now_ms)
        reach = self._reach_of_pending(behind)
        at_end = self._at_end(start, targets, backlogs, admitted, now_ms)
        if not gaps and all(
            start["feeds"].get(feed, {}).get(str(partition), 0) == end for (feed, partition), end in admitted.ends.items()
        ):
            last_marks = self._read_marks(start, backlogs, admitted)
            fields = reach, gaps_of_cursor(start, start["feeds"], [])
            found: Cursor = {**self._cursor(start["feeds"], now_ms, self._awake_ms, start.get("heads", {}), *fields), **at_end}
            has_news = last_marks != start.get("last_marks", {}) or self._idle(start, found) != self._idle(start, start)
            is_due = has_news or self._has_new_requests(start) or self._is_due(start, now_ms, reach)
            return with_marks_read(found, last_marks, admitted) if is_due else start
        if horizon_ms is None:
            self._unread.ask_for_next(backlogs, admitted, self._ahead(self._planned + 1), is_merged=is_merged)
        # With a horizon, the records left wait for another feed; without one, the batch's bound has left them.
        read = {reader.feed.name for reader, inputs in self._feeds if inputs}
        is_full = horizon_ms is None and not all(_is_read(backlog, admitted) for backlog in backlogs if backlog.feed in read)
        feeds = {feed: dict(partitions) for feed, partitions in start["feeds"].items()}
        for gap in gaps:
            feeds.setdefault(gap.feed, {})[gap.partition] = gap.stop
        for (feed, partition), end in admitted.ends.items():
            feeds.setdefault(feed, {})[str(partition)] = end
        found = self._cursor(
            feeds, now_ms, self._awake_ms, heads_behind(start, admitted), reach, gaps_of_cursor(start, feeds, gaps)
        )
        found = with_marks_read({**found, **at_end}, self._read_marks(start, backlogs, admitted), admitted)
        return {**found, "is_full": True} if is_full else found

    def _read_marks(self, start: Cursor, backlogs: Sequence[Backlog], admitted: Admitted) -> Mapping[str, int]:
        are_all_read = all(_is_read(backlog, admitted) for backlog in backlogs)
        readers = [reader for reader, _ in self._feeds]
        return marks_read(readers, start.get("last_marks", {}), self._last_marks, admitted, are_all_read=are_all_read)

    def _bound(self, planned: int) -> BatchLimit:
        """Return the bound of the batch with this number: the first ones are smaller, because workers wait while the first is planned."""
        limit = self._spec.limit
        return replace(limit, max_rows=min(FIRST_ROWS << min(planned, RAMP), limit.max_rows))

    def _ahead(self, planned: int) -> Limit:
        bound = self._bound(planned)
        return Limit(bound.max_rows, bound.max_bytes)

    def _cursor(
        self,
        feeds: Positions,
        now_ms: int,
        awake_ms: int,
        heads: Positions | None = None,
        reach: Reach | None = None,
        unread: Mapping[str, Any] | None = None,
    ) -> Cursor:
        fields = {**(unread or {})} | ({"heads": heads} if heads else {}) | ({"reach": reach} if reach else {})
        epochs = {reader.feed.name: found for reader, _ in self._feeds if (found := reader.epochs())}
        fields |= (
            {"epochs": {feed: {str(part): epoch for part, epoch in found.items()} for feed, found in epochs.items()}}
            if epochs
            else {}
        )
        begun = new_cursor(feeds, self._spec.release, self._spec.generation)
        return {**begun, "now_ms": now_ms, "awake_ms": awake_ms, **fields}

    def _check_epochs(self, start: Cursor) -> None:
        """Check that the feeds still hold the records that were read."""
        for reader, _ in self._feeds:
            name = reader.feed.name
            if name in start.get("epochs", {}):
                parts = start["feeds"].get(name, {}), start["epochs"][name], self._spec.start["feeds"].get(name, {})
                reader.check_epochs(*({int(partition): each for partition, each in part.items()} for part in parts))

    def _has_new_requests(self, start: Cursor) -> bool:
        """Whether no batch has brought the tasks the newest release request (J11), or a first tick after a change of their number.

        The batch that brings it is known by its cursors.
        """
        return bool(start.get("release", 0) != self._spec.release or start.get("generation", 0) != self._spec.generation)

    def groups(self, start: Cursor, end: Cursor) -> list[SplitGroup]:
        """Cut a batch's input into groups of splits, about equally heavy; into one group if the query shares its slot."""
        weighed: list[Weighed] = []
        is_merged = lanes(self._feeds, end["feeds"]) > 1
        gaps = gaps_between(start, end)
        begins = {(gap.feed, gap.partition): gap.stop for gap in gaps}
        for index, (reader, _) in enumerate(self._feeds):
            before, heads = (start.get(part, {}).get(reader.feed.name, {}) for part in ("feeds", "heads"))
            for partition, last in end["feeds"].get(reader.feed.name, {}).items():
                first = begins.get((reader.feed.name, partition), before.get(partition, 0))
                head = heads.get(partition, BEFORE_ALL_TIME) if is_merged else None
                splits = reader.splits(int(partition), first, last) if first < last else []
                if splits or end.get("last_marks") != start.get("last_marks"):
                    splits = reader.with_marks(splits, last, end.get("cut"), start.get("last_marks", {}).get(reader.feed.name))
                weighed += [(split.weight_bytes, index, replace(split, head=head)) for split in splits]
        held = self._hold_progress(end)
        groups = grouped(weighed, self._spec.cores) if self._spec.cores else [[(index, split) for _, index, split in weighed]]
        is_release = start.get("release", 0) != end.get("release", 0)
        is_shared_anew = start.get("generation", 0) != end.get("generation", 0)
        has_ticks = self._spec.clock is not None or is_release or is_shared_anew
        groups, idle = groups or [[]], self._idle(start, end)
        awake_ms, cuts, lost = end.get("awake_ms", 0), self._cuts(start, end), self._lost(gaps)
        return [
            SplitGroup(
                tuple(group),
                end["now_ms"],
                held,
                has_ticks and place == 0,
                awake_ms,
                is_release,
                () if place else cuts,
                None if place else end,
                len(groups) == 1,
                () if place else lost,
                idle,
            )
            for place, group in enumerate(groups)
        ]

    def _cuts(self, start: Cursor, end: Cursor) -> tuple[Input, ...]:
        """Return an input of each partition that a batch cuts inside one event time."""
        positions = end["feeds"], start["feeds"]
        return tuple(
            inputs[0]
            for reader, inputs in self._feeds
            for partition in end.get("heads", {}).get(reader.feed.name, {})
            if len({each.get(reader.feed.name, {}).get(partition, 0) for each in positions}) > 1
        )

    def _lost(self, gaps: Sequence[Gap]) -> tuple[tuple[Input, Gap], ...]:
        """Return the removed records, with an input that would have read them."""
        inputs = {reader.feed.name: found[0] for reader, found in self._feeds if found}
        return tuple((inputs[gap.feed], gap) for gap in gaps if gap.feed in inputs)

    def _note_look(self, backlogs: Sequence[Backlog], admitted: Admitted, now_ms: int) -> None:
        """Record since when no look has left new records unread."""
        is_late_look = self._looked_ms is None or now_ms - self._looked_ms > LOOK_GAP_MS
        is_read = all(_is_read(backlog, admitted) for backlog in backlogs)
        # A derived feed is silent when the sources behind it are (P5), and not while records are on their way.
        sources = tuple(source for each in self._behind.values() for source in each.sources)
        is_on_its_way = any(not each.has_all_records for each in self._behind.values()) or sources != self._sources
        if self._looked_ms is None or is_on_its_way or (backlogs and (is_late_look or not is_read)):
            self._awake_ms = now_ms
        self._looked_ms, self._sources = now_ms, sources

    def _at_end(
        self,
        start: Cursor,
        targets: Mapping[str, Mapping[int, int]],
        backlogs: Sequence[Backlog],
        admitted: Admitted,
        now_ms: int,
    ) -> Cursor:
        """Return the cursor's field that says since when partitions have been at their end, where a query asks for it (T12)."""
        if self._spec.clock is None or self._spec.clock.slowest_after_ms is None:
            return {}
        ends = {(reader.feed.name, part): end for reader, _ in self._feeds for part, end in targets[reader.feed.name].items()}
        # Behind the last record of a partition there may be offsets without records.
        ends |= {(each.feed, each.partition): each.chunks[-1].end_offset for each in backlogs if _is_read(each, admitted)}
        return {AT_END: self._partition_ends.look(start, ends, admitted.ends, self._behind, now_ms)}

    def _idle(self, start: Cursor, end: Cursor) -> tuple[tuple[str, int], ...]:
        """Return the partitions that do not make time in a batch (T12)."""
        clock = self._spec.clock
        return () if clock is None or clock.slowest_after_ms is None else idle_partitions(start, end, clock.slowest_after_ms)

    def _horizon_ms(self, behind: Mapping[str, Reached]) -> int | None:
        """Return how far feeds may be read together: not beyond records that are on their way to one of them (P4).

        A join that holds for a table waits for it by itself, no longer than its definition says (J9).
        """
        held = frozenset[str]() if self._spec.clock is None else self._spec.clock.held_feeds
        late = [each.merged_to_ms for name, each in behind.items() if not each.is_at_end and name not in held]
        return min((-1 if ms is None else ms for ms in late), default=None)

    def _reach_of_pending(self, behind: Mapping[str, Reached]) -> Reach:
        """Return how far the sources behind held derived feeds have been read, and whether that is all."""
        held = frozenset[str]() if self._spec.clock is None else self._spec.clock.held_feeds
        return {name: [each.read_to_ms, each.is_at_end] for name, each in behind.items() if name in held}

    def _hold_progress(self, end: Cursor) -> dict[tuple[int, int], HoldProgress]:
        """Return, for each held partition, how far the batch reads it."""
        names = frozenset[str]() if self._spec.clock is None else self._spec.clock.held_feeds
        held = {}
        for index, (reader, _) in enumerate(self._feeds):
            if reader.feed.name not in names:
                continue
            read_to_ms, is_all = end.get("reach", {}).get(reader.feed.name, (None, not reader.feed.is_derived))
            for partition, last in reader.ends().items():
                is_read = end["feeds"].get(reader.feed.name, {}).get(str(partition), 0) >= last
                held[index, partition] = HoldProgress(is_read and is_all, read_to_ms if is_read else None)
        return held

    def _is_due(self, start: Cursor, now_ms: int, reach: Reach) -> bool:
        """Whether a task asked to be woken by now, or holds for a table with more progress.

        A launch wakes all tasks: the definition may have been edited in place.
        """
        last_ms = start["now_ms"]
        if self._spec.clock is None or now_ms <= last_ms:
            return False
        if not self._planned and last_ms > 0:
            return True
        with shared_connection(self._spec.dsn) as connection:
            wakes_at_ms = earliest_wake(connection, self._spec.clock.query_id)
        return wakes_at_ms is not None and (wakes_at_ms <= now_ms or reach != start.get("reach", {}))

    def _ends_now(self, looked: UnreadLook | None) -> dict[str, Mapping[int, int]]:
        """Return the end of each feed.

        Tables are asked last: records that a table had before a stream's record are then read with it, even if this process pauses in between.
        Producers of derived feeds are asked before the feeds and after the sources. A producer that has read to the end has then written
        all results of the sources' records.
        """
        ends: dict[str, Mapping[int, int]] = {}
        self._behind = {}
        self._last_marks = {}
        if looked is not None:  # one moment for all feeds, so tables are not behind streams
            own = {reader.feed.name: looked.ends.get(reader.feed.log_feed, {}).get(LAST_MARK) for reader, _ in self._feeds}
            self._last_marks = {name: last_mark_ms for name, last_mark_ms in own.items() if last_mark_ms is not None}
            names = {reader.feed.name: reader.feed.log_feed for reader, _ in self._feeds}
            return {
                name: {int(partition): end for partition, end in looked.ends.get(feed, {}).items() if partition != LAST_MARK}
                for name, feed in names.items()
            }
        for of_tables in (False, True):
            feeds = [reader for reader, inputs in self._feeds if is_table(inputs) == of_tables]
            ends |= {reader.feed.name: reader.ends() for reader in feeds if not reader.feed.is_derived}
            derived = [reader for reader in feeds if reader.feed.is_derived]
            if derived and (len(self._feeds) > 1 or self._spec.clock is not None):
                found = self._upstream([reader.feed.log_feed for reader in derived])
                self._behind |= {each.feed.name: found[each.feed.log_feed] for each in derived if each.feed.log_feed in found}
            # Marks are asked for before rows: those that come meanwhile tell of rows that are read later.
            self._last_marks |= {
                reader.feed.name: last_mark_ms for reader in derived if (last_mark_ms := reader.last_mark_ms()) is not None
            }
            ends |= {reader.feed.name: reader.ends() for reader in derived}
        return ends


def _reached_in(dsn: str, feeds: Sequence[str]) -> Mapping[str, Reached]:
    with shared_connection(dsn) as connection:
        return reached(connection, feeds)


def _is_read(backlog: Backlog, admitted: Admitted) -> bool:
    """Whether a batch reads all unread records of a partition."""
    return backlog.is_whole and admitted.ends.get((backlog.feed, backlog.partition)) == backlog.chunks[-1].end_offset

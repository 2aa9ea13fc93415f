"""The sink: all effects of one micro-batch, in one Postgres transaction, exactly once. It is the only commit there is.

Rows or records, the change feed, late records, rejects, counters, position and clocks, the state of the tasks and the start of the next batch
become visible together or not at all. The row of ``log.commit`` is both memory and fence. It refuses a launch with another epoch,
and a batch that is not the next one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import polars as pl
import psycopg

from engine.commit.commit_row import BY_TIME, CommitRow, ReportedNames
from engine.commit.history.retained_commits import NOTHING_RETAINED, retain
from engine.commit.late_log import LateLog, keep_rejects
from engine.commit.outputs import form_of, with_keys
from engine.commit.result_marks import Numbering, causes_of, result_marks
from engine.commit.sink_batch import ClockReading, Committed, GroupedPackets, by_task, counters_of, readings_of
from engine.commit.views import RESULT_TIME
from engine.commit.written import COMMIT_CHANNEL as COMMIT_CHANNEL
from engine.commit.written import SharedRows
from engine.errors import CommitRefused, EpochFenced, InvariantBroken, ResultLocked, ResultUnwritable, SinkUnavailable
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.frames.frames import only, without
from engine.log.marks import NO_MARKS
from engine.log.sequence import CAUSES, numbered
from engine.log.sequences import Advance, SequencedFeed, add_partitions, blocks_of, open_sequences
from engine.operators.tasks.order import BatchOrder
from engine.operators.tasks.query_times import QueryTimes
from engine.plan.catalog import result_feed
from engine.plan.model import Plan
from engine.postgres.fence import sink_name
from engine.postgres.postgres import DATABASE_AWAY, SinkLink
from engine.sources.packets import Packet

TOGETHER_LOCK = "500ms"
"""How long batches that share a transaction wait for a lock: they hold the others' locks meanwhile, and each can wait alone."""

REPLAYED = "$replayed"
"""Column (true) of a result's records and changes from replayed late records; others lack it."""

Cursor = psycopg.Cursor[Any]
Json = dict[str, Any]


@dataclass(slots=True)
class _Emitted:
    """The rows that a batch's tasks emitted, and their counters.

    Attributes:
        stream_time_ms: as of the batch before.
        order: of the batch.
        last_mark_ms: the time of the last mark in the result's log; None: there is none.
    """

    changes: Sequence[pl.DataFrame]
    replayed: Sequence[pl.DataFrame]
    counters: dict[tuple[str, str], int]
    stream_time_ms: int | None
    order: BatchOrder
    last_mark_ms: int | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A batch that is about to be committed.

    Attributes:
        begun: when its packets had come.
    """

    sink: Sink
    batch_id: int
    batch: GroupedPackets
    begun: ClockReading

    @property
    def spent(self) -> ClockReading:
        """The time since it began."""
        now = ClockReading.now()
        return ClockReading(now.wall_ns - self.begun.wall_ns, now.cpu_ns - self.begun.cpu_ns)

    @property
    def is_light(self) -> bool:
        """Whether it can share a transaction: it needs only its own query's locks, and everything is sent without waiting for answers."""
        return self.batch.is_small and not self.batch.replayed and not self.batch.rejects

    def contents(self) -> Committed:
        """Return a description of the batch."""
        batch = self.batch
        return Committed(
            batch.rows, batch.cpu_ms, batch.cursor, batch.emitted_bytes, batch.part_ms, batch.process_ms(), batch.busiest(),
            batch.read_ms, batch.function_ms(),
        )  # fmt: skip

    def committed(self) -> Committed:
        """Return a description of the batch after its commit.

        Raises:
            BufferFull: a task's buffer passed its bound.
        """
        if failure := self.batch.failure():
            # The rows before the overflow are committed; the rest waits in the state until the definition is corrected.
            raise failure
        return self.contents()


def commit_together(link: SinkLink, drafts: Sequence[Draft]) -> bool:
    """Commit light batches of several queries in one transaction; return whether all are committed, else none is.

    One query that is fenced, has an unwritable value or meets a lock fails them all. Each is then committed alone, which shows the
    query.

    Raises:
        SinkUnavailable: the connection was lost, perhaps after the commit. Retryable.
    """
    try:
        _transact(link, drafts)
    except Exception as error:
        if link.is_lost:
            link.close()
            raise SinkUnavailable(f"batches of {len(drafts)} queries: {error}") from error
        return False
    return True


def _transact(link: SinkLink, drafts: Sequence[Draft]) -> None:
    conn = link.connection()
    is_small = all(draft.batch.is_small for draft in drafts)
    written = SharedRows()
    try:
        with conn.pipeline() if is_small else nullcontext(), conn.transaction(), conn.cursor() as cursor:
            rows, feeds = _fence(cursor, drafts)
            for draft in drafts:
                sink = draft.sink
                before = sink.fenced(rows.get(sink.query_id), draft.batch_id)
                if (feed := feeds.get(sink.feed)) is None:
                    raise InvariantBroken(f"the result's feed {sink.feed} does not exist")
                sink.write(cursor, draft, before, feed, written)
            written.send(cursor)
            for draft in drafts:
                draft.sink.retain(cursor)
    except BaseException:
        for draft in drafts:
            draft.sink.forget()
        raise


def _fence(cursor: Cursor, drafts: Sequence[Draft]) -> tuple[dict[UUID, tuple[Any, ...]], dict[str, SequencedFeed]]:
    """Lock the commit rows and the feeds of results; return the rows by query, and the feeds by name."""
    sinks = [draft.sink for draft in drafts]
    if len(sinks) == 1:
        cursor.execute("SELECT set_config('application_name', %s, true)", (sink_name(sinks[0].query_id, sinks[0].epoch),))
    else:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", (TOGETHER_LOCK,))
    with cursor.connection.cursor() as fences:
        fences.execute(
            """
            SELECT query_id, checkpoint_id, epoch, batch_id, position, detail FROM log.commit WHERE query_id = ANY(%s)
            ORDER BY query_id FOR UPDATE
            """,
            ([sink.query_id for sink in sinks],),
        )
        feeds = open_sequences(cursor.connection, [sink.feed for sink in sinks])
        return {query_id: row for query_id, *row in fences}, feeds


class Sink:
    """Commits the batches of one launch.

    Attributes:
        link: the connection for its commits.
        execution: recorded with each commit about the query's slot (``engine.spark.streams.slot``); None: nothing.
        retaining: which commits are kept as restore points.

    Args:
        dsn: the database.
        plan: the query's plan; its output exists already (view or log feed).
        query_id: the query.
        checkpoint_id: batch ids are counted per checkpoint.
        epoch: the launch, as returned by ``claim_epoch``.
        link: shared with others; None: its own.
    """

    def __init__(
        self, dsn: str, plan: Plan, query_id: UUID, checkpoint_id: UUID, epoch: int, link: SinkLink | None = None
    ) -> None:
        self._plan = plan
        self._query_id = query_id
        self._checkpoint_id = checkpoint_id
        self._epoch = epoch
        self._form = form_of(plan.output)
        self._names = ReportedNames(plan)
        self._late = LateLog(query_id, plan.late_records)
        self.link = link or SinkLink(dsn)
        self.execution: Json | None = None
        self.retaining = NOTHING_RETAINED
        self._retained_at_s: float | None = None

    def commit(self, batch_id: int, packets: Sequence[Packet], earlier_ms: Mapping[str, int] | None = None) -> Committed:
        """Write all effects of a batch; return its description.

        Args:
            batch_id: counted per checkpoint, over all launches.
            packets: of the last stage, with their blobs.
            earlier_ms: phases of the batch before that are known only now, in milliseconds; stored beside this batch's own.

        Raises:
            EpochFenced: another launch holds the fence.
            InvariantBroken: the batch is committed already.
            SinkUnavailable: the database cannot be reached. Retryable.
            CommitRefused: the database refuses this batch for now, was restored and lacks batches, or the batch has another number. Retryable.
            ResultUnwritable: Postgres can never hold a value of the result.
            BufferFull: after the commit, if a task's buffer passed its bound.
        """
        return self.commit_draft(self.drafted(batch_id, packets, earlier_ms))

    def drafted(self, batch_id: int, packets: Sequence[Packet], earlier_ms: Mapping[str, int] | None = None) -> Draft:
        """Return a batch prepared for its commit; see ``commit``.

        Raises:
            CommitRefused: it was planned under another number.
        """
        begun = ClockReading.now()
        batch = GroupedPackets.of(packets)
        if batch.planned_as not in (None, batch_id):
            # It begins where that batch began. The fence cannot detect this, because it counts commits.
            raise CommitRefused(
                f"batch {batch_id} was to come next, and what came was planned as batch {batch.planned_as}. The next attempt goes on from "
                "the last commit"
            )
        batch.earlier_ms = earlier_ms or {}
        return Draft(self, batch_id, batch, begun)

    def commit_draft(self, draft: Draft) -> Committed:
        """Commit a batch in its own transaction; see ``commit``."""
        try:
            _transact(self.link, [draft])
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            name = self._plan.output.name
            if self._plan.output.is_final and isinstance(error, psycopg.errors.UniqueViolation):
                raise InvariantBroken(f"a final window of {name} was emitted twice: {error.diag.message_detail}") from error
            raise ResultUnwritable(f"the result {name} cannot be written: {error}. Change the query's select.") from error
        except psycopg.errors.LockNotAvailable as error:
            raise ResultLocked(
                f"somebody holds a lock on what belongs to {self._plan.output.name}: {error}. `pg_locks` and `pg_stat_activity` tell who"
            ) from error
        except DATABASE_AWAY as error:
            # On a working connection the transaction is rolled back. Otherwise its result is unknown: the next launch checks.
            if not self.link.is_lost:
                raise CommitRefused(f"batch {draft.batch_id}: {error}") from error
            self.close()
            raise SinkUnavailable(f"batch {draft.batch_id}: {error}") from error
        return draft.committed()

    def close(self) -> None:
        """Close the connection; the next commit opens another. Two threads may call it at once."""
        self.link.close()

    @property
    def query_id(self) -> UUID:
        return self._query_id

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def feed(self) -> str:
        """The log feed of the result."""
        return result_feed(self._plan.output)

    def forget(self) -> None:
        """Drop values from a transaction that did not commit."""
        self._late.forget()
        self._retained_at_s = None

    def fenced(self, row: tuple[Any, ...] | None, batch_id: int) -> CommitRow:
        """Return the content of the locked commit row, if this launch holds the fence and the batch comes next."""
        if row is None or row[0] != self._checkpoint_id or row[1] != self._epoch:
            raise EpochFenced(f"query {self._query_id}: epoch {self._epoch} does not hold the fence")
        last = -1 if row[2] is None else row[2]
        if batch_id <= last:
            raise InvariantBroken(f"query {self._query_id}: batch {batch_id} is to be committed behind batch {last}")
        if batch_id > last + 1:
            # The batches that this launch has planned and cached are gone. Everything that the next launch needs exists.
            raise CommitRefused(
                f"batch {batch_id} was to come next and the results end with {'no batch' if row[2] is None else f'batch {last}'}: the "
                "database was put back to an earlier time. The next attempt goes on from what it holds"
            )
        return CommitRow(row[3], row[4]).within(self._plan.tasks)

    def write(self, cursor: Cursor, draft: Draft, before: CommitRow, feed: SequencedFeed, written: SharedRows) -> None:
        """Write the query's own rows, and collect the rows of shared tables.

        Args:
            cursor: inside the transaction.
            draft: the batch.
            before: the commit row.
            feed: of the result.
            written: the collected rows.
        """
        batch = draft.batch
        counters = counters_of(batch, self._plan)
        changes = by_task(batch.changes, self._plan.tasks)
        again = [frame.with_columns(pl.lit(value=True).alias(REPLAYED)) for frame in by_task(batch.replayed, self._plan.tasks)]
        readings = readings_of(batch, self._plan)
        times = QueryTimes.of_snapshot(before.detail.get("times")).at(batch.now_ms, batch.awake_ms, batch.held, batch.idle)
        order = times.order(self._plan, readings, is_release=batch.is_release)
        stream_time_ms = before.stream_time(self._plan, self._names)
        emitted = _Emitted(changes, again, counters, stream_time_ms, order, feed.last_mark_ms)
        rows = self._write_changes(cursor, batch, emitted, feed, written)
        self._form.write_open(cursor, batch.opened, [*changes, *again])
        after = before.advanced(batch.progress, batch.stats, rows, self._names)
        times_behind = times.behind(self._plan, order, readings)
        after.detail["last_mark_ms"] = emitted.last_mark_ms
        after.detail["times"], after.detail["clocks"] = times_behind.snapshot(), self._clocks(order)
        wakes_at_ms = times_behind.wakes_at_ms(self._plan, order, after.detail["dues"].values())
        after.detail["wakes"] |= {} if wakes_at_ms is None else {BY_TIME: wakes_at_ms}
        stream_time_ms = after.stream_time(self._plan, self._names)
        if stream_time_ms is not None:
            self._form.expire(cursor, stream_time_ms)
        if batch.late:
            overflow = self._late.keep(cursor, batch.late_rows(), batch.now_ms)
            if overflow:
                counters["late_records", "late_records_overflow"] += overflow
        keep_rejects(cursor, self._plan, batch)
        for (name, reason), count in counters.items():
            written.count(self._query_id, name, reason, count)
        own_ms = {"process": batch.process_ms(), "sink": draft.spent.wall_ns // 1_000_000}
        after.detail["phases_ms"] = own_ms | dict(batch.earlier_ms)
        if self.execution is not None:
            after.detail["execution"] = self.execution
        written.commit(self._query_id, draft.batch_id, (after.position, stream_time_ms, after.detail, batch.cursor))
        for place, state in batch.states.items():
            written.state(self._query_id, place, state)

    def retain(self, cursor: Cursor) -> None:
        """Retain this commit if the last retained one is long enough ago. The statement also finds those of earlier launches.

        Args:
            cursor: inside the transaction, after all other statements.
        """
        every_ms, now_s = self.retaining.every_ms, time.monotonic()
        if every_ms and (self._retained_at_s is None or (now_s - self._retained_at_s) * 1000 >= every_ms):
            retain(cursor, self._query_id, self.feed, self.retaining)
            self._retained_at_s = now_s

    def _clocks(self, order: BatchOrder) -> dict[str, int]:
        """Return the time before each operator, and that of the table beside it, as of the end of the batch."""
        clocks = {self._names.of(*place): clock.end for place, clock in order.operator_clocks(self._plan).items()}
        return {name: end for name, end in clocks.items() if end != BEFORE_ALL_TIME}

    def _write_changes(
        self, cursor: Cursor, batch: GroupedPackets, emitted: _Emitted, feed: SequencedFeed, written: SharedRows
    ) -> int:
        """Write rows, and append them to the result's log in the order of the merge of the inputs (P6), with the marks of time (P14)."""
        output, reached_ms, count = self._plan.output, feed.reached_ms, 0
        kept: list[pl.DataFrame] = []
        for frames in (emitted.changes, emitted.replayed) if emitted.replayed else (emitted.changes,):
            named = with_keys(frames, output, emitted.counters)
            causes = [causes_of(frame) for frame in named]
            numbers = numbered(causes, reached_ms, emitted.order.newest_head)
            marks = NO_MARKS
            if frames is emitted.changes:
                marks = result_marks(self._plan, Numbering(named, causes, numbers), emitted.order, feed, emitted.last_mark_ms)
            rows = [without(frame, *CAUSES) for frame in named]
            kept += [only(frame, RESULT_TIME, "_op", *output.columns.names) for frame in rows if frame.height]
            added = sum(frame.height for frame in rows)
            if rows or numbers.reached_ms != feed.reached_ms or len(marks.times):
                add_partitions(cursor.connection, feed, len(rows))
                advance = Advance(
                    feed.id, feed.next_sequence + added, numbers.reached_ms, marks.last_ms, self._query_id, len(rows)
                )
                written.append(advance, blocks_of(feed, rows, numbers, batch.now_ms))
                written.tell(feed.id, marks)
                emitted.last_mark_ms = emitted.last_mark_ms if marks.last_ms is None else marks.last_ms
            feed = replace(feed, next_sequence=feed.next_sequence + added, partitions=max(feed.partitions, len(rows)))
            reached_ms, count = numbers.reached_ms, count + added
        if kept:
            self._form.write(cursor, kept, emitted.stream_time_ms)
        return count

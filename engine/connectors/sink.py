"""The sink: everything one micro-batch caused, in one Postgres transaction, exactly once. It is the only commit there is.

Rows or records, the change feed, late records, rejects, counters, position and clocks, the state of the tasks and where the next batch begins
become visible together or not at all. The row of ``log.commit`` is both memory and fence: a launch whose epoch is not the one in it is
refused, and so is a batch that does not come next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any
from uuid import UUID

import polars as pl
import psycopg
from psycopg.types.json import Jsonb

from engine.connectors.commit_row import CommitRow
from engine.connectors.fence import sink_name
from engine.connectors.late_log import LateLog
from engine.connectors.packets import Packet
from engine.connectors.sequences import append_rows, open_sequence
from engine.connectors.sink_batch import Batch, counters_of, read_of
from engine.connectors.sink_link import SinkLink
from engine.connectors.task_states import write_states
from engine.connectors.views import RESULT_TIME, apply_changes, apply_open, expire_windows
from engine.core.clocks import AFTER_ALL_TIME
from engine.core.frames import HEAD, constant, without
from engine.core.order import CAUSE_COLUMNS, NO_LANE
from engine.core.sequence import numbered
from engine.errors import DataInvalid, EpochFenced, InvariantBroken, ResultLocked, SinkUnavailable
from engine.plan.model import Output, Plan
from engine.plan.naming import ReportedNames

COMMIT_CHANNEL = "slackwater_commit"
REJECTS_KEPT = 100_000
"""Rows of rejects kept per relation; the count goes on."""

REPLAYED = "$replayed"
"""Column (true) of a result's records, and of a result table's changes, that came of replayed late records; others lack it."""

Cursor = psycopg.Cursor[Any]
Json = dict[str, Any]


def change_feed(table: str) -> str:
    """Return the name of the log feed that holds every change of a derived table."""
    return f"changes:{table}"


def result_feed(output: Output) -> str:
    """Return the name of the log feed of a result: that of its changes, or of its records."""
    return change_feed(output.name) if output.kind == "table" else output.name


def claim_epoch(conn: psycopg.Connection[Any], query_id: UUID, checkpoint_id: UUID, epoch: int) -> None:
    """Take the fence for a launch: from now on only this epoch commits. Waits for a commit of the old launch that is under way.

    Raises:
        EpochFenced: a newer launch has taken it.
    """
    with conn.transaction():
        taken = conn.execute(
            """
            INSERT INTO log.commit AS c (query_id, checkpoint_id, epoch) VALUES (%(query)s, %(checkpoint)s, %(epoch)s)
            ON CONFLICT (query_id) DO UPDATE SET
                epoch = excluded.epoch,
                batch_id = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.batch_id END,
                position = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.position ELSE '{}' END,
                detail = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.detail ELSE '{}' END,
                stream_time_ms = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.stream_time_ms END,
                cursor = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.cursor END,
                layout = CASE WHEN c.checkpoint_id = excluded.checkpoint_id THEN c.layout END,
                checkpoint_id = excluded.checkpoint_id
            WHERE c.epoch < excluded.epoch
            RETURNING 1
            """,
            {"query": query_id, "checkpoint": checkpoint_id, "epoch": epoch},
        ).fetchone()
        # Of a checkpoint that was given up, nothing is left above; and so nothing is to be found here.
        conn.execute(
            """
            DELETE FROM log.task_state s USING log.commit c
            WHERE s.query_id = %s AND c.query_id = s.query_id AND c.epoch = %s AND c.layout IS NULL
            """,
            (query_id, epoch),
        )
    if taken is None:
        raise EpochFenced(f"query {query_id}: epoch {epoch} is not newer than the one that holds the fence")


def earliest_wake(conn: psycopg.Connection[Any], query_id: UUID) -> int | None:
    """Return the wall clock at which the first task of a query has something to do without input; None for never."""
    row = conn.execute(
        "SELECT min(wake.value::bigint) FROM log.commit, jsonb_each_text(detail -> 'wakes') AS wake WHERE query_id = %s",
        (query_id,),
    ).fetchone()
    return None if row is None else row[0]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a committed batch was.

    Attributes:
        rows: input records.
        cpu_ms: CPU time of its tasks.
        cursor: where it ends; None where nobody said so.
        emitted_bytes: size of what its tasks emitted.
        part_ms: how long reading and work took in the one worker that did both; None: several did.
        process_ms: how long its tasks worked.
        busiest: share of its busiest task in the work of all; None where fewer than two had work.
    """

    rows: int
    cpu_ms: int
    cursor: Json | None
    emitted_bytes: int
    part_ms: int | None
    process_ms: int
    busiest: float | None


class Sink:
    """Commits the batches of one launch.

    Attributes:
        link: over which it commits.
        carrier: what is noted of the query's carrier with each commit (``engine.spark.carrier``); None: nothing.

    Args:
        dsn: the database.
        plan: the query's plan; its output exists already (view or log feed).
        query_id: the query.
        checkpoint_id: batch ids are counted per checkpoint.
        epoch: the launch, as taken with ``claim_epoch``.
        link: which it shares with others; None: one of its own.
    """

    def __init__(
        self, dsn: str, plan: Plan, query_id: UUID, checkpoint_id: UUID, epoch: int, link: SinkLink | None = None
    ) -> None:
        self._plan = plan
        self._query_id = query_id
        self._checkpoint_id = checkpoint_id
        self._epoch = epoch
        self._late = LateLog(query_id, plan.late_records)
        self.link = link or SinkLink(dsn)
        self.carrier: Json | None = None

    def commit(self, batch_id: int, packets: Sequence[Packet], earlier_ms: Mapping[str, int] | None = None) -> Committed:
        """Write everything a batch caused; returns what it was.

        Args:
            batch_id: counted per checkpoint, over all launches.
            packets: what the last stage made, with their blobs.
            earlier_ms: phases of the batch before that are known only now, in milliseconds; told beside this batch's own.

        Raises:
            EpochFenced: another launch holds the fence.
            InvariantBroken: the batch is committed already.
            SinkUnavailable: the database cannot be reached, refuses for now, or was put back and lacks batches. Retryable.
            DataInvalid: Postgres cannot hold a value of the result, and never will.
            BufferFull: after the commit, where a task's buffer passed its bound.
        """
        begun = perf_counter()
        batch = Batch.of(packets)
        batch.earlier_ms = earlier_ms or {}
        try:
            self._transact(batch_id, batch, begun)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            name = self._plan.output.name
            if self._plan.output.is_final and isinstance(error, psycopg.errors.UniqueViolation):
                raise InvariantBroken(f"a final window of {name} was emitted twice: {error.diag.message_detail}") from error
            raise DataInvalid(f"the result {name} cannot be written: {error}. Change the query's select.") from error
        except psycopg.errors.LockNotAvailable as error:
            raise ResultLocked(
                f"somebody holds a lock on what belongs to {self._plan.output.name}: {error}. `pg_locks` and `pg_stat_activity` tell who"
            ) from error
        except psycopg.OperationalError as error:
            self.close()
            raise SinkUnavailable(f"batch {batch_id}: {error}") from error
        if failure := batch.failure():
            # What came before it is committed; the rest waits in the state for the definition to be mended.
            raise failure
        return Committed(
            batch.rows, batch.cpu_ms, batch.cursor, batch.emitted_bytes, batch.part_ms, batch.process_ms(), batch.busiest()
        )

    def _transact(self, batch_id: int, batch: Batch, begun: float) -> None:
        conn = self.link.connection()
        try:
            with conn.pipeline() if batch.is_small else nullcontext(), conn.transaction(), conn.cursor() as cursor:
                self._write(cursor, batch_id, batch, self._fence(cursor, batch_id), begun)
        except BaseException:
            self._late.forget()
            raise

    def close(self) -> None:
        """Close the connection; the next commit opens another. May be called by two threads at once."""
        self.link.close()

    def _fence(self, cursor: Cursor, batch_id: int) -> CommitRow:
        """Lock the commit row, and return what it says."""
        row = cursor.execute(
            """
            SELECT checkpoint_id, epoch, batch_id, position, detail, set_config('application_name', %s, true)
            FROM log.commit WHERE query_id = %s FOR UPDATE
            """,
            (sink_name(self._query_id, self._epoch), self._query_id),
        ).fetchone()
        if row is None or row[0] != self._checkpoint_id or row[1] != self._epoch:
            raise EpochFenced(f"query {self._query_id}: epoch {self._epoch} does not hold the fence")
        last = -1 if row[2] is None else row[2]
        if batch_id <= last:
            raise InvariantBroken(f"query {self._query_id}: batch {batch_id} is to be committed behind batch {last}")
        if batch_id > last + 1:
            # What this launch has planned and keeps is of batches that are gone. All that the next one needs is there.
            raise SinkUnavailable(
                f"batch {batch_id} was to come next and the results end with {'no batch' if row[2] is None else f'batch {last}'}: the "
                "database was put back to an earlier time. The next attempt goes on from what it holds"
            )
        return CommitRow(row[3], row[4]).within(self._plan.tasks)

    def _write(self, cursor: Cursor, batch_id: int, batch: Batch, before: CommitRow, begun: float) -> None:
        counters = counters_of(batch, self._plan)
        changes = self._changes(batch.changes)
        again = [frame.with_columns(pl.lit(value=True).alias(REPLAYED)) for frame in self._changes(batch.replayed)]
        emitted = self._write_changes(cursor, batch, changes, again, counters, before.stream_time(self._plan))
        if self._plan.output.has_open:
            apply_open(cursor, self._plan.output, batch.opened, [*changes, *again])
        after = before.advanced(batch.progress, batch.stats, emitted, ReportedNames(self._plan))
        stream_time_ms = after.stream_time(self._plan)
        if stream_time_ms is not None and self._plan.output.kind == "table":
            expire_windows(cursor, self._plan.output, stream_time_ms)
        if batch.late:
            overflow = self._late.keep(cursor, pl.concat(batch.late), batch.now_ms)
            if overflow:
                counters["late_records", "late_records_overflow"] += overflow
        self._keep_rejects(cursor, batch)
        cursor.executemany(
            """
            INSERT INTO log.counter AS c (owner, input, reason, count) VALUES (%s, %s, %s, %s)
            ON CONFLICT (owner, input, reason) DO UPDATE SET count = c.count + excluded.count
            """,
            [(self._query_id, name, reason, count) for (name, reason), count in sorted(counters.items())],
        )
        own_ms = {"process": batch.process_ms(), "sink": round((perf_counter() - begun) * 1000)}
        after.detail["phases_ms"] = own_ms | dict(batch.earlier_ms)
        if self.carrier is not None:
            after.detail["carrier"] = self.carrier
        ends_at = None if batch.cursor is None else Jsonb(batch.cursor)
        cursor.execute(
            """
            UPDATE log.commit SET batch_id = %s, committed_at = clock_timestamp(), position = %s, stream_time_ms = %s, detail = %s,
                cursor = coalesce(%s, cursor)
            WHERE query_id = %s
            """,
            (batch_id, Jsonb(after.position), stream_time_ms, Jsonb(after.detail), ends_at, self._query_id),
        )
        write_states(cursor, self._query_id, batch.states)
        cursor.execute(f"SELECT pg_notify('{COMMIT_CHANNEL}', %s)", (str(self._query_id),))

    def _changes(self, parts: Mapping[int, Sequence[pl.DataFrame]]) -> list[pl.DataFrame]:
        """Return each task's rows, by ordinal; frames without any for tasks that made none."""
        found = {ordinal: pl.concat(frames) for ordinal, frames in parts.items()}
        if not found:
            return []
        empty = next(iter(found.values())).clear()
        return [found.get(ordinal, empty) for ordinal in range(max(self._plan.tasks, *(each + 1 for each in found)))]

    def _write_changes(
        self,
        cursor: Cursor,
        batch: Batch,
        changes: Sequence[pl.DataFrame],
        replayed: Sequence[pl.DataFrame],
        counters: dict[tuple[str, str], int],
        stream_time_ms: int | None,
    ) -> int:
        """Write rows, and append them to the result's log in the order that the merge of the inputs gives them (P6)."""
        output = self._plan.output
        feed = open_sequence(cursor.connection, result_feed(output))
        reached_ms, written = feed.reached_ms, 0
        kept: list[pl.DataFrame] = []
        for frames, read in ((changes, read_of(batch, self._plan)), (replayed, {})):
            named = self._named(frames, counters)
            numbers = numbered([_causes(frame) for frame in named], reached_ms, read)
            rows = [without(frame, *CAUSE_COLUMNS) for frame in named]
            kept += [frame[[RESULT_TIME, "_op", *output.columns.names]] for frame in rows if frame.height]
            if rows or numbers.reached_ms != feed.reached_ms:
                append_rows(cursor.connection, feed, rows, numbers, self._query_id, batch.now_ms)
            count = sum(frame.height for frame in rows)
            feed = replace(feed, next_sequence=feed.next_sequence + count, partitions=max(feed.partitions, len(rows)))
            reached_ms, written = numbers.reached_ms, written + count
        if output.kind == "table" and kept:
            apply_changes(cursor, output, pl.concat(kept), stream_time_ms)
        return written

    def _named(self, frames: Sequence[pl.DataFrame], counters: dict[tuple[str, str], int]) -> list[pl.DataFrame]:
        """Leave out rows of a table without a key: they cannot be kept, found or deleted (T6)."""
        output = self._plan.output
        if output.kind == "stream" or not output.key:
            return list(frames)
        named = [_keyed(frame, output.key) for frame in frames]
        nameless = sum(frame.height for frame in frames) - sum(frame.height for frame in named)
        if nameless:
            counters[output.name, "null_key"] += nameless
        return named

    def _keep_rejects(self, cursor: Cursor, batch: Batch) -> None:
        """Keep refused records with their relation; two queries that read one feed keep them once."""
        touched = set()
        for packet, rejects in batch.rejects:
            read = self._plan.inputs[packet.input]
            touched.add(read.relation.name)
            cursor.executemany(
                """
                INSERT INTO log.reject (owner, feed, partition, "offset", reason, detail, excerpt, at)
                VALUES (%s, %s, %s, %s, %s, %s, %s, to_timestamp(%s / 1000.0)) ON CONFLICT DO NOTHING
                """,
                [
                    (read.relation.name, read.feed.name, packet.partition, *row, batch.now_ms)
                    for row in rejects.select("offset", "reason", "detail", "excerpt").iter_rows()
                ],
            )
        for owner in touched:
            cursor.execute(
                """
                DELETE FROM log.reject WHERE owner = %(owner)s
                AND id <= (SELECT id FROM log.reject WHERE owner = %(owner)s ORDER BY id DESC OFFSET %(cap)s LIMIT 1)
                """,
                {"owner": owner, "cap": REJECTS_KEPT},
            )


def _keyed(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the rows whose key has no null."""
    return frame.drop_nulls(list(key)) if any(frame.get_column(name).null_count() for name in key) else frame


def _causes(frame: pl.DataFrame) -> pl.DataFrame:
    """Return where rows stand; replayed ones stand behind everything, by task."""
    if HEAD in frame.columns:
        return frame[list(CAUSE_COLUMNS)]
    values = zip(CAUSE_COLUMNS, (AFTER_ALL_TIME, NO_LANE, 0), strict=True)
    return pl.DataFrame([constant(value, frame.height, name) for name, value in values])

"""A slot: one Spark streaming query that runs the batches of any number of our queries.

A Spark batch is a scheduling cycle (``engine.spark.streams.scheduling``). In a cycle each query with new data has a batch, committed in its
own transaction. The JVM's cost of a cycle does not depend on the number of batches. A query that fails loses its batch and leaves;
the others continue. Queries join and leave while the stream runs.

A shared slot does a cycle in one Spark task: all stages of all queries. A slot of a single query ends with that query. It splits a large
batch among tasks and stages, and reads the next batch while one is committed (``engine.spark.streams.flight``).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.postgres.postgres import SinkLink
from engine.runtime.blob_files import BlobFolder
from engine.runtime.failures import BatchFailed, decoded, spark_failure
from engine.runtime.launches.committing import Committing, QueryBatch, commit_cycle
from engine.runtime.limits.batch_size import ExecutionMode
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.stages import StageWork
from engine.sources.packets import PACKET_DDL, Packet, unpack
from engine.spark.cluster import is_cluster
from engine.spark.streams.flight import Flight
from engine.spark.streams.notification import hang, notify
from engine.spark.streams.scheduling import FOLDER_OPTION, FORMAT, LOOKED, register_for_pool
from engine.spark.streams.stopping import remember_callback, spark_phases, stop_stream, sweep


class SlotQuery(Committing, Protocol):
    """A query, as its slot sees it. ``LaunchedQuery`` says what each method does."""

    def resume(self, link: SinkLink, blobs: BlobFolder | None, mode: ExecutionMode, cores: int) -> SourceSpec: ...

    def stages(self, batch_id: int) -> Sequence[StageWork]: ...

    @property
    def is_overlapped(self) -> bool: ...

    @property
    def parallel(self) -> int:
        """How many Spark tasks do a stage of a large batch."""

    @property
    def is_resized(self) -> bool: ...

    @property
    def is_active(self) -> bool: ...

    def postponed(self) -> None: ...

    def shrink_to_retry(self, error: BaseException) -> bool: ...


LOCK_S: Final = 20.0
"""How long a commit of a shared slot waits for a lock on a query's tables: the other queries wait as long."""

PROVEN_S: Final = 60.0
"""A stream that has run for this time is sound, even if its queries had nothing to do."""

END_S: Final = 120.0
"""How long we try to stop a stream whose last commit has failed; after this time only Spark tries."""

log = structlog.stdlib.get_logger(__name__)


_STARTING = threading.Lock()
"""Streams start one after another, because each starts Python processes. Of twenty started at once, some called back too late."""


class Slot:
    """One stream. Create it, add its first queries, start it. Methods may be called from any thread.

    Args:
        pool: number of a shared slot, for any number of queries; None: a slot of one query.
        is_trial: one query, with batches as small as in a shared slot.
        on_end: called in a separate thread when the stream ends without a call of ``stop``.
    """

    def __init__(
        self,
        spark: SparkSession,
        dsn: str,
        name: str,
        *,
        pool: int | None,
        is_trial: bool = False,
        on_end: Callable[[Slot, BaseException | None], None],
    ) -> None:
        self.name, self.pool, self.is_shared = name, pool, pool is not None
        self._mode = ExecutionMode.SHARED if self.is_shared else ExecutionMode.ISOLATED if is_trial else ExecutionMode.DEDICATED
        self.has_committed = False
        self._started_at = time.monotonic()
        self._spark = spark
        self._on_end = on_end
        self._home = Path(spark.conf.get("spark.local.dir") or "") / "slots" / uuid4().hex
        self._folder = self._home / "queries"
        self._folder.mkdir(parents=True)
        if pool is None:
            (self._folder / "alone").touch()
        hang(self._folder)
        self._blobs: BlobFolder | None = None
        if not is_cluster(spark.sparkContext.master):
            self._blobs = BlobFolder(self._home / "blobs" / "now")
            self._blobs.open()
        self._link = SinkLink(dsn, None if self._mode is ExecutionMode.DEDICATED else LOCK_S)
        self._lock = threading.Lock()
        self._queries: dict[int, SlotQuery] = {}
        self._joined = 0
        self._in_cycle: frozenset[int] = frozenset()
        self._stream: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._is_over = False
        self._cycles = threading.Condition()
        self._cycles_done = 0
        self._flight: Flight | None = None
        self._first_batch = 0
        """The difference between the number of a query's batch and Spark's number of the cycle, which starts at 0."""
        self._next_cycle = 0

    @property
    def is_proven(self) -> bool:
        """Whether the stream is sound: a cycle has had data, or the stream has run for ``PROVEN_S``."""
        return self.has_committed or time.monotonic() - self._started_at > PROVEN_S

    @property
    def queries(self) -> list[SlotQuery]:
        """The queries that have joined and not left."""
        with self._lock:
            return list(self._queries.values())

    def join(self, query: SlotQuery) -> bool:
        """Run a query from the next cycle on; return False if the stream has ended."""
        cores = self._spark.sparkContext.defaultParallelism if self._mode is ExecutionMode.DEDICATED else 0
        spec = query.resume(self._link, self._blobs, self._mode, cores)
        if self._mode is ExecutionMode.DEDICATED:
            self._first_batch = spec.next_batch - self._next_cycle
            self._flight = Flight(self._end_with) if query.is_overlapped else None
        with self._lock:
            if self._is_over:
                return False
            self._joined += 1
            number = self._joined
            self._queries[number] = query
            draft = self._folder / f".{number}"
            draft.write_bytes(spec.encoded())
            draft.rename(self._folder / str(number))
        notify(self._folder)
        return True

    def leave(self, query: SlotQuery) -> bool:
        """Remove a query; its batch in the current cycle is not committed. Return whether it was in this slot."""
        with self._lock:
            number = self._number_of(query)
            if number is None:
                return False
            del self._queries[number]
        for name in (str(number), f"{number}{LOOKED}"):
            (self._folder / name).unlink(missing_ok=True)
        return True

    def has_looked_at(self, query: SlotQuery) -> bool:
        """Whether a first look at a query's feeds has found nothing."""
        with self._lock:
            number = self._number_of(query)
        return number is not None and (self._folder / f"{number}{LOOKED}").exists()

    def _number_of(self, query: SlotQuery) -> int | None:
        return next((number for number, each in self._queries.items() if each is query), None)

    def start(self, trigger_ms: int = 0, *, is_available_now: bool = False) -> None:
        """Start the stream: a shared one before its first query joins, one of a single query after that.

        Args:
            trigger_ms: least time between the starts of two cycles; 0: none.
            is_available_now: end when everything that exists at the start has been read.
        """
        sweep(self._spark)
        with _STARTING:
            source = FORMAT if self.pool is None else register_for_pool(self._spark, self.pool)
            packets = self._spark.readStream.format(source).option(FOLDER_OPTION, str(self._folder)).load()
            writer = (
                packets.writeStream.foreachBatch(self._commit)
                .outputMode("append")
                .queryName(f"{self.name} {self._home.name[:8]}")
            )
            writer = writer.option("checkpointLocation", str(self._home / "stream"))
            gap = {"availableNow": True} if is_available_now else {"processingTime": f"{trigger_ms} milliseconds"}
            writer = writer.trigger(**gap)
            try:
                self._stream = writer.start()
            except Exception as error:
                raise decoded(error) from error
        threading.Thread(target=self._watch, name=f"watch-{self.name}", daemon=True).start()

    def stop(self, timeout: float) -> bool:
        """Abandon the current cycle and stop; return whether the stream stopped within ``timeout`` seconds."""
        self._is_stopping = True
        deadline = time.monotonic() + timeout
        if self._stream is not None and not stop_stream(self._spark, self._stream, timeout):
            return False
        # The stream makes no further commit; a commit that has begun succeeds or fails as a whole.
        if self._flight is not None and not self._flight.wait(max(deadline - time.monotonic(), 0)):
            return False
        self._clear()
        return True

    def await_end(self, timeout: float | None) -> bool:
        """Wait until the stream and its last commit ended; return whether they did."""
        assert self._stream is not None  # noqa: S101 - it was started
        with suppress(StreamingQueryException):
            self._stream.awaitTermination(timeout)  # type: ignore[arg-type]  # fractions work
        return not self._stream.isActive and (self._flight is None or self._flight.wait(timeout))

    def _end_with(self, error: BaseException) -> None:
        """End a stream that is still running after its last commit failed."""
        self._failure = error
        if self._stream is not None and not self._is_stopping:
            stop_stream(self._spark, self._stream, END_S)

    @property
    def failure(self) -> BaseException | None:
        """Why the stream ended; None while it runs, and after an orderly end."""
        if self._failure is None and self._stream is not None and not self._stream.isActive and not self._is_stopping:
            return self._stream.exception()
        return self._failure

    def _watch(self) -> None:
        failure: BaseException | None = None
        try:
            self.await_end(None)
            failure = self.failure
        except Exception as error:  # noqa: BLE001 - the JVM may be gone
            failure = error
        if not self._is_stopping:
            self._clear()
            self._on_end(self, failure)

    @property
    def cycles_done(self) -> int:
        """How many cycles have ended."""
        with self._cycles:
            return self._cycles_done

    def await_cycle(self, done: int, timeout: float) -> bool:
        """Wait until more than ``done`` cycles have ended, or the stream; return whether this happened within ``timeout`` seconds."""
        with self._cycles:
            return self._cycles.wait_for(lambda: self._is_over or self._cycles_done > done, timeout)

    def _clear(self) -> None:
        with self._lock:
            self._is_over = True
        with self._cycles:
            self._cycles.notify_all()
        self._link.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _commit(self, batch: DataFrame, batch_id: int) -> None:
        self._next_cycle = batch_id + 1
        try:
            if batch_id == 0:
                remember_callback(batch.sparkSession)
            packets = unpack(self._done(batch, self._first_batch + batch_id).toArrow())
            if self._blobs is not None:
                self._blobs.clear()  # everything in it is read, and the next cycle has written nothing yet
            # One call to the JVM; recentProgress makes hundreds.
            report = None if self._stream is None else self._stream.lastProgress
            phases_ms = spark_phases(report, batch_id)
            if self._flight is not None:
                self._flight.land()
            if self._flight is None or not self._departs(self._flight, packets, phases_ms):
                self._resume(self._commit_queries(packets, phases_ms))
        except BaseException as error:  # noqa: BLE001 - reported to Spark in a short form
            self._failure = error
            raise spark_failure(error) from None
        finally:
            with self._cycles:
                self._cycles_done += 1
                self._cycles.notify_all()

    def _departs(self, flight: Flight, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> bool:
        """Commit a cycle while the next one is read; return whether that is possible.

        It is not possible if the query has to resume once more: the batch read meanwhile would not count.
        """
        if _failure_of(packets) is not None or any(query.is_resized for query in self.queries):
            return False
        return flight.depart(partial(self._commit_queries, packets, phases_ms))

    def _commit_queries(self, packets: Iterable[Packet], phases_ms: Mapping[str, int]) -> list[SlotQuery]:
        """Commit a cycle; return the queries that have to resume once more."""
        again: list[SlotQuery] = []
        with self._lock:
            queries = dict(self._queries)
        if self.is_shared:
            batches = {number: list(own) for number, own in groupby(packets, key=lambda packet: packet.query_number)}
        else:
            batches = {number: list(packets) for number in queries}
        ready: list[QueryBatch[SlotQuery]] = []
        for number, batch in batches.items():
            if (query := queries.get(number)) is None:
                continue
            if batch and batch[0].kind == "postponed":
                query.postponed()
                again.append(query)
            elif (error := _failure_of(batch)) is None:
                ready.append(QueryBatch(query, batch, phases_ms if number in self._in_cycle else {}))
            elif query.shrink_to_retry(error):
                again.append(query)
            else:
                query.fail(error)
                self._part_with(query, error)
        for done, failed in commit_cycle(self._link, ready):
            if failed is not None:
                self._part_with(done.query, failed)
            elif done.query.is_resized:
                again.append(done.query)
        self._in_cycle = frozenset(batches)
        self.has_committed = self.has_committed or bool(batches)
        return again

    def _part_with(self, query: SlotQuery, error: BaseException) -> None:
        """Remove a query that has failed; if it was alone, end the stream."""
        self.leave(query)
        if not self.is_shared:
            raise error

    def _resume(self, queries: Iterable[SlotQuery]) -> None:
        """Resume queries from their last commits, with their current settings."""
        for query in queries:
            with self._lock:
                is_there = self._number_of(query) is not None
            if is_there:
                self.leave(query)
                self.join(query)
                if not query.is_active:  # a thread that stopped it meanwhile has not found it here
                    self.leave(query)

    def _done(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """Return the last stage's results of a cycle. A batch read in one part has all stages done already (``PacketReader.done``)."""
        # ``DataFrame.rdd`` would set up a conversion.
        if self.is_shared or batch._jdf.queryExecution().toRdd().getNumPartitions() == 1:  # noqa: SLF001
            return batch
        for query in self.queries:
            for stage in query.stages(batch_id):
                batch = batch.repartitionById(query.parallel, "task").mapInArrow(stage, PACKET_DDL)
        return batch


def _failure_of(packets: Sequence[Packet]) -> BaseException | None:
    """Return why a query has no batch, None if it has one."""
    failed = next((packet for packet in packets if packet.kind == "failed"), None)
    return None if failed is None else decoded(BatchFailed(failed.blob.decode()))

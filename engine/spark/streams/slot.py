"""A slot: one streaming query of Spark that carries the batches of any number of queries, its members.

A batch of Spark's is a *round* (``engine.spark.streams.scheduling``): each member that has news has a batch in it, and each is committed in a
transaction of its own. What a round costs the JVM does not depend on how many members have one. A member that fails loses its batch and leaves;
the others go on. Members join and leave while the stream runs.

A shared slot does a round in one task of Spark, all stages of all members. A slot of a single member ends with that, and shares a large
batch among tasks and stages; it reads the next batch while one is committed (``engine.spark.streams.flight``).
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
from typing import Final
from uuid import uuid4

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.postgres.sink_link import SinkLink
from engine.runtime.blob_files import BlobFolder
from engine.runtime.failures import BatchFailed, decoded, spark_failure
from engine.sources.packets import PACKET_DDL, Packet, unpack
from engine.spark.cluster import is_cluster
from engine.spark.streams.committing import MemberBatch, commit_round
from engine.spark.streams.flight import Flight
from engine.spark.streams.leftovers import remember_callback, sweep
from engine.spark.streams.notification import hang, notify
from engine.spark.streams.reports import spark_phases
from engine.spark.streams.scheduling import FOLDER_OPTION, FORMAT, LOOKED, register_for_pool
from engine.spark.streams.slot_query import Member, SlotMode
from engine.spark.streams.stopping import stop_stream

LOCK_S: Final = 20.0
"""How long a commit of a shared slot waits for a lock that somebody else holds on a member's tables: the others wait as long."""

PROVEN_S: Final = 60.0
"""A stream that goes on for so long works, whether its members had anything to do or not."""

END_S: Final = 120.0
"""How long a stream whose last commit has failed is told to stop; after that only Spark tries."""

log = structlog.stdlib.get_logger(__name__)


_STARTING = threading.Lock()
"""Streams start one after another: each brings Python processes up, and of twenty started at once some missed their time to call back."""


class Slot:
    """One stream. Made, filled with its first members, started; methods may be called from any thread.

    Args:
        spark: the driver's session.
        dsn: the database of results.
        name: of the stream.
        pool: number of a shared slot, any number of members; None: one member.
        is_trial: of one member: its batches are as those in a shared slot.
        on_end: called in a thread of its own when the stream has ended without having been told to.
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
        self._ride = SlotMode.SHARED if self.is_shared else SlotMode.ISOLATED if is_trial else SlotMode.DEDICATED
        self.has_committed = False
        self._started_at = time.monotonic()
        self._spark = spark
        self._on_end = on_end
        self._home = Path(spark.conf.get("spark.local.dir") or "") / "slots" / uuid4().hex
        self._folder = self._home / "members"
        self._folder.mkdir(parents=True)
        if pool is None:
            (self._folder / "alone").touch()
        hang(self._folder)
        self._aside: BlobFolder | None = None
        if not is_cluster(spark.sparkContext.master):
            self._aside = BlobFolder(self._home / "blobs" / "now")
            self._aside.open()
        self._link = SinkLink(dsn, None if self._ride is SlotMode.DEDICATED else LOCK_S)
        self._lock = threading.Lock()
        self._members: dict[int, Member] = {}
        self._joined = 0
        self._in_round: frozenset[int] = frozenset()
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._is_over = False
        self._rounds = threading.Condition()
        self._rounds_done = 0
        self._flight: Flight | None = None
        self._first_batch = 0
        """What is to be added to the number of a round, which Spark counts from 0, for the number of its member's batch."""
        self._next_round = 0

    @property
    def is_proven(self) -> bool:
        """Whether the stream works: a round has brought something, or it has gone on for a while."""
        return self.has_committed or time.monotonic() - self._started_at > PROVEN_S

    @property
    def members(self) -> list[Member]:
        """Those that have joined and not left."""
        with self._lock:
            return list(self._members.values())

    def join(self, member: Member) -> bool:
        """Carry a member from the next round on; returns whether it does: false where the stream has ended."""
        cores = self._spark.sparkContext.defaultParallelism if self._ride is SlotMode.DEDICATED else 0
        spec = member.board(self._link, self._aside, self._ride, cores)
        if self._ride is SlotMode.DEDICATED:
            self._first_batch = spec.next_batch - self._next_round
            self._flight = Flight(self._end_with) if member.is_overlapped else None
        with self._lock:
            if self._is_over:
                return False
            self._joined += 1
            number = self._joined
            self._members[number] = member
            draft = self._folder / f".{number}"
            draft.write_bytes(spec.encoded())
            draft.rename(self._folder / str(number))
        notify(self._folder)
        return True

    def leave(self, member: Member) -> bool:
        """Carry a member no longer: what it has in the round at hand is not committed. Returns whether it was carried."""
        with self._lock:
            number = self._number_of(member)
            if number is None:
                return False
            del self._members[number]
        for name in (str(number), f"{number}{LOOKED}"):
            (self._folder / name).unlink(missing_ok=True)
        return True

    def has_looked_at(self, member: Member) -> bool:
        """Whether a first look at what a member reads has found nothing."""
        with self._lock:
            number = self._number_of(member)
        return number is not None and (self._folder / f"{number}{LOOKED}").exists()

    def _number_of(self, member: Member) -> int | None:
        return next((number for number, each in self._members.items() if each is member), None)

    def start(self, trigger_ms: int = 0, *, is_available_now: bool = False) -> None:
        """Start the stream: a shared one before its first member joins, one of a single member behind that.

        Args:
            trigger_ms: least time between the starts of two rounds; 0: as fast as it goes.
            is_available_now: end when everything that is there at the start has been read.
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
                self._query = writer.start()
            except Exception as error:
                raise decoded(error) from error
        threading.Thread(target=self._watch, name=f"watch-{self.name}", daemon=True).start()

    def stop(self, timeout: float) -> bool:
        """Stop after the round at hand is abandoned; returns whether it stopped within ``timeout`` seconds."""
        self._is_stopping = True
        deadline = time.monotonic() + timeout
        if self._query is not None and not stop_stream(self._spark, self._query, timeout):
            return False
        # The stream makes no further commit; one that is on its way counts as a whole or not at all.
        if self._flight is not None and not self._flight.wait(max(deadline - time.monotonic(), 0)):
            return False
        self._clear()
        return True

    def await_end(self, timeout: float | None) -> bool:
        """Wait until the stream ended, and its last commit; returns whether they did."""
        assert self._query is not None  # noqa: S101 - it was started
        with suppress(StreamingQueryException):
            self._query.awaitTermination(timeout)  # type: ignore[arg-type]  # fractions work
        return not self._query.isActive and (self._flight is None or self._flight.wait(timeout))

    def _end_with(self, error: BaseException) -> None:
        """End the stream, whose last commit has failed while it went on."""
        self._failure = error
        if self._query is not None and not self._is_stopping:
            stop_stream(self._spark, self._query, END_S)

    @property
    def failure(self) -> BaseException | None:
        """Why the stream ended; None while it runs, and after an orderly end."""
        if self._failure is None and self._query is not None and not self._query.isActive and not self._is_stopping:
            return self._query.exception()
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
    def rounds_done(self) -> int:
        """How many rounds have ended."""
        with self._rounds:
            return self._rounds_done

    def await_round(self, done: int, timeout: float) -> bool:
        """Wait until more rounds than so many have ended, or the stream; returns whether that is so within ``timeout`` seconds."""
        with self._rounds:
            return self._rounds.wait_for(lambda: self._is_over or self._rounds_done > done, timeout)

    def _clear(self) -> None:
        with self._lock:
            self._is_over = True
        with self._rounds:
            self._rounds.notify_all()
        self._link.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _commit(self, batch: DataFrame, batch_id: int) -> None:
        self._next_round = batch_id + 1
        try:
            if batch_id == 0:
                remember_callback(batch.sparkSession)
            packets = unpack(self._done(batch, self._first_batch + batch_id).toArrow())
            if self._aside is not None:
                self._aside.clear()  # all of it is read, and nothing of the next round is there yet
            # One call to the JVM; recentProgress makes hundreds.
            report = None if self._query is None else self._query.lastProgress
            phases_ms = spark_phases(report, batch_id)
            if self._flight is not None:
                self._flight.land()
            if self._flight is None or not self._departs(self._flight, packets, phases_ms):
                self._board_again(self._commit_members(packets, phases_ms))
        except BaseException as error:  # noqa: BLE001 - told to Spark, short
            self._failure = error
            raise spark_failure(error) from None
        finally:
            with self._rounds:
                self._rounds_done += 1
                self._rounds.notify_all()

    def _departs(self, flight: Flight, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> bool:
        """Let a round be committed while the next one is read; returns whether it is.

        Not where the member is to board anew: what is read meanwhile would be of a round that does not count.
        """
        if _failure_of(packets) is not None or any(member.is_resized for member in self.members):
            return False
        return flight.depart(partial(self._commit_members, packets, phases_ms))

    def _commit_members(self, packets: Iterable[Packet], phases_ms: Mapping[str, int]) -> list[Member]:
        """Commit a round; returns who wants to board anew behind it."""
        again: list[Member] = []
        with self._lock:
            members = dict(self._members)
        if self.is_shared:
            batches = {number: list(own) for number, own in groupby(packets, key=lambda packet: packet.member)}
        else:
            batches = {number: list(packets) for number in members}
        ready: list[MemberBatch[Member]] = []
        for number, batch in batches.items():
            if (member := members.get(number)) is None:
                continue
            if batch and batch[0].kind == "put_off":
                member.put_off()
                again.append(member)
            elif (error := _failure_of(batch)) is None:
                ready.append(MemberBatch(member, batch, phases_ms if number in self._in_round else {}))
            elif member.goes_on_after(error):
                again.append(member)
            else:
                member.fail(error)
                self._part_with(member, error)
        for done, failed in commit_round(self._link, ready):
            if failed is not None:
                self._part_with(done.member, failed)
            elif done.member.is_resized:
                again.append(done.member)
        self._in_round = frozenset(batches)
        self.has_committed = self.has_committed or bool(batches)
        return again

    def _part_with(self, member: Member, error: BaseException) -> None:
        """Carry a member no longer that has failed; one that is alone ends the stream."""
        self.leave(member)
        if not self.is_shared:
            raise error

    def _board_again(self, members: Iterable[Member]) -> None:
        """Go on with members from their last commits, with what they say now."""
        for member in members:
            with self._lock:
                is_there = self._number_of(member) is not None
            if is_there:
                self.leave(member)
                self.join(member)
                if not member.is_active:  # who stopped it meanwhile has not found it here
                    self.leave(member)

    def _done(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """Return what the last stage makes of a round. What is read in one part comes with all stages done (``PacketReader.done``)."""
        # ``DataFrame.rdd`` would set a conversion up.
        if self.is_shared or batch._jdf.queryExecution().toRdd().getNumPartitions() == 1:  # noqa: SLF001
            return batch
        for member in self.members:
            for stage in member.stages(batch_id):
                batch = batch.repartitionById(member.parallel, "task").mapInArrow(stage, PACKET_DDL)
        return batch


def _failure_of(packets: Sequence[Packet]) -> BaseException | None:
    """Return why a member has no batch, None where it has one."""
    failed = next((packet for packet in packets if packet.kind == "failed"), None)
    return None if failed is None else decoded(BatchFailed(failed.blob.decode()))

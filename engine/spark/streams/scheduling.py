"""The source of a slot, as Spark knows it. Each Spark batch is one scheduling cycle: every query with new data has a batch in it.

Files of the slot's folder list the queries. The driver writes them, and the planning process looks at them before each cycle. The file
``<number>`` holds a ``SourceSpec``. So queries join and leave while the stream runs. A query that joins notifies the planning process
(``engine.spark.streams.notification``). ``<number>.looked`` says that a first look found nothing.

A cycle takes at most ``MAX_CYCLE_INPUT_BYTES`` and ``MAX_CYCLE_QUERIES`` queries. It takes the query that has waited longest, then small
batches before large ones, each in the order of waiting. The others wait for later cycles, together with queries that get new data by
then. So a query with little input waits a short time.
A cycle also bounds what it emits. This size is known only while a worker computes it (``engine.spark.streams.cycle_work``). Past the
bound, a query's batch is postponed: the query resumes from its last commit and is among the first in the next cycle.

An error of one query becomes its ``failed`` packet, whether it happens in planning, reading or work; the other batches continue. Spark's
offset log holds the number of a cycle, and nobody reads it. The planning process knows the positions of queries, and the sink commits them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from engine.errors import SourceUnavailable
from engine.log.backlogs import UnreadLook
from engine.log.sequences import feed_ends
from engine.postgres.postgres import shared_connection
from engine.runtime.failures import marked
from engine.runtime.launches.committing import MAX_SHARED
from engine.runtime.limits.watchdog import watch
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.source_spec import SourceSpec
from engine.sources.packets import PACKET_DDL, packet_batches
from engine.spark.streams.cycle_work import CyclePartition, QueryPart, cycle_packets, error_text
from engine.spark.streams.notification import Notification
from engine.spark.streams.planned import Ends, Planned, looked_at

FORMAT: Final = "slackwater"

FOLDER_OPTION: Final = "queries"

MAX_CYCLE_INPUT_BYTES: Final = 16 << 20
"""Approximate bytes that one cycle of several queries reads: twice the most that one query takes. Such a cycle lasts 0.5 to 1 s. Each
query waits for the others, and the driver holds the results of all."""

MAX_CYCLE_QUERIES: Final = MAX_SHARED
"""The most queries with a batch in one cycle: as many as share a transaction. Results are committed when the whole cycle is done.
Each of a hundred queries would wait for a hundred batches; in several cycles each waits for about thirty."""

LOOKED: Final = ".looked"

POOL_VARIABLE: Final = "SLACKWATER_POOL"
"""A variable in the environment of workers, with another value for each pool."""


class PacketSource(DataSource):
    """The source that each session registers once under ``FORMAT``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return PACKET_DDL

    def streamReader(self, schema: StructType) -> CycleReader:  # noqa: ARG002, N802 - Spark's name
        return CycleReader(Path(self.options[FOLDER_OPTION]))


def register_for_pool(session: SparkSession, pool: int) -> str:
    """Register the source once more, under a name for which Spark keeps separate Python workers; return the name.

    Spark gives idle workers to any stream with the same environment. With a separate environment, the process that has the queries' state in
    memory always does the slot's cycles.

    Args:
        session: the driver's.
        pool: number of the slot that these workers work for.
    """

    class PooledSource(PacketSource):
        @classmethod
        def name(cls) -> str:
            return f"{FORMAT}_{pool}"

    environment = session.sparkContext.environment
    environment[POOL_VARIABLE] = str(pool)
    try:
        session.dataSource.register(PooledSource)
    finally:
        del environment[POOL_VARIABLE]
    return PooledSource.name()


class CycleReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans cycles in the slot's planning process, and does them in workers.

    Args:
        folder: of the queries' files; a file ``alone`` in it says that there is one query only.
        silence: how to wait for data; None: as ``Silence`` does.
    """

    def __init__(self, folder: Path, silence: Silence | None = None) -> None:
        self._folder = folder
        self._silence = silence or Silence(sleep=Notification(folder).wait)
        self._queries: dict[int, Planned] = {}
        self._is_bounded = False
        self._pending: list[int] = []
        self._left_over = frozenset[int]()
        self._shared_out: tuple[int | None, list[CyclePartition]] = None, []
        self._rested: tuple[Ends, frozenset[int]] = {}, frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._folder,)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"round": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._is_bounded = True
        self._refresh()
        for planned in self._queries.values():
            if planned.planner is not None:
                try:
                    planned.planner.prepare()
                except Exception as error:  # noqa: BLE001 - recorded as this query's failure
                    planned.failure = error_text(error)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        """Return the next cycle; ``start`` itself if no query has new data.

        Data that arrives during this wait is left for the next call, so that the time until that call answers is the time of planning.
        """
        if (self._pending and not self._left_over) or self._look():
            self._silence.broken()
            return {"round": start["round"] + 1}
        if not self._is_bounded:
            self._silence.wait(self._look, is_notified=lambda: not self._queries)
        return start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Split a cycle among Spark's tasks: the batches of many queries run in one task, those of a single query in groups."""
        if self._shared_out[0] != end["round"]:
            self._shared_out = end["round"], self._cycle_parts() if end != start else self._without_parts()
        return self._shared_out[1]

    def _without_parts(self) -> list[CyclePartition]:
        """Return the parts of Spark's first batch where no query has data: Spark asks for none again.

        A query alone in its slot commits this batch, so its next batch has the next number. In a shared slot the batch starts the worker, so
        that queries that join do not wait for it.
        """
        if not self._is_alone:
            return [CyclePartition((), False)]
        for planned in self._queries.values():
            planned.next_batch += 1
        return []

    def _cycle_parts(self) -> list[CyclePartition]:
        if not (self._is_bounded or self._is_alone):
            # Spark has recorded and planned since this cycle was found. Queries with data from that time join this cycle now,
            # and so does newer data of queries that the last cycle left over.
            for number in self._left_over.intersection(self._pending[:MAX_CYCLE_QUERIES], self._queries):
                self._queries[number].plan_again()
            self._look()
        chosen = self._chosen()
        taken = [number for number in self._pending if number in chosen]
        parts = [part for number in taken for part in self._parts(number)]
        for number in taken:
            self._queries[number].go_on()
        self._pending = [number for number in self._pending if number not in taken]
        self._left_over = frozenset(self._pending)
        if self._is_alone:
            return [CyclePartition((part,), True) for part in parts]
        return [CyclePartition(tuple(parts), False)]

    def _chosen(self) -> set[int]:
        """Return the queries of this cycle: first the one that has waited longest, then small batches, up to the limits of a cycle."""
        share = MAX_CYCLE_INPUT_BYTES // MAX_CYCLE_QUERIES  # smaller batches count as equally small
        weights, small = dict[int, int](), 0
        for number in self._pending:
            if small == MAX_CYCLE_QUERIES:
                break
            if (planned := self._queries.get(number)) is not None:
                if not planned.failure:
                    try:
                        self._cut(planned)
                    except Exception as error:  # noqa: BLE001 - recorded as this query's failure
                        planned.failure = error_text(error)
                weights[number] = 0 if planned.failure else planned.weight_bytes
                small += weights[number] < share
        left, taken = MAX_CYCLE_INPUT_BYTES, set[int]()
        # Sorting keeps the order of waiting among batches that count as equal.
        for number in [*list(weights)[:1], *sorted(list(weights)[1:], key=lambda number: weights[number] // share)]:
            if taken and (weights[number] > left or len(taken) == MAX_CYCLE_QUERIES):
                break
            taken.add(number)
            left -= weights[number]
        return taken

    def _cut(self, planned: Planned) -> None:
        if planned.spec is not None:
            with watch().at_work(planned.spec.bounds, planned.spec.run, None):
                planned.cut()

    @property
    def _is_alone(self) -> bool:
        return (self._folder / "alone").exists()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the packets of a part of a cycle; runs in a worker."""
        assert isinstance(partition, CyclePartition)  # noqa: S101
        with marked():
            yield from packet_batches(cycle_packets(partition))

    def _refresh(self) -> None:
        """Read which queries the slot has now."""
        there = {int(name) for name in os.listdir(self._folder) if name.isdecimal()}  # noqa: PTH208 - hundreds, in each look
        for number in self._queries.keys() - there:
            del self._queries[number]
        for number in sorted(there - self._queries.keys()):
            try:
                planned = Planned((self._folder / str(number)).read_bytes())
            except FileNotFoundError:
                continue
            self._queries[number] = planned
            try:
                planned.spec = SourceSpec.decoded(planned.written)
                planned.start, planned.next_batch = planned.spec.start, planned.spec.next_batch
                with watch().at_work(planned.spec.bounds, planned.spec.run, None):
                    planned.planner = BatchPlanner.of(planned.spec)
                planned.watched = planned.planner.watched
            except Exception as error:  # noqa: BLE001 - recorded as this query's failure
                planned.failure = error_text(error)

    def _look(self) -> bool:
        """Find the queries with new data, and where their batches end."""
        self._refresh()
        ends = self._ends()
        awake = self._awake(ends)
        looked = looked_at(awake, ends)
        for number, planned in awake.items():
            try:
                self._look_at(number, planned, looked.get(number))
            except Exception as error:  # noqa: BLE001 - recorded as this query's failure
                planned.failure = error_text(error)
        has_batch = {
            number: None
            for number, planned in self._queries.items()
            if planned.end is not None or (planned.failure and not planned.is_reported)
        }
        # Queries that the last cycle left over come first, then the queries that it postponed.
        postponed = [number for number in has_batch if self._queries[number].is_postponed]
        self._pending = [*dict.fromkeys([*(number for number in self._pending if number in has_batch), *postponed, *has_batch])]
        return bool(self._pending)

    def _awake(self, ends: Ends) -> dict[int, Planned]:
        """Return the queries to look at. A query that had read everything is skipped while no feed has grown."""
        still, resting = self._rested[1] if self._rested[0] == ends else frozenset(), set[int]()
        awake = {}
        for number, planned in self._queries.items():
            if number in still or (not self._is_bounded and planned.rests(ends)):
                resting.add(number)
            elif not planned.failure and planned.end is None:
                awake[number] = planned
        self._rested = ends, frozenset(resting)
        return awake

    def _ends(self) -> Ends:
        """Return the ends of the feeds of queries for which these decide. If the database is away, all queries fail after one wait."""
        known = [planned for planned in self._queries.values() if planned.place is not None and not planned.failure]
        if not known or self._is_bounded:
            return {}
        dsn = next(planned.spec.dsn for planned in known if planned.spec is not None)
        names = frozenset[str]().union(*(planned.watched for planned in known if planned.watched is not None))
        try:
            return _ends_of(dsn, names)
        except SourceUnavailable as error:
            for planned in self._queries.values():
                planned.failure = planned.failure or error_text(error)
            return {}

    def _look_at(self, number: int, planned: Planned, looked: UnreadLook | None) -> None:
        assert planned.planner is not None and planned.spec is not None and planned.start is not None  # noqa: S101, PT018
        with watch().at_work(planned.spec.bounds, planned.spec.run, None):
            end = planned.planner.next_cursor(planned.start, looked)
        if end is not planned.start:
            planned.end = end
        elif not planned.is_discovered:
            (self._folder / f"{number}{LOOKED}").touch()
        planned.is_discovered = True

    def _parts(self, number: int) -> list[QueryPart]:
        planned = self._queries[number]
        groups = None if planned.failure else planned.groups
        if groups is not None:
            try:
                planned.note()
            except OSError as error:
                planned.failure = error_text(error)
        # A query that stops first removes its file and then reads the note, so that one of the two processes sees the other.
        if not (self._folder / str(number)).exists():
            return []
        if groups is not None and not planned.failure:
            return [QueryPart(number, planned.written, planned.next_batch, group) for group in groups]
        planned.is_reported = True
        return [QueryPart(number, planned.written, planned.next_batch, None, planned.failure)]


def _ends_of(dsn: str, names: frozenset[str]) -> Ends:
    """Ask for ends; ask once more if the connection was cut."""
    try:
        with shared_connection(dsn) as connection:
            return feed_ends(connection, names)
    except SourceUnavailable:
        with shared_connection(dsn) as connection:
            return feed_ends(connection, names)


PATIENCE_S = 0.5
"""After this time the call returns to Spark, so that Spark can stop a query."""

RECENT_S = 2.0
"""For this time after new data, looks at a feed are frequent, so that a steady trickle of records is not delayed."""

SHORT_S, LONG_S = 0.03, 0.2


class Silence:
    """The time since data last came, and the waits until more comes, in the planning process: a look costs two short statements.

    If Spark waited, it would ask every 50 ms: each time a call over a socket and a line in its log, 2 % of a core for an idle query.

    Args:
        sleep: sleeps for a number of seconds, or less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._broken_at = clock()

    def broken(self) -> None:
        """Record that data has come."""
        self._broken_at = self._clock()

    def wait(self, is_over: Callable[[], bool], is_notified: Callable[[], bool] = lambda: False) -> None:
        """Look repeatedly until data has come, or ``PATIENCE_S`` has passed.

        Args:
            is_over: looks for data.
            is_notified: whether a notification ends a sleep; asked before each sleep.
        """
        deadline = self._clock() + PATIENCE_S
        while (now := self._clock()) < deadline:
            self._sleep(deadline - now if is_notified() else SHORT_S if now - self._broken_at < RECENT_S else LONG_S)
            if is_over():
                self.broken()
                return

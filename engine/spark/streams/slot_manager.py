"""A driver's slots, and which query runs in which slot.

A query begins in a shared slot. Once its work is large (``Weight``) it moves to a slot of its own, before it slows the others. It returns
when its work has been small for a while. A move costs a query only the current cycle: it resumes from its last commit.
Each slot has its own processes and connections, so the number of dedicated slots is bounded. If hundreds of queries have a backlog at
once, as after an outage, the others work it off in shared, bounded cycles (``engine.spark.streams.scheduling``). Suspects have separate
places (``TRIALS``), so that a trial never waits for heavy queries.

If a shared slot ends while it has queries, one of them may be the suspect: the one that a worker recorded for a stall or for too much
memory (``engine.runtime.limits.watchdog``). Without such a record, all queries with a planned batch are suspects. Each suspect retries its
batch alone, a few at a time. A query whose slot ends again fails with the reason (``engine.runtime.failures``); the other suspects
return to a shared slot. Queries that are no suspects return at once. The next launches of a failed query also begin alone, and the query
shares again after a commit.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from engine.errors import EngineError, ExternalError, InternalError
from engine.plan.model import Plan
from engine.runtime.failures import BETTER_ALONE, WorkerLost, crash_error, decoded
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import RunOptions
from engine.spark.streams.running_query import RunningQuery
from engine.spark.streams.slot import Slot

QUERIES_PER_SHARED_SLOT: Final = 8
"""Once every shared slot has this many queries, another slot starts, up to one for each core: a cycle handles one query after the other."""

MIN_DEDICATED_SLOTS: Final = 8
"""How many queries may have a slot of their own on a small machine; a large one allows two for each core. Each costs about 100 MB and three
connections."""

MAX_FAILED_STARTS: Final = 3
"""After this many shared slots in a row that end before their first cycle, their queries fail with the reason."""

STOP_S: Final = 30.0
"""How long a query that moves waits for its own slot to stop."""

LOOK_S: Final = 5.0
"""Interval between looks at the queries with a slot of their own."""

TRIALS: Final = 4
"""The most suspects that are tried at the same time."""

TRIAL_S: Final = 30.0
"""After this time without commit or crash, a suspect takes a dedicated slot, and the next suspect is tried. If no dedicated slot is free, the
suspect keeps its trial slot, and the next one waits."""

log = structlog.stdlib.get_logger(__name__)


class SlotManager:
    """The slots of one session."""

    def __init__(self, spark: SparkSession, dsn: str, is_alive: Callable[[], bool]) -> None:
        self._spark, self._dsn, self._is_alive = spark, dsn, is_alive
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._shared: list[Slot] = []
        self._most_shared = max(spark.sparkContext.defaultParallelism, 1)
        self._most_own = max(MIN_DEDICATED_SLOTS, 2 * spark.sparkContext.defaultParallelism)
        self._failed_starts = 0
        self._dedicated: set[RunningQuery] = set()
        self._moving: set[RunningQuery] = set()
        self._counting = threading.Lock()
        self._crash_suspects: set[UUID] = set()
        self._due: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._suspects: queue.SimpleQueue[RunningQuery] = queue.SimpleQueue()
        threading.Thread(target=self._maintenance_loop, name="slots", daemon=True).start()
        for number in range(TRIALS):
            threading.Thread(target=self._trial_loop, name=f"suspects-{number}", daemon=True).start()

    def launch(self, plan: Plan, launch: Launch, options: RunOptions) -> RunningQuery:
        """Launch a query. See ``RunningQuery.prepare``."""
        query = RunningQuery.prepare(self._spark, plan, launch, self._dsn, options)
        query.on_load, query.on_failed = partial(self._dedicate_if_heavy, query), partial(self._failed, query)
        if launch.query_id in self._crash_suspects:
            self._suspects.put(query)
        else:
            self._share(query)
        return query

    def make_ready(self) -> None:
        """Start a shared slot before a query needs it, unless one exists."""
        self._open(least=1)

    def _share(self, query: RunningQuery) -> None:
        """Run a query in a shared slot.

        Raises:
            ExternalError: shared slots end as soon as they begin.
        """
        for _ in range(MAX_FAILED_STARTS):
            if self._joined(query):
                return
            self._open(least=1)
        if not self._joined(query):
            raise ExternalError("shared slots end before a query has joined them; driver.log has the reason")

    def _joined(self, query: RunningQuery) -> bool:
        """Add a query to the shared slot with the fewest queries; return whether there is one."""
        with self._lock:
            for slot in sorted(self._shared, key=lambda each: len(each.queries)):
                if slot.join(query):
                    query.slot = slot
                    self._open_beside()
                    return True
                self._shared.remove(slot)  # it has ended, and reports this soon
        return False

    def _open_beside(self) -> None:
        """Start another shared slot if all are full. No launch waits for it: the next query may still join an existing slot."""
        number = len(self._shared)
        is_room = number < self._most_shared and not self._opening.locked()
        if is_room and min(len(slot.queries) for slot in self._shared) >= QUERIES_PER_SHARED_SLOT:
            threading.Thread(target=self._open_another, args=(number + 1,), name="opens-slot", daemon=True).start()

    def _open_another(self, least: int) -> None:
        try:
            self._open(least)
        except Exception:
            log.exception("slot_not_started")  # the next query that joins tries again

    def _open(self, least: int) -> None:
        """Start a shared slot, unless enough exist. It starts empty, so that no launch, move or commit waits for the lock."""
        with self._opening:
            with self._lock:
                if len(self._shared) >= least:
                    return
                pool = min(set(range(len(self._shared) + 1)) - {slot.pool for slot in self._shared})
            slot = Slot(self._spark, self._dsn, f"shared {pool}", pool=pool, on_end=self._on_shared_end)
            slot.start()
            with self._lock:
                self._shared.append(slot)

    def _dedicate_if_heavy(self, query: RunningQuery, is_heavy: bool) -> None:
        """Move a query whose weight has changed; called between two cycles of its slot."""
        slot = query.slot
        if not is_heavy or slot is None or not slot.is_shared:
            return
        if not self._reserve_place(query, self._moving):
            return  # tried again after its next batch
        slot.leave(query)
        self._due.put(lambda: self._move(query, slot))

    def _reserve_place(self, query: RunningQuery, among: set[RunningQuery]) -> bool:
        """Reserve a place for a query that gets its own slot; return whether one was free."""
        with self._counting:
            if len((self._dedicated | self._moving) - {query}) >= self._most_own:
                return False
            among.add(query)
            return True

    def _move(self, query: RunningQuery, left: Slot) -> None:
        """Give a query its own slot after it left its slot or its slot ended, unless another slot has it meanwhile."""
        with _fail_on_error(query), query.moving:
            if query.is_active and query.slot is left:
                log.info("query_got_dedicated_slot", query=query.name)
                query.use_own_slot(self._spark, lambda slot, error: self._on_dedicated_end(query, slot, error))
                self._dedicated.add(query)
        self._moving.discard(query)

    def _return_light_queries(self) -> None:
        """Bring back queries that were light or idle for a while. A query with a long current batch is neither."""
        for query in list(self._dedicated):
            slot = query.slot
            if not query.is_active or slot is None or slot.is_shared:
                self._dedicated.discard(query)
            elif query.is_light() and query.is_settled and not query.is_under_way:
                self._bring_back(query, slot)

    def _bring_back(self, query: RunningQuery, slot: Slot) -> None:
        """Stop the query's own slot, and let it join a shared one."""
        self._crash_suspects.discard(query.query_id)
        with _fail_on_error(query), query.moving:
            if not query.is_active or query.slot is not slot:
                return
            if not slot.stop(STOP_S):
                # Its commits are fenced, so the query need not wait; a slow stop is due to the machine or the JVM.
                raise ExternalError(
                    f"the stream that ran this query alone did not stop within {STOP_S:.0f} s. The query is started again"
                )
            if query.is_active:  # its last commit may have failed meanwhile
                log.info("query_shares", query=query.name)
                self._share(query)

    def _maintenance_loop(self) -> None:
        looked_at = time.monotonic()
        while True:
            left_s = looked_at + LOOK_S - time.monotonic()
            try:
                if left_s <= 0:
                    looked_at = time.monotonic()
                    self._return_light_queries()
                else:
                    with suppress(queue.Empty):
                        self._due.get(timeout=left_s)()
            except Exception:
                log.exception("slots_not_looked_after")

    # Streams that end by themselves

    def _on_dedicated_end(self, query: RunningQuery, slot: Slot, error: BaseException | None) -> None:
        if query.slot is not slot:
            return
        cause = _cause(error)
        ended = query.kill_record()
        if query.shrink_to_retry(cause) or query.shrink_after_kill(ended):
            self._due.put(lambda: self._move(query, slot))
        else:
            query.fail(cause if ended is None else crash_error(cause, ended))

    def _on_shared_end(self, slot: Slot, error: BaseException | None) -> None:
        """Handle a shared slot that ended: because of a query's batch, of the session, or of someone outside."""
        cause = _cause(error)
        with self._lock:
            if slot in self._shared:
                self._shared.remove(slot)
            self._failed_starts = 0 if slot.is_proven else self._failed_starts + 1
            is_given_up = self._failed_starts >= MAX_FAILED_STARTS
        queries = [query for query in slot.queries if isinstance(query, RunningQuery) and query.is_active]
        if not queries:
            return  # the next query that joins opens another slot
        if is_given_up or not self._is_alive():
            for query in queries:
                query.fail(cause)
            return
        causes = {query: ended for query in queries if (ended := query.kill_record()) is not None}
        for query, ended in causes.items():
            log.warning("worker_ended", query=query.name, **asdict(ended))
        suspects = list(causes) or [query for query in queries if query.is_under_way]
        log.warning("slot_ended", error=str(cause), queries=len(queries), suspects=len(suspects))
        for query in queries:
            if query in suspects:
                query.slot = None
                self._suspects.put(query)
            else:
                with _fail_on_error(query), query.moving:
                    if query.is_active and query.slot is slot:
                        self._share(query)

    def _trial_loop(self) -> None:
        while True:
            query = self._suspects.get()
            with _fail_on_error(query):
                self._try_alone(query)

    def _try_alone(self, query: RunningQuery) -> None:
        """Run a suspect's batch alone, and return the query to a shared slot after the commit. A slow suspect continues alone until then."""
        is_over = threading.Event()

        def ended(slot: Slot, error: BaseException | None) -> None:
            with query.moving:  # it may be on its way back just now
                if query.slot is not slot:
                    return
                query.slot = None
            cause = _cause(error)
            recorded = query.kill_record()
            if query.shrink_to_retry(cause) or query.shrink_after_kill(recorded):
                self._suspects.put(query)
            elif isinstance(cause, WorkerLost) or recorded is not None:
                query.fail(crash_error(cause, recorded or query.overdue()))
            else:
                query.fail(cause)
            is_over.set()

        with query.moving:
            if not query.is_active or query.slot is not None:
                return
            query.is_settled = False
            query.after_commit = is_over.set
            query.use_own_slot(self._spark, ended, is_trial=True)
            slot = query.slot
        is_free = is_over.wait(TRIAL_S)
        while not is_free and query.is_active:
            is_free = self._reserve_place(query, self._dedicated) or is_over.wait(LOOK_S)
        query.after_commit = None
        if slot is None or not query.is_active:
            self._dedicated.discard(query)
            return
        if query.is_settled:
            self._bring_back(query, slot)

    def _failed(self, query: RunningQuery, error: BaseException) -> None:
        if isinstance(error, BETTER_ALONE):
            self._crash_suspects.add(query.query_id)


def _cause(error: BaseException | None) -> EngineError:
    """Return what ended a stream that nobody stopped."""
    return InternalError("the streaming query ended without an error") if error is None else decoded(error)


@contextmanager
def _fail_on_error(query: RunningQuery) -> Iterator[None]:
    """Fail a query that could not be moved, with the reason: it is in no slot, and is launched again."""
    try:
        yield
    except Exception as error:
        log.exception("query_not_moved", query=query.name)
        query.fail(error)

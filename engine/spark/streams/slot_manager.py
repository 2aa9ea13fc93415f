"""A driver's slots, and which query runs in which slot.

A query begins in a shared slot. Once its work is large (``Weight``) it moves to a slot of its own, before it slows the others. It returns
when its work has been small for a while. A move costs a query only the current cycle: it resumes from its last commit.
Each slot has its own processes and connections, so the number of own slots is bounded (``LEAST_OWN``). If hundreds of queries have a backlog
at once, as after an outage, the others work it off in shared, bounded cycles (``engine.spark.streams.scheduling``). Suspects have
separate places (``TRIALS``), so that a trial never waits for heavy queries.

If a shared slot ends while it has queries, one of them may be the suspect: the one that a worker recorded for a stall or for too much
memory (``engine.runtime.limits.watchdog``). Without such a record, all queries with a planned batch are suspects. Each suspect retries its
batch alone, a few at a time. A query whose slot ends again fails with the reason (``engine.runtime.crash_errors``); the other suspects
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
from typing import Final
from uuid import UUID

import structlog
from pyspark.sql import SparkSession

from engine.errors import EngineError, ExternalError, InternalError
from engine.plan.model import Plan
from engine.runtime.crash_errors import BETTER_ALONE, crash_error
from engine.runtime.failures import WorkerLost, decoded
from engine.runtime.launch_state import Launch
from engine.runtime.run_options import RunOptions
from engine.spark.streams.runner import RunningQuery
from engine.spark.streams.slot import Slot

FEW: Final = 8
"""At this many queries in each slot another one starts, up to one for each core: a cycle handles one query after the other."""

LEAST_OWN: Final = 8
"""The most queries with a slot of their own; on a large machine two for each core. Each costs about 100 MB and three connections."""

MOST_BARREN: Final = 3
"""After this many shared slots in a row that end early without a cycle, their queries fail with the reason."""

STOP_S: Final = 30.0
"""How long a query that moves waits for its own slot to stop."""

LOOK_S: Final = 5.0
"""Interval between looks at the queries with a slot of their own."""

TRIALS: Final = 4
"""The most suspects that are tried at the same time."""

TRIAL_S: Final = 30.0
"""After this time without commit or crash, a suspect becomes one of ``LEAST_OWN``, and the next suspect is tried.
If all these places are occupied, the suspect keeps its place of ``TRIALS``, and the next one waits."""

log = structlog.stdlib.get_logger(__name__)


class SlotManager:
    """The slots of one session.

    Args:
        dsn: the database of feeds and results.
        is_alive: whether the session still works.
    """

    def __init__(self, spark: SparkSession, dsn: str, is_alive: Callable[[], bool]) -> None:
        self._spark, self._dsn, self._is_alive = spark, dsn, is_alive
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._shared: list[Slot] = []
        self._most_shared = max(spark.sparkContext.defaultParallelism, 1)
        self._most_own = max(LEAST_OWN, 2 * spark.sparkContext.defaultParallelism)
        self._barren = 0
        self._alone: set[RunningQuery] = set()
        self._parting: set[RunningQuery] = set()
        self._counting = threading.Lock()
        self._culprits: set[UUID] = set()
        self._due: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._suspects: queue.SimpleQueue[RunningQuery] = queue.SimpleQueue()
        threading.Thread(target=self._move_forever, name="slots", daemon=True).start()
        for number in range(TRIALS):
            threading.Thread(target=self._try_forever, name=f"suspects-{number}", daemon=True).start()

    def launch(self, plan: Plan, launch: Launch, options: RunOptions) -> RunningQuery:
        """Launch a query. See ``RunningQuery.prepare``."""
        member = RunningQuery.prepare(self._spark, plan, launch, self._dsn, options)
        member.on_weight, member.on_failed = self._weighed, self._failed
        if launch.query_id in self._culprits:
            self._suspects.put(member)
        else:
            self._share(member)
        return member

    def make_ready(self) -> None:
        """Start a shared slot before a query needs it, unless one exists."""
        self._open(least=1)

    def _share(self, member: RunningQuery) -> None:
        """Run a query in a shared slot.

        Raises:
            ExternalError: shared slots end as soon as they begin.
        """
        for _ in range(MOST_BARREN):
            if self._joined(member):
                return
            self._open(least=1)
        if not self._joined(member):
            raise ExternalError("shared slots end before a query has joined them; driver.log has the reason")

    def _joined(self, member: RunningQuery) -> bool:
        """Add a query to the shared slot with the fewest queries; return whether there is one."""
        with self._lock:
            for slot in sorted(self._shared, key=lambda each: len(each.members)):
                if slot.join(member):
                    member.slot = slot
                    self._open_beside()
                    return True
                self._shared.remove(slot)  # it has ended, and reports this soon
        return False

    def _open_beside(self) -> None:
        """Start another shared slot if all have ``FEW`` queries. Nobody waits for it: the next query may still join an existing slot."""
        number = len(self._shared)
        is_room = number < self._most_shared and not self._opening.locked()
        if is_room and min(len(slot.members) for slot in self._shared) >= FEW:
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
            slot = Slot(self._spark, self._dsn, f"shared {pool}", pool=pool, on_end=self._ended)
            slot.start()
            with self._lock:
                self._shared.append(slot)

    def _weighed(self, member: RunningQuery, is_heavy: bool) -> None:
        """Move a query whose weight has changed; called between two cycles of its slot."""
        slot = member.slot
        if not is_heavy or slot is None or not slot.is_shared:
            return
        if not self._takes_place(member, self._parting):
            return  # tried again after its next batch
        slot.leave(member)
        self._due.put(lambda: self._part(member, slot))

    def _takes_place(self, member: RunningQuery, among: set[RunningQuery]) -> bool:
        """Reserve a place for a query that gets its own slot; return whether one was free."""
        with self._counting:
            if len((self._alone | self._parting) - {member}) >= self._most_own:
                return False
            among.add(member)
            return True

    def _part(self, member: RunningQuery, left: Slot) -> None:
        """Give a query its own slot after it left its slot or its slot ended, unless another slot has it meanwhile."""
        with _failing(member), member.moving:
            if member.is_active and member.slot is left:
                log.info("query_got_dedicated_slot", query=member.name)
                member.use_own_slot(self._spark, lambda slot, error: self._ended_alone(member, slot, error))
                self._alone.add(member)
        self._parting.discard(member)

    def _look_after_alone(self) -> None:
        """Bring back queries that were light or idle for a while. A query with a long current batch is neither."""
        for member in list(self._alone):
            slot = member.slot
            if not member.is_active or slot is None or slot.is_shared:
                self._alone.discard(member)
            elif member.is_light() and member.is_settled and not member.is_under_way:
                self._bring_back(member, slot)

    def _bring_back(self, member: RunningQuery, slot: Slot) -> None:
        """Return a query to a shared slot once it has committed something alone, however long this took."""
        self._culprits.discard(member.query_id)
        with _failing(member), member.moving:
            if not member.is_active or member.slot is not slot:
                return
            if not slot.stop(STOP_S):
                # Its commits are fenced, so the query need not wait; a slow stop is due to the machine or the JVM.
                raise ExternalError(
                    f"the stream that ran this query alone did not stop within {STOP_S:.0f} s. The query is started again"
                )
            if member.is_active:  # its last commit may have failed meanwhile
                log.info("query_shares", query=member.name)
                self._share(member)

    def _move_forever(self) -> None:
        looked_at = time.monotonic()
        while True:
            left_s = looked_at + LOOK_S - time.monotonic()
            try:
                if left_s <= 0:
                    looked_at = time.monotonic()
                    self._look_after_alone()
                else:
                    with suppress(queue.Empty):
                        self._due.get(timeout=left_s)()
            except Exception:
                log.exception("slots_not_looked_after")

    # Streams that end by themselves

    def _ended_alone(self, member: RunningQuery, slot: Slot, error: BaseException | None) -> None:
        if member.slot is not slot:
            return
        found = _cause(error)
        ended = member.accusation()
        if member.goes_on_after(found) or member.goes_on_with_less(ended):
            self._due.put(lambda: self._part(member, slot))
        else:
            member.fail(found if ended is None else crash_error(found, ended))

    def _ended(self, slot: Slot, error: BaseException | None) -> None:
        """Handle a shared slot that ended: because of a query's batch, of the session, or of someone outside."""
        found = _cause(error)
        with self._lock:
            if slot in self._shared:
                self._shared.remove(slot)
            self._barren = 0 if slot.is_proven else self._barren + 1
            is_hopeless = self._barren >= MOST_BARREN
        members = [member for member in slot.members if isinstance(member, RunningQuery) and member.is_active]
        if not members:
            return  # the next query that joins opens another slot
        if is_hopeless or not self._is_alive():
            for member in members:
                member.fail(found)
            return
        accused = {member: ended for member in members if (ended := member.accusation()) is not None}
        for member, ended in accused.items():
            log.warning("worker_ended", query=member.name, **asdict(ended))
        suspects = list(accused) or [member for member in members if member.is_under_way]
        log.warning("slot_ended", error=str(found), members=len(members), suspects=len(suspects))
        for member in members:
            if member in suspects:
                member.slot = None
                self._suspects.put(member)
            else:
                with _failing(member), member.moving:
                    if member.is_active and member.slot is slot:
                        self._share(member)

    def _try_forever(self) -> None:
        while True:
            member = self._suspects.get()
            with _failing(member):
                self._try_alone(member)

    def _try_alone(self, member: RunningQuery) -> None:
        """Run a suspect's batch alone, and return the query to a shared slot after the commit. A slow suspect continues alone until then."""
        is_over = threading.Event()

        def ended(slot: Slot, error: BaseException | None) -> None:
            with member.moving:  # it may be on its way back just now
                if member.slot is not slot:
                    return
                member.slot = None
            found = _cause(error)
            noted = member.accusation()
            if member.goes_on_after(found) or member.goes_on_with_less(noted):
                self._suspects.put(member)
            elif isinstance(found, WorkerLost) or noted is not None:
                member.fail(crash_error(found, noted or member.overdue()))
            else:
                member.fail(found)
            is_over.set()

        with member.moving:
            if not member.is_active or member.slot is not None:
                return
            member.is_settled = False
            member.on_settled = is_over.set
            member.use_own_slot(self._spark, ended, is_trial=True)
            slot = member.slot
        is_free = is_over.wait(TRIAL_S)
        while not is_free and member.is_active:
            is_free = self._takes_place(member, self._alone) or is_over.wait(LOOK_S)
        member.on_settled = None
        if slot is None or not member.is_active:
            self._alone.discard(member)
            return
        if member.is_settled:
            self._bring_back(member, slot)

    def _failed(self, member: RunningQuery, error: BaseException) -> None:
        if isinstance(error, BETTER_ALONE):
            self._culprits.add(member.query_id)


def _cause(error: BaseException | None) -> EngineError:
    """Return what ended a stream that nobody stopped."""
    return InternalError("the streaming query ended without an error") if error is None else decoded(error)


@contextmanager
def _failing(member: RunningQuery) -> Iterator[None]:
    """Fail a query that could not be moved, with the reason: it is in no slot, and is launched again."""
    try:
        yield
    except Exception as error:
        log.exception("query_not_moved", query=member.name)
        member.fail(error)

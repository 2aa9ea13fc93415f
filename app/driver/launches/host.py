"""The handles of the streaming queries that live in this process, and the threads that start and stop them.

Queries are started one after another: twenty Python sources starting at once were measured to lose fourteen of them. Stops run
beside each other, each in a thread of its own: one that hangs must not hold up the rest. All threads are daemons: a launch or a
stop that never returns must not keep the process alive. Knows nothing of rows, leases or desired states.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

import structlog

from app.catalog.drivers.crash_suspects import LOST
from app.catalog.drivers.states import ErrorReport, HandleKind, HandleReport
from app.driver.launches.faults import report_of
from app.driver.launches.ports import LaunchOrder
from engine.runtime.executor import QueryHandle

ENDED = ErrorReport("query_ended", "internal", is_retryable=True, detail="the streaming query ended without an error")
LEFT = (
    "the round of the slot in which it was stopped does not end, and who removes its files waits no longer. Nothing of that round counts"
    " for it; where it was deleted, what a worker still writes below its id stays"
)
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Hosted:
    """One launch. Guarded by the host's lock.

    Attributes:
        since: when it entered its kind, by the monotonic clock; None while it waits for its turn. A launch that tells what it does begins
            its kind again: moving large state takes long, and does not hang.
        handle: None until the launch returned.
    """

    order: LaunchOrder
    kind: HandleKind = HandleKind.LAUNCHING
    since: float | None = None
    phase: str = "queued"
    handle: QueryHandle | None = None
    error: ErrorReport | None = None


class QueryHost:
    """Starts, watches and stops streaming queries.

    Args:
        launch: starts one query and returns when it runs; called from one thread.
        stop_timeout_s: handed to ``QueryHandle.stop``.
        on_change: called from any thread with the query whose report has changed.
        is_engine_alive: asked when a handle dies: where the engine has died with it, the query is not to blame (``LOST``).
    """

    def __init__(
        self,
        launch: Callable[[LaunchOrder], QueryHandle],
        stop_timeout_s: float,
        on_change: Callable[[UUID], None],
        is_engine_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_engine_alive = is_engine_alive
        self._launch = launch
        self._stop_timeout_s = stop_timeout_s
        self._on_change = on_change
        self._lock = threading.Lock()
        self._hosted: dict[UUID, _Hosted] = {}
        self._leaving: set[_Hosted] = set()
        self._due: queue.SimpleQueue[_Hosted] = queue.SimpleQueue()
        threading.Thread(target=self._launch_forever, name="launcher", daemon=True).start()

    @property
    def query_ids(self) -> frozenset[UUID]:
        """Every query there is a report on, dead ones included."""
        with self._lock:
            return frozenset(self._hosted)

    @property
    def has_live(self) -> bool:
        """Whether anything may still read or write."""
        with self._lock:
            return any(hosted.kind is not HandleKind.DEAD for hosted in self._hosted.values())

    def launch(self, order: LaunchOrder) -> None:
        """Queue a launch. The query must have no live handle."""
        with self._lock:
            before = self._hosted.get(order.query_id)
            if before is not None and before.kind is not HandleKind.DEAD:
                raise RuntimeError(f"query {order.name} is launched while its handle of epoch {before.order.epoch} lives")
            hosted = _Hosted(order)
            hosted.order = replace(order, note_phase=lambda phase: self._note_phase(hosted, phase))
            self._hosted[order.query_id] = hosted
        self._due.put(hosted)

    def report(self, query_id: UUID) -> HandleReport:
        """Say how the handle of a query is."""
        with self._lock:
            hosted = self._hosted.get(query_id)
            is_leaving = any(left.order.query_id == query_id for left in self._leaving)
        if hosted is None:
            return HandleReport(is_leaving=is_leaving)
        if hosted.kind is HandleKind.RUNNING:
            self._look_after(hosted)
        with self._lock:
            age_ms = None if hosted.since is None else int((time.monotonic() - hosted.since) * 1000)
            return HandleReport(hosted.kind, hosted.order.epoch, age_ms, hosted.error, is_leaving)

    def ended(self) -> set[UUID]:
        """Notice which running queries have ended by themselves since they were looked at, and return them: they tell nobody."""
        with self._lock:
            running = [hosted for hosted in self._hosted.values() if hosted.kind is HandleKind.RUNNING]
        for hosted in running:
            self._look_after(hosted)
        return {hosted.order.query_id for hosted in running if hosted.kind is HandleKind.DEAD}

    def phase(self, query_id: UUID) -> str | None:
        """Say how far a launch is, or a running query that has committed nothing yet; None otherwise."""
        with self._lock:
            hosted = self._hosted.get(query_id)
            if hosted is None or hosted.kind not in (HandleKind.LAUNCHING, HandleKind.RUNNING):
                return None
            if hosted.handle is None:
                return hosted.phase
        try:
            return hosted.handle.phase
        except Exception as error:  # noqa: BLE001 - whether it is dead is found out, and told, by ``report``
            log.debug("phase_unknown", query=hosted.order.name, error=str(error))
            return None

    def stop(self, query_id: UUID) -> None:
        """Ask a live handle to stop; its report is STOPPING until it is over, then ABSENT, and leaving until it is at rest. Returns at once."""
        with self._lock:
            hosted = self._hosted.get(query_id)
            if hosted is None or hosted.kind not in (HandleKind.LAUNCHING, HandleKind.RUNNING):
                return
            if hosted.kind is HandleKind.LAUNCHING and hosted.since is None:
                # Never begun: the launcher drops what is not hosted any more.
                del self._hosted[query_id]
                return
            is_running = hosted.kind is HandleKind.RUNNING
            self._enter(hosted, HandleKind.STOPPING)
        if is_running:
            self._stop_aside(hosted)

    def forget(self, query_id: UUID) -> None:
        """Drop the report on a dead handle."""
        with self._lock:
            hosted = self._hosted.get(query_id)
            if hosted is not None and hosted.kind is HandleKind.DEAD:
                del self._hosted[query_id]

    def _launch_forever(self) -> None:
        while True:
            hosted = self._due.get()
            with self._lock:
                if self._hosted.get(hosted.order.query_id) is not hosted:
                    continue
                hosted.since = time.monotonic()
                hosted.phase = "launching"
            order = hosted.order
            with structlog.contextvars.bound_contextvars(query=order.name, epoch=order.epoch, generation=order.generation):
                try:
                    handle = self._launch(order)
                except Exception as error:
                    log.warning("launch_failed", exc_info=True)
                    self._end(hosted, self._cause(error))
                else:
                    self._launched(hosted, handle)

    def _launched(self, hosted: _Hosted, handle: QueryHandle) -> None:
        with self._lock:
            hosted.handle = handle
            is_unwanted = hosted.kind is HandleKind.STOPPING
            if not is_unwanted:
                self._enter(hosted, HandleKind.RUNNING)
        if is_unwanted:
            self._stop_aside(hosted)
        self._on_change(hosted.order.query_id)

    def _look_after(self, hosted: _Hosted) -> None:
        """Notice that a running query has ended by itself."""
        handle = hosted.handle
        if handle is None:
            return
        try:
            if handle.is_active:
                return
            found = self._cause(handle.error())
        except Exception as error:  # noqa: BLE001 - a handle that cannot be asked is dead
            found = self._cause(error)
        with self._lock:
            if hosted.kind is HandleKind.RUNNING:
                hosted.error = found
                self._enter(hosted, HandleKind.DEAD)

    def _cause(self, error: Exception | None) -> ErrorReport:
        if not self._is_engine_alive():
            return LOST
        return ENDED if error is None else report_of(error)

    def _stop_aside(self, hosted: _Hosted) -> None:
        threading.Thread(target=self._stop_now, args=(hosted,), name=f"stop-{hosted.order.name}", daemon=True).start()

    def _stop_now(self, hosted: _Hosted) -> None:
        """Stop a handle; one that stays active keeps reporting STOPPING, until its driver has had enough."""
        handle = hosted.handle
        if handle is None:
            return
        try:
            is_over = handle.stop(self._stop_timeout_s)
        except Exception:
            log.exception("stop_failed", query=hosted.order.name, epoch=hosted.order.epoch)
            is_over = False
        if is_over:
            with self._lock:
                self._leaving.add(hosted)
            self._end(hosted, None)
            self._await_rest(hosted, handle)

    def _await_rest(self, hosted: _Hosted, handle: QueryHandle) -> None:
        """Wait for what a handle that was stopped has left at work. Nobody else waits but who removes its files."""
        begun = time.monotonic()
        try:
            is_at_rest = handle.await_rest()
        except Exception:
            log.exception("rest_not_awaited", query=hosted.order.name, epoch=hosted.order.epoch)
        else:
            if not is_at_rest:
                waited_s = round(time.monotonic() - begun, 1)
                log.warning(
                    "query_left_at_work", query=hosted.order.name, epoch=hosted.order.epoch, waited_s=waited_s, reason=LEFT
                )
        with self._lock:
            self._leaving.discard(hosted)
        self._on_change(hosted.order.query_id)

    def _end(self, hosted: _Hosted, error: ErrorReport | None) -> None:
        """A launch or a stop is over: forget what was asked to stop, remember why anything else died."""
        with self._lock:
            if hosted.kind is HandleKind.STOPPING:
                del self._hosted[hosted.order.query_id]
            else:
                hosted.error = error
                self._enter(hosted, HandleKind.DEAD)
        self._on_change(hosted.order.query_id)

    def _note_phase(self, hosted: _Hosted, phase: str) -> None:
        """Note how far it is. What a launch does on its way is found by whoever looks: most of it is over before that could be written."""
        with self._lock:
            is_new, hosted.phase = phase != hosted.phase, phase
            is_launched = hosted.handle is not None
            if not is_launched:
                hosted.since = time.monotonic()
        if is_new and is_launched:
            self._on_change(hosted.order.query_id)

    @staticmethod
    def _enter(hosted: _Hosted, kind: HandleKind) -> None:
        hosted.kind = kind
        hosted.since = time.monotonic()

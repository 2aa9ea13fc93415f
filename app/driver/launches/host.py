"""The handles of the streaming queries in this process, and the threads that start and stop them.

Queries start one after another: when twenty Python sources started at once, fourteen were lost (measured). Stops run in parallel, each in its
own thread, so that one that hangs does not delay the others. All threads are daemons, so a launch or a stop that never returns does not keep the
process alive. Knows nothing of rows, leases or desired states.
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
from app.driver.launches.ports import LaunchOrder
from engine.errors import DefinitionInvalid, DiskFull, EngineError
from engine.postgres.postgres import DATABASE_AWAY
from engine.runtime.executor import QueryHandle
from engine.state.segments.files import NO_SPACE

ENDED = ErrorReport("query_ended", "internal", is_retryable=True, detail="the streaming query ended without an error")
LEFT = (
    "the last scheduling cycle of its slot does not end, and the removal of its files waits no longer. Nothing of that cycle is committed"
    " for it; if the query was deleted, files that a worker still writes below its id stay"
)
log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Hosted:
    """One launch. Guarded by the host's lock.

    Attributes:
        since: start of its kind, by the monotonic clock; None while it waits in the queue. A launch that reports a phase starts its kind
            again: a restore of large state takes long, but does not hang.
        handle: None until the launch has returned.
    """

    order: LaunchOrder
    kind: HandleKind = HandleKind.LAUNCHING
    since: float | None = None
    phase: str = "queued"
    handle: QueryHandle | None = None
    error: ErrorReport | None = None


class QueryHost:
    """Starts, monitors and stops streaming queries.

    Args:
        launch: starts one query and returns when it runs; called from one thread.
        stop_timeout_s: passed to ``QueryHandle.stop``.
        on_change: called from any thread with the query whose report has changed.
        is_engine_alive: called when a handle dies: if the engine has died too, the query is not the cause (``LOST``).
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
        """All queries with a report, also dead ones."""
        with self._lock:
            return frozenset(self._hosted)

    @property
    def has_live(self) -> bool:
        """Whether any query may still read or write."""
        with self._lock:
            return any(hosted.kind is not HandleKind.DEAD for hosted in self._hosted.values())

    def launch(self, order: LaunchOrder) -> None:
        """Queue a launch. The query must have no live handle."""
        with self._lock:
            earlier = self._hosted.get(order.query_id)
            if earlier is not None and earlier.kind is not HandleKind.DEAD:
                raise RuntimeError(f"query {order.name} is launched while its handle of epoch {earlier.order.epoch} lives")
            hosted = _Hosted(order)
            hosted.order = replace(order, note_phase=lambda phase: self._note_phase(hosted, phase))
            self._hosted[order.query_id] = hosted
        self._due.put(hosted)

    def report(self, query_id: UUID) -> HandleReport:
        with self._lock:
            hosted = self._hosted.get(query_id)
            is_leaving = any(leaving.order.query_id == query_id for leaving in self._leaving)
        if hosted is None:
            return HandleReport(is_leaving=is_leaving)
        if hosted.kind is HandleKind.RUNNING:
            self._look_after(hosted)
        with self._lock:
            age_ms = None if hosted.since is None else int((time.monotonic() - hosted.since) * 1000)
            return HandleReport(hosted.kind, hosted.order.epoch, age_ms, hosted.error, is_leaving)

    def ended(self) -> set[UUID]:
        """Return the running queries that have ended by themselves since the last check; they send no notification."""
        with self._lock:
            running = [hosted for hosted in self._hosted.values() if hosted.kind is HandleKind.RUNNING]
        for hosted in running:
            self._look_after(hosted)
        return {hosted.order.query_id for hosted in running if hosted.kind is HandleKind.DEAD}

    def phase(self, query_id: UUID) -> str | None:
        """Return the phase of a launch, or of a running query without a commit; None otherwise."""
        with self._lock:
            hosted = self._hosted.get(query_id)
            if hosted is None or hosted.kind not in (HandleKind.LAUNCHING, HandleKind.RUNNING):
                return None
            if hosted.handle is None:
                return hosted.phase
        try:
            return hosted.handle.phase
        except Exception as error:  # noqa: BLE001 - ``report`` finds out whether it is dead
            log.debug("phase_unknown", query=hosted.order.name, error=str(error))
            return None

    def stop(self, query_id: UUID) -> None:
        """Ask a live handle to stop, and return at once. Its report is STOPPING, then ABSENT, and leaving until it is at rest."""
        with self._lock:
            hosted = self._hosted.get(query_id)
            if hosted is None or hosted.kind not in (HandleKind.LAUNCHING, HandleKind.RUNNING):
                return
            if hosted.kind is HandleKind.LAUNCHING and hosted.since is None:
                # Not begun: the launcher drops launches that are not in ``_hosted``.
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
            is_stopping = hosted.kind is HandleKind.STOPPING
            if not is_stopping:
                self._enter(hosted, HandleKind.RUNNING)
        if is_stopping:
            self._stop_aside(hosted)
        self._on_change(hosted.order.query_id)

    def _look_after(self, hosted: _Hosted) -> None:
        """Find out whether a running query has ended by itself."""
        handle = hosted.handle
        if handle is None:
            return
        try:
            if handle.is_active:
                return
            cause = self._cause(handle.error())
        except Exception as error:  # noqa: BLE001 - a handle that raises is dead
            cause = self._cause(error)
        with self._lock:
            if hosted.kind is HandleKind.RUNNING:
                hosted.error = cause
                self._enter(hosted, HandleKind.DEAD)

    def _cause(self, error: Exception | None) -> ErrorReport:
        if not self._is_engine_alive():
            return LOST
        return ENDED if error is None else report_of(error)

    def _stop_aside(self, hosted: _Hosted) -> None:
        threading.Thread(target=self._stop_now, args=(hosted,), name=f"stop-{hosted.order.name}", daemon=True).start()

    def _stop_now(self, hosted: _Hosted) -> None:
        """Stop a handle. One that stays active keeps reporting STOPPING, until its driver exits."""
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
        """Wait until a stopped handle is at rest. Only the removal of its files waits for this."""
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
        """End a launch or a stop: remove a query that was asked to stop, store the error of any other."""
        with self._lock:
            if hosted.kind is HandleKind.STOPPING:
                del self._hosted[hosted.order.query_id]
            else:
                hosted.error = error
                self._enter(hosted, HandleKind.DEAD)
        self._on_change(hosted.order.query_id)

    def _note_phase(self, hosted: _Hosted, phase: str) -> None:
        """Store the phase. During a launch no notification is sent: most phases are over before they could be written."""
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


# A JVM's stack trace can be a megabyte; the log has all of it.
MAX_DETAIL_CHARS = 4_000


def report_of(error: Exception) -> ErrorReport:
    """Return the report of an error. An unexpected error is internal, and a retry may help."""
    detail = (str(error) or type(error).__name__)[:MAX_DETAIL_CHARS]
    if isinstance(error, DefinitionInvalid):
        problems = tuple((problem.pointer, problem.code, problem.detail) for problem in error.problems)
        return ErrorReport(error.code, error.domain, error.retryable, detail, problems)
    if isinstance(error, EngineError):
        return ErrorReport(error.code, error.domain, error.retryable, detail)
    if isinstance(error, DATABASE_AWAY):
        return ErrorReport("database_unavailable", "external", is_retryable=True, detail=detail)
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        detail = f"a launch needs space on the disk of the checkpoints: {error}. Free space: the next attempt continues from the last commit"
        return ErrorReport(DiskFull.code, DiskFull.domain, DiskFull.retryable, detail)
    return ErrorReport(
        "internal_error", "internal", is_retryable=True, detail=f"{type(error).__name__}: {detail}"[:MAX_DETAIL_CHARS]
    )

"""Ends the process in which a query stalls, or takes more memory than it may. Other queries share the process, and wait for this query.

A worker, or the planning process, works for one query at a time: this query is *at work*. The working code reports this (``at_work``),
and again with each packet that it makes: this is *progress*. A thread checks it. The thread ends the process if there was no progress for too
long, or if its memory has grown beyond the bound. Before that it records the query and the reason in the scratch directory of the query's
launch, so the driver knows which query to try alone (``engine.spark.streams.slot_manager``).

Time counts only while the thread can run: a stopped process, or one on a stopped machine, loses none of its time. Work can also block every
other Python thread, for example a loop inside one call of C. The kernel then ends the process by its CPU time; this leaves no
record.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeVar

import psutil

Reason = Literal["stalled", "memory"]
T = TypeVar("T")

STALL_S: Final = 120.0
"""A query's batch in a shared slot (20,000 records, 8 MiB) takes milliseconds; the slowest seen, a join of large rows, ten seconds."""

ALONE: Final = 10
"""Factor for a query in its own slot: its batch is up to thirty times as large, and nobody waits for it."""

LOOK_S: Final = 0.1
"""Interval between checks of memory; Polars fills 100 to 200 MB in this time."""

REST_S: Final = 5.0
"""The thread ends after this time without work; the next work starts another one."""

LEAST_MEMORY: Final = 1 << 30
"""Least bound of a worker's memory on any machine: its imports, and the tasks that it caches (``KEPT_BYTES``)."""

_ENDED: Final = "ended"
_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class WorkBounds:
    """What a query may take of a process that it shares.

    Attributes:
        stall_s: longest time at work without progress.
        memory_bytes: the process's most private memory, without mapped files, while the query is at work; None: from the machine's
            memory (``memory_share``).
        emitted_bytes: the approximate most that one batch may emit (``engine.operators.emission``); None: no bound.
    """

    stall_s: float = STALL_S
    memory_bytes: int | None = None
    emitted_bytes: int | None = None

    @property
    def alone(self) -> WorkBounds:
        """The bounds of a query for which no other query waits."""
        return replace(self, stall_s=self.stall_s * ALONE)


USUAL: Final = WorkBounds()
"""The bounds where no other bounds are given."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Work of a query. Each progress makes a new object.

    Attributes:
        run: scratch directory of the query's launch; None: nothing is recorded.
        batch_id: None: the batch is being planned.
    """

    bounds: WorkBounds
    run: Path | None
    batch_id: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a process was ended.

    Attributes:
        batch_id: the batch at work; None: planning.
        amount: seconds without progress, or bytes of memory.
        most: the bound.
    """

    reason: Reason
    batch_id: int | None
    amount: float
    most: float


class Watch:
    """Watches this process, for one working thread; other threads are not watched.

    Args:
        look_s: interval between checks.
        give_back: returns freed memory to the system (``python_processes.ALLOCATOR``).
    """

    def __init__(
        self,
        end: Callable[[], None] | None = None,
        memory_bytes: Callable[[], int] | None = None,
        look_s: float = LOOK_S,
        give_back: Callable[[], None] | None = None,
    ) -> None:
        self._give_back = give_back or give_freed_back
        self._end = end or _kill_this_process
        self._memory_bytes = memory_bytes or own_memory
        self._look_s = look_s
        self._lock = threading.Lock()
        self._work: _Work | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def at_work(self, bounds: WorkBounds, run: Path | None, batch_id: int | None) -> Iterator[None]:
        """Record what is at work in the block. Inside another such block it counts as that block's progress, which the kernel does not see."""
        if self.progress():
            yield
            return
        self._begin(_Work(bounds, run, batch_id))
        try:
            yield
        finally:
            self._work = None
            _let_cpu_run(0)

    def progress(self) -> bool:
        """Record progress of the work; return whether there is any work."""
        if (work := self._work) is None:
            return False
        self._work = _Work(work.bounds, work.run, work.batch_id)
        return True

    def _begin(self, work: _Work) -> None:
        self._work = work
        _let_cpu_run(work.bounds.stall_s)
        if self._thread is None:
            with self._lock:
                self._thread = threading.Thread(target=self._look_forever, name="work-watch", daemon=True)
                self._thread.start()

    def _look_forever(self) -> None:
        seen: _Work | None = None
        still_s = idle_s = 0.0
        last = time.monotonic()
        while True:
            time.sleep(self._look_s)
            now = time.monotonic()
            # In a longer step nothing could run.
            passed_s, last = min(now - last, 2 * self._look_s), now
            work = self._work
            if work is None:
                seen, idle_s = None, idle_s + passed_s
                if idle_s > REST_S and self._has_ended():
                    return
                continue
            still_s, seen, idle_s = (still_s + passed_s if work is seen else 0.0), work, 0.0
            if (found := self._close_dead(work, still_s)) is not None and work is self._work:
                record_end(work.run, found)
                self._end()
                return

    def _close_dead(self, work: _Work, still_s: float) -> Ended | None:
        if still_s > work.bounds.stall_s:
            return Ended("stalled", work.batch_id, round(still_s, 1), work.bounds.stall_s)
        most = work.bounds.memory_bytes or own_share()
        found = self._memory_bytes()
        if found > most:
            self._give_back()
            found = self._memory_bytes()
        return Ended("memory", work.batch_id, found, most) if found > most else None

    def _has_ended(self) -> bool:
        """End the thread, unless there is new work."""
        with self._lock:
            if self._work is not None:
                return False
            self._thread = None
            return True


def each_at_work(packets: Iterator[T], bounds: WorkBounds, run: Path | None, batch_id: int | None) -> Iterator[T]:
    """Yield each packet; the query is at work while a packet is made, and not while the caller handles one."""
    own = watch()
    while True:
        if own.progress():
            found = next(packets, None)
        else:
            with own.at_work(bounds, run, batch_id):
                found = next(packets, None)
        if found is None:
            return
        yield found


def record_end(run: Path | None, ended: Ended) -> None:
    """Record why this process ends. If the record cannot be written, the process still ends."""
    if run is not None:
        with suppress(OSError):
            said = {"reason": ended.reason, "batch_id": ended.batch_id, "amount": ended.amount, "most": ended.most}
            draft = run / f".{_ENDED}"
            draft.write_text(json.dumps(said))
            draft.replace(run / _ENDED)


def read_end(run: Path) -> Ended | None:
    """Return, once, why a launch's process was ended; None: there is no record."""
    note = run / _ENDED
    try:
        said = json.loads(note.read_text())
    except FileNotFoundError:
        return None
    note.unlink(missing_ok=True)
    return Ended(said["reason"], said["batch_id"], said["amount"], said["most"])


def memory_share(total: int, cores: int) -> int:
    """Return a worker's default memory bound: half of the machine's ``total`` for all cores together."""
    return max(LEAST_MEMORY, total // 2 // cores)


@cache
def own_share() -> int:
    """Return ``memory_share`` of this machine, or of this container."""
    return memory_share(machine_memory(), os.cpu_count() or 1)


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container."""
    found = [psutil.virtual_memory().total]
    for path in _CGROUP:
        with suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)


def give_freed_back() -> None:
    """Return freed memory from the allocator to the system."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc has it
        trim(0)


def own_memory() -> int:
    """Return the bytes of private memory of this process: the system can reclaim mapped files by itself."""
    try:
        resident, mapped = Path("/proc/self/statm").read_text().split()[1:3]
    except FileNotFoundError:  # not Linux
        return int(psutil.Process().memory_info().rss)
    return (int(resident) - int(mapped)) * resource.getpagesize()


def _let_cpu_run(seconds: float) -> None:
    """Let the kernel end this process after this much CPU time; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_watches: dict[int, Watch] = {}
"""Watches by process id: a forked worker has no threads of its parent."""


def watch() -> Watch:
    """Return this process's watch."""
    process = os.getpid()
    if (found := _watches.get(process)) is None:
        found = _watches.setdefault(process, Watch())
    return found

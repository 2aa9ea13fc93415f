"""Ends the process in which a query stands still, or takes more memory than it may. Others ride in the same process, and wait for it.

A worker, or the process that plans, does one thing for one query at a time: that is what is *at work*. Whoever works says so (``at_work``),
again with each packet that comes of it: that is *progress*. A thread looks at it, and ends the process where there was no progress for too long
or where its memory has grown beyond the bound. Before that it writes down, in the scratch directory of the query's launch, what was at work
and why it ended: so the driver knows whom to try alone (``engine.spark.streams.slot_manager``).

Time counts as long as the thread can look: a process that was stopped, or whose machine stood still, has lost none of it. What never lets
another thread of Python look, a loop inside one call of C for example, is ended by the kernel, by the CPU time of the process; that leaves no
note.
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
"""A member's batch of a shared slot (20,000 records, 8 MiB) takes milliseconds; the heaviest seen, a join of large rows, ten seconds."""

ALONE: Final = 10
"""A query in a slot of its own has this many times as long: its batch is up to thirty times as large, and nobody waits for it."""

LOOK_S: Final = 0.1
"""How often memory is looked at; Polars fills 100 to 200 MB meanwhile."""

REST_S: Final = 5.0
"""After so long with nothing at work the thread ends; the next work begins another."""

LEAST_MEMORY: Final = 1 << 30
"""Of a worker, however small the machine: what it imports, and the tasks that it keeps (``KEPT_BYTES``)."""

_ENDED: Final = "ended"
_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class WorkBounds:
    """What a query may take of a process that it shares.

    Attributes:
        stall_s: how long it may be at work without progress.
        memory_bytes: of its own memory, not that of mapped files, that the process may have while it is at work; None: the machine's
            memory decides (``memory_share``).
        emitted_bytes: how much one batch may emit, about (``engine.operators.emission``); None: whatever it emits.
    """

    stall_s: float = STALL_S
    memory_bytes: int | None = None
    emitted_bytes: int | None = None

    @property
    def alone(self) -> WorkBounds:
        """Those of a query that nobody waits for."""
        return replace(self, stall_s=self.stall_s * ALONE)


USUAL: Final = WorkBounds()
"""Where nobody says anything else."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What is at work. Each progress makes another one.

    Attributes:
        run: scratch directory of the query's launch; None: nothing is noted.
        batch_id: of which batch; None: it is being planned.
    """

    bounds: WorkBounds
    run: Path | None
    batch_id: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a process was ended.

    Attributes:
        batch_id: what was at work; None: planning.
        amount: seconds without progress, or bytes of memory.
        most: the bound.
    """

    reason: Reason
    batch_id: int | None
    amount: float
    most: float


class Watch:
    """Looks after this process. For one working thread; another that works beside it goes unwatched.

    Args:
        end: ends the process.
        memory_bytes: how much memory it has.
        look_s: how often to look.
        give_back: gives the system what it keeps of freed memory (``python_processes.ALLOCATOR``).
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
        """Say what is at work in the block. Inside of another such block it is progress of that one, which the kernel does not hear of."""
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
        """Say that what is at work has come further; returns whether anything is."""
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
            # A longer step is one in which nothing could run.
            passed_s, last = min(now - last, 2 * self._look_s), now
            work = self._work
            if work is None:
                seen, idle_s = None, idle_s + passed_s
                if idle_s > REST_S and self._has_ended():
                    return
                continue
            still_s, seen, idle_s = (still_s + passed_s if work is seen else 0.0), work, 0.0
            if (found := self._close_dead(work, still_s)) is not None and work is self._work:
                note_end(work.run, found)
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
        """End the thread, unless there is work again."""
        with self._lock:
            if self._work is not None:
                return False
            self._thread = None
            return True


def each_at_work(packets: Iterator[T], bounds: WorkBounds, run: Path | None, batch_id: int | None) -> Iterator[T]:
    """Yield what comes, at work while it is made: not while whoever wants it does something else."""
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


def note_end(run: Path | None, ended: Ended) -> None:
    """Write down why this process ends. That it cannot be written changes nothing: the process must end."""
    if run is not None:
        with suppress(OSError):
            said = {"reason": ended.reason, "batch_id": ended.batch_id, "amount": ended.amount, "most": ended.most}
            draft = run / f".{_ENDED}"
            draft.write_text(json.dumps(said))
            draft.replace(run / _ENDED)


def take_note(run: Path) -> Ended | None:
    """Return why a process ended in which a launch was at work, once; None: nothing is noted."""
    note = run / _ENDED
    try:
        said = json.loads(note.read_text())
    except FileNotFoundError:
        return None
    note.unlink(missing_ok=True)
    return Ended(said["reason"], said["batch_id"], said["amount"], said["most"])


def memory_share(total: int, cores: int) -> int:
    """Return how much memory a worker may have where no setting says: half of the machine's ``total`` for all cores together."""
    return max(LEAST_MEMORY, total // 2 // cores)


@cache
def own_share() -> int:
    """Return what that is on this machine, or in this container."""
    return memory_share(machine_memory(), os.cpu_count() or 1)


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container."""
    found = [psutil.virtual_memory().total]
    for path in _CGROUP:
        with suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)


def give_freed_back() -> None:
    """Give the system the memory that the allocator keeps though it was freed."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc has it
        trim(0)


def own_memory() -> int:
    """Return the bytes of memory that this process has for itself: what it maps of files is the system's to take back."""
    try:
        resident, mapped = Path("/proc/self/statm").read_text().split()[1:3]
    except FileNotFoundError:  # no Linux
        return int(psutil.Process().memory_info().rss)
    return (int(resident) - int(mapped)) * resource.getpagesize()


def _let_cpu_run(seconds: float) -> None:
    """Let the kernel end this process once it has used so much CPU; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_watches: dict[int, Watch] = {}
"""By process id: a forked worker has no thread of its parent's."""


def watch() -> Watch:
    """Return this process's."""
    process = os.getpid()
    if (found := _watches.get(process)) is None:
        found = _watches.setdefault(process, Watch())
    return found

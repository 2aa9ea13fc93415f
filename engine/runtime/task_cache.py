"""The tasks that a worker process has built, at the state of a token. Beyond a bound in number and memory the oldest are dropped."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from time import perf_counter
from typing import Final, NamedTuple
from uuid import UUID

from engine.commit.task_states import newest_epochs
from engine.operators.tasks.task import Task
from engine.postgres.postgres import shared_connection
from engine.state.segments.in_manifest import ManifestSegmentStore
from engine.state.segments.ports import StoredSegments

KEPT_TASKS: Final = 4_096
"""The tasks of a few hundred light queries, with four tasks and several stages each: beyond it each cycle would rebuild every task."""

KEPT_BYTES: Final = 512 << 20
"""Bound of the segments that they hold in memory; a task of a busy join holds about 10 MB."""

FORGET_S: Final = 60.0
"""Interval at which a worker asks which launches are over: files that their tasks have mapped occupy disk space."""


@dataclass(frozen=True, slots=True)
class BuiltTask:
    """A task and its segments: all, and those behind its manifest."""

    task: Task
    store: ManifestSegmentStore
    behind: StoredSegments


@dataclass(frozen=True, slots=True)
class CachedTask:
    """A task at the state of a token, in a database."""

    token: str
    dsn: str
    built: BuiltTask
    memory_bytes: int


class TaskId(NamedTuple):
    """A task's identity: in another launch the plan may differ."""

    query_id: UUID
    epoch: int
    stage: int
    task: int


class TaskCache:
    """See the module's text. The cost of each operation does not depend on the number of tasks, except ``forget_older`` for a new launch."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, CachedTask] = OrderedDict()
        self._size = 0
        self._epochs: dict[UUID, int] = {}
        self._looked_at = 0.0

    def take(self, place: TaskId) -> CachedTask | None:
        """Remove and return a task; the caller puts its new state back."""
        found = self._tasks.pop(place, None)
        self._size -= 0 if found is None else found.memory_bytes
        return found

    def put(self, place: TaskId, kept: CachedTask) -> None:
        """Keep a task; drop the oldest beyond the bounds."""
        self.take(place)
        self._tasks[place] = kept
        self._size += kept.memory_bytes
        self._forget_what_is_over(kept.dsn)
        while len(self._tasks) > KEPT_TASKS or (self._size > KEPT_BYTES and len(self._tasks) > 1):
            self._size -= self._tasks.popitem(last=False)[1].memory_bytes

    def forget_older(self, query_id: UUID, epoch: int) -> None:
        """Drop the tasks of a query's other launches."""
        if self._epochs.get(query_id) != epoch:
            self._epochs[query_id] = epoch
            for place in [place for place in self._tasks if place.query_id == query_id and place.epoch != epoch]:
                self.take(place)

    def _forget_what_is_over(self, dsn: str) -> None:
        """Drop tasks of superseded launches, of deleted queries, and of a database other than the current one."""
        if perf_counter() - self._looked_at < FORGET_S:
            return
        self._looked_at = perf_counter()
        own = {place.query_id for place, kept in self._tasks.items() if kept.dsn == dsn}
        with shared_connection(dsn) as connection:
            newest = newest_epochs(connection, own)
        for place in [
            place for place, kept in self._tasks.items() if kept.dsn != dsn or newest.get(place.query_id) != place.epoch
        ]:
            self.take(place)
        there = {place.query_id for place in self._tasks}
        self._epochs = {query_id: epoch for query_id, epoch in self._epochs.items() if query_id in there}


task_cache: Final = TaskCache()
"""The cache of this process."""

"""The tasks that a worker process has built and keeps, at the state of a token: the oldest go beyond a bound in number and in memory."""

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
"""Those of a few hundred light queries, of four tasks and several stages each: beyond it each round would build every task anew."""

KEPT_BYTES: Final = 512 << 20
"""Of the segments that they hold in memory: of a busy join's task about 10 MB."""

FORGET_S: Final = 60.0
"""How often a worker asks which launches are over: what their tasks have mapped holds disk space."""


@dataclass(frozen=True, slots=True)
class Built:
    """A task, and its segments: all, and those behind its manifest."""

    task: Task
    store: ManifestSegmentStore
    behind: StoredSegments


@dataclass(frozen=True, slots=True)
class CachedTask:
    """A task at the state of a token, in a database."""

    token: str
    dsn: str
    built: Built
    memory_bytes: int


class TaskPlace(NamedTuple):
    """Which task it is: of another launch the plan may differ."""

    query_id: UUID
    epoch: int
    stage: int
    task: int


class TaskCache:
    """See the module's text. Each operation costs the same however many tasks there are, but for ``forget_older`` where a launch is new."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskPlace, CachedTask] = OrderedDict()
        self._size = 0
        self._epochs: dict[UUID, int] = {}
        self._looked_at = 0.0

    def take(self, place: TaskPlace) -> CachedTask | None:
        """Return a task, which is kept no longer: what it is from now on is put again."""
        found = self._tasks.pop(place, None)
        self._size -= 0 if found is None else found.memory_bytes
        return found

    def put(self, place: TaskPlace, kept: CachedTask) -> None:
        """Keep a task; forget the oldest beyond the bounds."""
        self.take(place)
        self._tasks[place] = kept
        self._size += kept.memory_bytes
        self._forget_what_is_over(kept.dsn)
        while len(self._tasks) > KEPT_TASKS or (self._size > KEPT_BYTES and len(self._tasks) > 1):
            self._size -= self._tasks.popitem(last=False)[1].memory_bytes

    def forget_older(self, query_id: UUID, epoch: int) -> None:
        """Forget the tasks of a query's other launches."""
        if self._epochs.get(query_id) != epoch:
            self._epochs[query_id] = epoch
            for place in [place for place in self._tasks if place.query_id == query_id and place.epoch != epoch]:
                self.take(place)

    def _forget_what_is_over(self, dsn: str) -> None:
        """Forget tasks of launches behind which there is another, of queries that are gone, and of another database than the one in use."""
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


kept_tasks: Final = TaskCache()
"""This process's."""

"""An executor without Spark: one thread of this process runs the batches of all its queries, one after the other.

Planning, reading, operators, state and commits are those of a slot on Spark. It lacks what Spark adds: other processes and hosts, the
bounds of a worker's time and memory, batches in parts, and a commit beside the next batch.
"""

from __future__ import annotations

import threading
from typing import Final, Literal

from engine.commit.task_states import Cursor
from engine.plan.model import Plan
from engine.postgres.postgres import SinkLink
from engine.runtime.checkpoint import note_planned
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.launched_query import LaunchContext, LaunchedQuery
from engine.runtime.launches.run_options import RunOptions
from engine.runtime.limits.batch_size import ExecutionMode
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.source import PacketReader

POLL_S: Final = 0.02
"""Interval between looks for records while no query has any."""


class InProcessQuery(LaunchedQuery):
    """A launched query; its executor's thread calls ``run_batch``. See ``QueryHandle``."""

    def __init__(self, context: LaunchContext, link: SinkLink) -> None:
        super().__init__(context)
        self._link = link
        self._in_batch = threading.Lock()
        self._has_looked = False
        self._begin()

    def _begin(self) -> None:
        """Plan from the last commit on, with the current bounds."""
        spec = self.resume(self._link, None, ExecutionMode.DEDICATED, 0)
        self._reader, self._planner = PacketReader.of(spec), BatchPlanner.of(spec)
        self._position: Cursor = spec.start
        if self._options.is_available_now:
            self._planner.prepare()

    def run_batch(self) -> bool:
        """Read and commit a batch, if there are records; an error ends the query or shrinks its batches. Return whether it did anything."""
        with self._in_batch:
            try:
                return self.is_active and self._run_batch()
            except Exception as error:  # noqa: BLE001 - ends this query only
                if self.shrink_to_retry(error):
                    self._begin()
                    return True
                self.fail(error)
                return True

    def _run_batch(self) -> bool:
        end = self._planner.next_cursor(self._position)
        if end is self._position:
            self._has_looked = True
            if self._options.is_available_now:
                self.fail(None)
            return False
        batch_id = self.next_batch
        note_planned(self._scratch, batch_id)
        groups = self._planner.groups(self._position, end)
        packets = [packet for group in groups for packet in self._reader.results(group, batch_id)]
        if self.commit(packets, {}) is None:
            self._position = end
            if self.is_resized:
                self._begin()
        return True

    @property
    def phase(self) -> Literal["preparing", "first_batch"] | None:
        """See ``QueryHandle``."""
        if self._has_committed or self._has_looked:
            return None
        return "first_batch" if self.is_under_way else "preparing"

    def stop(self, timeout_s: float) -> bool:
        """See ``QueryHandle``."""
        return self.end_orderly(timeout_s)

    def await_rest(self) -> bool:
        """See ``QueryHandle``. Waits for the end of the current batch without a bound: nothing but its own work can end it."""
        with self._in_batch:
            return True


class InProcessExecutor:
    """See ``Executor``. A batch that never returns holds up the other queries.

    Args:
        dsn: the database of feeds and results.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn, self._link = dsn, SinkLink(dsn, None)
        self._queries: list[InProcessQuery] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """See ``Executor``."""
        return not self._is_closed

    def launch(self, plan: Plan, launch: Launch, options: RunOptions) -> InProcessQuery:
        """See ``Executor`` and ``LaunchContext.open``."""
        query = InProcessQuery(LaunchContext.open(plan, launch, self._dsn, options), self._link)
        with self._changed:
            self._queries.append(query)
            self._changed.notify()
        return query

    def make_ready(self) -> None:
        """See ``Executor``: there is nothing to do."""

    def close(self) -> None:
        """See ``Executor``. Waits for the current batch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._link.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._queries = [query for query in self._queries if query.is_active]
                queries = list(self._queries)
                if self._is_closed:
                    return
            did_work = [query.run_batch() for query in queries]
            if not any(did_work):
                with self._changed:
                    self._changed.wait(POLL_S if queries else None)

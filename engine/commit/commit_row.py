"""The row of ``log.commit`` of a query after each batch: its progress, its times, its waiting data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg

from engine.operators.tasks.lateness import summed
from engine.plan.model import Plan

Json = dict[str, Any]

BY_TIME: Final = "time:0"
"""Stands among the wakes of tasks for the wall clock at which time makes something due without records (T10, T11)."""

_BY_TASK: Final = ("buffered", "buffered_bytes", "oldest_ms", "waiting")
"""Parts of the detail with the form operator → task → value."""


@dataclass(frozen=True, slots=True)
class CommitRow:
    """Position and detail of the commit row as of one batch.

    ``detail`` has:
    ``times`` (``QueryTimes.snapshot``), ``clocks`` (operator → the time before it, ``<operator>.table`` → that of the table beside it),
    ``dues`` (stage and task → ``Emission.dues``: at which times it emits something that waits),
    ``buffered``, ``buffered_bytes`` and ``oldest_ms`` (operator → task → value; operators by ``ReportedNames``, the last two
    without unknown values),
    ``read_rows`` (feed → count), ``read_to`` (feed → partition → greatest event time read; for a derived feed the greatest head),
    ``emitted_rows``, ``wakes`` (stage and task → wall clock at which it has work without input),
    ``lateness`` (gauge → histogram, over all tasks),
    ``phases_ms`` (of this batch: ``process``, the stages' work, and ``sink``, from the arrival of its packets on; of the batch before,
    because Spark reports on a batch only after its commit: ``engine.spark.streams.stopping.SPARK_PHASES``, absent after a launch's first batch),
    ``execution`` (the slot of the batch, the reason for it, and the parts of the query's time, see ``Sink.execution``).
    """

    position: dict[str, dict[str, int]]
    detail: Json

    def within(self, tasks: int) -> CommitRow:
        """Return the row without values of tasks that no longer exist, after a change to fewer tasks."""

        def kept(of_tasks: Json) -> Json:
            return {task: value for task, value in of_tasks.items() if int(task.rpartition(":")[2]) < tasks}

        parts = {part: {name: kept(each) for name, each in self.detail.get(part, {}).items()} for part in _BY_TASK}
        detail = {**self.detail, **parts, **{part: kept(self.detail.get(part, {})) for part in ("wakes", "dues")}}
        return CommitRow(self.position, detail)

    def advanced(self, progress: Sequence[Json], stats: Sequence[Json], emitted: int, names: ReportedNames) -> CommitRow:
        """Return the row after the batch."""
        position = {feed: dict(partitions) for feed, partitions in self.position.items()}
        read = dict(self.detail.get("read_rows", {}))
        read_to = {feed: dict(partitions) for feed, partitions in self.detail.get("read_to", {}).items()}
        newest = self.detail.get("max_ts")
        for read_part in progress:
            partitions = position.setdefault(read_part["feed"], {})
            partition = str(read_part["partition"])
            partitions[partition] = max(partitions.get(partition, 0), read_part["end_offset"])
            read[read_part["feed"]] = read.get(read_part["feed"], 0) + read_part["rows"]
            newest = max((ts for ts in (newest, read_part["max_ts"]) if ts is not None), default=None)
            known = read_to.setdefault(read_part["feed"], {})
            if read_part["head"] is not None:
                known[partition] = max(known.get(partition, read_part["head"]), read_part["head"])
        detail: Json = {
            "read_rows": read,
            "read_to": read_to,
            "emitted_rows": self.detail.get("emitted_rows", 0) + emitted,
            "max_ts": newest,
        }
        for part in _BY_TASK:
            detail[part] = _merged(self.detail.get(part, {}), part, stats, names)
        for part, reported in (("wakes", "wakes_at_ms"), ("dues", "dues")):
            of_tasks = {task: ms for task, ms in self.detail.get(part, {}).items() if task != BY_TIME}
            for report in stats:
                if reported in report:
                    of_tasks[f"{report['stage']}:{report['task']}"] = report[reported]
            detail[part] = {task: value for task, value in of_tasks.items() if value is not None and value != {}}
        detail["lateness"] = self.detail.get("lateness", {})
        for report in stats:
            detail["lateness"] = summed(detail["lateness"], report.get("lateness", {}))
        return CommitRow(position, detail)

    def stream_time(self, plan: Plan, names: ReportedNames) -> int | None:
        """Return the time before the last operator that has a name; without any, the newest event time."""
        clocks = self.detail.get("clocks", {})
        for stage in reversed(plan.stages):
            for operator in reversed(stage.operators):
                name = names.of(stage.index, operator.name or "")
                if name in clocks:
                    return int(clocks[name])
        newest: int | None = self.detail.get("max_ts")
        return newest


def _merged(before: Json, part: str, reports: Sequence[Json], names: ReportedNames) -> Json:
    """Merge the reports of a batch's tasks into the known values: operator → task → value.

    Values that a task no longer reports of an operator's buffer, such as the oldest of no rows, are dropped.
    """
    merged = {operator: dict(tasks) for operator, tasks in before.items()}
    for stats in reports:
        task, stage = str(stats["task"]), stats["stage"]
        for operator in stats["buffered"]:
            merged.get(names.of(stage, operator), {}).pop(task, None)
        for operator, value in stats.get(part, {}).items():
            merged.setdefault(names.of(stage, operator), {})[task] = value
    return {operator: tasks for operator, tasks in merged.items() if tasks}


def earliest_wake(conn: psycopg.Connection[Any], query_id: UUID) -> int | None:
    """Return the wall clock at which the first task of a query has work without input; None for never."""
    row = conn.execute(
        "SELECT min(wake.value::bigint) FROM log.commit, jsonb_each_text(detail -> 'wakes') AS wake WHERE query_id = %s",
        (query_id,),
    ).fetchone()
    return None if row is None else row[0]


class ReportedNames:
    """The names under which the status shows the operators of a plan: with the stage where several stages have an operator of that name.

    The steps of a foreign-key join share the joined table's name; those of an aggregation over a table are both called ``aggregate``.
    """

    def __init__(self, plan: Plan) -> None:
        names = ((stage.index, operator.name) for stage in plan.stages for operator in stage.operators)
        counts = Counter(name for _, name in {pair for pair in names if pair[1] is not None})
        self._shared = {name for name, count in counts.items() if count > 1}

    def of(self, stage_index: int, reported: str) -> str:
        """Return the name to show: ``customers@1`` or ``customers@1.table`` where two stages have a ``customers``.

        Args:
            stage_index: the stage that reports.
            reported: an operator's name, or one of its clocks': the name, a dot and more.
        """
        name, dot, rest = reported.partition(".")
        return f"{name}@{stage_index}{dot}{rest}" if name in self._shared else reported

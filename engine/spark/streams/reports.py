"""What Spark's own report on a batch (``StreamingQueryProgress``) tells of where its time went. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SPARK_PHASES = {
    "latestOffset": "spark_plan",
    "queryPlanning": "spark_query_planning",
    "walCommit": "spark_wal_commit",
    "addBatch": "spark_add_batch",
    "commitOffsets": "spark_commit_offsets",
    "triggerExecution": "spark_trigger",
}
"""Spark's names of a batch's phases → ours: finding out what to read; making the physical plan; writing down what will be read; reading,
the stages and the sink together; writing down that it is done; all of it."""


def spark_phases(report: Mapping[str, Any] | None, batch_id: int) -> dict[str, int]:
    """Return our phase → milliseconds, as reported on the batch before ``batch_id``; nothing where the report is on another."""
    if report is None or int(report["batchId"]) != batch_id - 1:
        return {}
    durations = report["durationMs"]
    return {ours: int(durations[name]) for name, ours in SPARK_PHASES.items() if name in durations}

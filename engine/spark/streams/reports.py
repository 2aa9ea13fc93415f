"""The phases of a batch's time in Spark's own report (``StreamingQueryProgress``). Pure."""

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
"""Spark's names of a batch's phases → ours: finding what to read; making the physical plan; recording what will be read; reading,
the stages and the sink together; recording that the batch is done; the total."""


def spark_phases(report: Mapping[str, Any] | None, batch_id: int) -> dict[str, int]:
    """Return our phase → milliseconds of the batch before ``batch_id``; empty if the report is about another batch."""
    if report is None or int(report["batchId"]) != batch_id - 1:
        return {}
    durations = report["durationMs"]
    return {ours: int(durations[name]) for name, ours in SPARK_PHASES.items() if name in durations}

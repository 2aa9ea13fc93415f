"""What Spark reports on a batch stands beside the next one, and never beside another."""

from __future__ import annotations

from typing import Any

from engine.spark.streams.stopping import spark_phases

REPORT: dict[str, Any] = {
    "batchId": 6,
    "durationMs": {
        "addBatch": 310,
        "commitOffsets": 12,
        "getBatch": 0,
        "latestOffset": 25,
        "queryPlanning": 41,
        "triggerExecution": 402,
        "walCommit": 14,
    },
}


def test_the_report_on_the_batch_before_is_told_phase_by_phase() -> None:
    assert spark_phases(REPORT, 7) == {
        "spark_plan": 25,
        "spark_query_planning": 41,
        "spark_wal_commit": 14,
        "spark_add_batch": 310,
        "spark_commit_offsets": 12,
        "spark_trigger": 402,
    }


def test_a_phase_that_spark_does_not_report_is_absent() -> None:
    assert spark_phases({"batchId": 0, "durationMs": {"triggerExecution": 9}}, 1) == {"spark_trigger": 9}


def test_without_a_report_on_the_batch_before_nothing_is_told() -> None:
    assert spark_phases(None, 0) == {}
    assert spark_phases(REPORT, 6) == {}
    assert spark_phases(REPORT, 8) == {}

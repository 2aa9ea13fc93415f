"""What a slot asks of Spark besides running its stream: to stop in time, the phases of a batch, and to release what ended slots left.

``java/slackwater/Leftovers.java`` lists what Spark and Py4J keep of each slot as long as the JVM lives.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CANCEL_EVERY_S: Final = 0.5
"""Interval between searches for jobs of a stream that is stopping."""


def stop_stream(spark: SparkSession, query: StreamingQuery, timeout: float) -> bool:
    """Stop a stream, even if the JVM hangs or is gone; return whether it stopped within ``timeout`` seconds.

    Spark cancels the jobs that it finds, and waits. A job that begins just after that may wait for a commit that will not come
    (``engine.commit.task_states.await_batch``). So we search for jobs repeatedly.
    """
    stopper = threading.Thread(target=query.stop, daemon=True)
    stopper.start()
    # In separate threads, because a hanging JVM answers neither call.
    threading.Thread(target=_cancel_until, args=(spark, stopper, query), daemon=True).start()
    stopper.join(timeout)
    return not stopper.is_alive()


def _cancel_until(spark: SparkSession, stopper: threading.Thread, query: StreamingQuery) -> None:
    while stopper.is_alive():
        stopper.join(CANCEL_EVERY_S)
        if stopper.is_alive():
            with suppress(Exception):  # the JVM is gone, and its jobs with it
                spark.sparkContext.cancelJobGroup(query.runId)


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


SETTLED_S = 60
"""Spark waits ten seconds for a Python worker to call back; after this time nothing uses the objects of that wait."""

log = structlog.stdlib.get_logger(__name__)


def remember_callback(spark: SparkSession) -> None:
    """Register the connection of this thread, which the JVM called back in. It can close when the JVM's thread has ended."""
    gateway = _gateway(spark)
    _tell(gateway.jvm.slackwater.Leftovers.callsBack(gateway.java_gateway_server.getCallbackClient()))


def sweep(spark: SparkSession, settled_s: int = SETTLED_S) -> None:
    """Release what ended slots left. Leftovers of a start are released when they are ``settled_s`` seconds old."""
    _tell(_gateway(spark).jvm.slackwater.Leftovers.sweep(settled_s))


def _tell(problem: str | None) -> None:
    """Log what failed. A Spark release that keeps these objects elsewhere can still run queries."""
    if problem is not None:
        log.warning("leftovers_not_swept", detail=problem)


def _gateway(spark: SparkSession) -> Any:
    return spark.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way to the classes of the JVM

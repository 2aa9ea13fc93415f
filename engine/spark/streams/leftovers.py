"""Letting go of what Spark and Py4J keep of each slot as long as the JVM lives. What that is, says ``java/slackwater/Leftovers.java``."""

from __future__ import annotations

from typing import Any

import structlog
from pyspark.sql import SparkSession

SETTLED_S = 60
"""Spark waits for ten seconds until a Python worker has called back; then nothing uses what it waited with."""

log = structlog.stdlib.get_logger(__name__)


def remember_callback(spark: SparkSession) -> None:
    """Say, in a thread that the JVM called back in, that its connection can go when the JVM's thread has ended."""
    gateway = _gateway(spark)
    _tell(gateway.jvm.slackwater.Leftovers.callsBack(gateway.java_gateway_server.getCallbackClient()))


def sweep(spark: SparkSession, settled_s: int = SETTLED_S) -> None:
    """Let go of what slots that have ended left; what their start left only when that is ``settled_s`` seconds ago."""
    _tell(_gateway(spark).jvm.slackwater.Leftovers.sweep(settled_s))


def _tell(problem: str | None) -> None:
    """Say what could not be done. A release of Spark that keeps these things elsewhere is no reason not to run queries."""
    if problem is not None:
        log.warning("leftovers_not_swept", detail=problem)


def _gateway(spark: SparkSession) -> Any:
    return spark.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way to the classes of the JVM

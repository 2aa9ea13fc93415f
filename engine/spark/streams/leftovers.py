"""Releasing what Spark and Py4J keep of each slot as long as the JVM lives. ``java/slackwater/Leftovers.java`` lists it."""

from __future__ import annotations

from typing import Any

import structlog
from pyspark.sql import SparkSession

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

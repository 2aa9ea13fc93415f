"""How to stop a Spark stream within a given time, even if the JVM hangs or is gone."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CANCEL_EVERY_S: Final = 0.5
"""Interval between searches for jobs of a stream that is stopping."""


def stop_stream(spark: SparkSession, query: StreamingQuery, timeout: float) -> bool:
    """Stop a stream; return whether it stopped within ``timeout`` seconds.

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

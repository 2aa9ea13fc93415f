"""How a stream of Spark's is stopped within a given time, also where the JVM hangs or is gone."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CANCEL_EVERY_S: Final = 0.5
"""How often the jobs of a stream that is to stop are looked for."""


def stop_stream(spark: SparkSession, query: StreamingQuery, timeout: float) -> bool:
    """Stop a stream; returns whether it did within ``timeout`` seconds.

    Spark cancels the jobs that it finds, and waits. One that begins right behind that may wait in turn for a commit that will not come
    (``engine.commit.task_states.await_batch``), so it is looked for again and again.
    """
    stopper = threading.Thread(target=query.stop, daemon=True)
    stopper.start()
    # In threads of their own: a JVM that hangs answers neither.
    threading.Thread(target=_cancel_until, args=(spark, stopper, query), daemon=True).start()
    stopper.join(timeout)
    return not stopper.is_alive()


def _cancel_until(spark: SparkSession, stopper: threading.Thread, query: StreamingQuery) -> None:
    while stopper.is_alive():
        stopper.join(CANCEL_EVERY_S)
        if stopper.is_alive():
            with suppress(Exception):  # of a JVM that is gone; nothing of it runs any more
                spark.sparkContext.cancelJobGroup(query.runId)

"""A batch that fails while its query is being stopped ends it with an error, however long Spark's text is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from engine.runtime.failures import WorkerLost, decoded, marked, spark_failure

pytestmark = pytest.mark.spark

SECONDS = 60
LONG = "long " * 20_000


def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


def raising(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with marked():
        for _ in batches:
            raise ValueError(LONG)
    yield from ()


class Stopped:
    """Hands a batch's failure on when its query is being stopped already: Spark then looks for an interruption in the text."""

    def __init__(self) -> None:
        self.query: StreamingQuery | None = None
        self.is_started = threading.Event()
        self.failure: BaseException | None = None

    def commit(self, batch: DataFrame, _batch_id: int) -> None:
        try:
            batch.toArrow()
        except Exception as error:  # noqa: BLE001 - told to Spark, short
            self.failure = error
            self.stop()
            raise spark_failure(error) from None

    def stop(self) -> None:
        assert self.is_started.wait(SECONDS)
        assert self.query is not None
        threading.Thread(target=self.query.stop, daemon=True).start()
        while self.query.isActive:
            pass


def run(spark: SparkSession, work: object, stopped: Stopped) -> str:
    """Run a query to its end; return what Spark says it died of."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    stopped.query = rows.mapInArrow(work, rows.schema).writeStream.foreachBatch(stopped.commit).start()  # type: ignore[arg-type]
    stopped.is_started.set()
    with pytest.raises(StreamingQueryException) as raised:
        stopped.query.awaitTermination(SECONDS)
    return str(raised.value)


def test_a_worker_that_is_killed_while_its_query_stops_is_named(spark: SparkSession) -> None:
    stopped = Stopped()
    text = run(spark, dying, stopped)
    assert len(str(stopped.failure)) > 10_000
    assert "a worker process died in the middle of a batch" in text
    assert stopped.failure is not None
    assert isinstance(decoded(stopped.failure), WorkerLost)


def test_an_endless_message_of_a_worker_is_cut(spark: SparkSession) -> None:
    stopped = Stopped()
    text = run(spark, raising, stopped)
    assert "ValueError: long long" in text
    assert len(text) < 20_000
    assert stopped.failure is not None
    assert str(decoded(stopped.failure)).startswith("ValueError: long long")

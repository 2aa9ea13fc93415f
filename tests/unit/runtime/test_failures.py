"""Errors of ours survive the way through Spark's texts."""

from __future__ import annotations

import traceback

import psycopg
import pytest

from engine.errors import (
    DataInvalid,
    DiskFull,
    EngineError,
    EpochFenced,
    InternalError,
    RecordsRemoved,
    SourceUnavailable,
    StateCorrupt,
)
from engine.runtime.failures import WorkerLost, decoded, marked, spark_failure
from tests.effort import cpu_seconds_below

SPARK = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
{cause}
=== Streaming Query ===
Current State: ACTIVE
"""


def through_spark(error: EngineError) -> Exception:
    with pytest.raises(Exception, match="slackwater") as caught, marked():
        raise error
    return RuntimeError(SPARK.format(cause=f"engine.runtime.failures._Marked: {caught.value}"))


@pytest.mark.parametrize("kind", [DataInvalid, RecordsRemoved, SourceUnavailable, StateCorrupt, EpochFenced])
def test_class_and_message_arrive(kind: type[EngineError]) -> None:
    error = decoded(through_spark(kind('line 3: {"a": "≠ >>"}\nand a second line')))
    assert type(error) is kind
    assert str(error) == 'line 3: {"a": "≠ >>"}\nand a second line'


def test_an_error_of_ours_is_itself() -> None:
    error = SourceUnavailable("away")
    assert decoded(error) is error


def test_a_killed_worker_is_external_and_retryable() -> None:
    error = decoded(
        RuntimeError(SPARK.format(cause="org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"))
    )
    assert isinstance(error, WorkerLost)
    assert (error.domain, error.retryable) == ("external", True)


def test_a_killed_planning_process_is_a_lost_one_though_spark_names_no_cause() -> None:
    told = "[STREAM_FAILED] Query [id = 3000227f, runId = 64dc] terminated with exception:  SQLSTATE: XXKST (no cause message)"
    assert isinstance(decoded(RuntimeError(f"{told}\n=== Streaming Query ===\nIdentifier: waiting@1 87d22c75")), WorkerLost)


def test_anything_else_is_internal_and_says_the_last_error() -> None:
    error = decoded(RuntimeError(SPARK.format(cause="  File \"x.py\", line 1\nKeyError: 'origin'\n")))
    assert type(error) is InternalError
    assert str(error) == "KeyError: 'origin'"


JAVA = """An error occurred while calling o1.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
	at org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: {told} SQLSTATE: 58030
	at org.apache.spark.sql.errors.QueryExecutionErrors$.cannotLoadStore(QueryExecutionErrors.scala:2941)
Caused by: {cause}
	at java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("told", "cause", "kind", "message"),
    [
        ("Job aborted", "java.io.IOException: No space left on device", DiskFull, "No space left on device"),
        ("Job aborted", "java.io.IOException: Too many open files", InternalError, "IOException: Too many open files"),
        ("Job aborted", "java.lang.InterruptedException: null", InternalError, "InterruptedException: null"),
        ("Job aborted", "java.io.EOFException", WorkerLost, "a worker process died"),
    ],
)
def test_what_java_found_is_told_by_its_last_cause(told: str, cause: str, kind: type[EngineError], message: str) -> None:
    error = decoded(RuntimeError(JAVA.format(told=told, cause=cause)))
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("the server closed the connection"),
        psycopg.errors.CannotConnectNow("the database system is starting up"),
        psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction"),
        psycopg.InterfaceError("the connection is closed"),
    ],
)
def test_a_database_that_is_away_is_no_fault_of_a_query_whoever_meets_it(error: Exception) -> None:
    with pytest.raises(Exception, match="slackwater") as caught, marked():
        raise error
    for found in (decoded(caught.value), decoded(error)):
        assert isinstance(found, SourceUnavailable)
        assert str(error) in str(found)


def test_other_exceptions_leave_the_block_unchanged() -> None:
    with pytest.raises(KeyError), marked():
        raise KeyError("origin")


LONG = "long " * 20_000


@pytest.mark.parametrize("error", [DataInvalid(LONG), ValueError(LONG), KeyError(LONG)])
def test_what_leaves_the_block_is_short_whatever_was_raised(error: Exception) -> None:
    error.__cause__ = OSError(LONG)
    with pytest.raises(Exception, match="long") as caught, marked():
        raise error
    text = "".join(traceback.format_exception(caught.value))
    assert len(text) < 20_000
    found = decoded(RuntimeError(SPARK.format(cause=text)))
    assert type(found) is (DataInvalid if isinstance(error, DataInvalid) else InternalError)
    assert "long long long" in str(found)
    assert __file__ in text


@pytest.mark.parametrize("text", ["Error" * 20_000, "a." * 50_000, "x\n" * 50_000, "Error: " * 20_000])
def test_a_hostile_text_is_decoded_in_a_moment(text: str) -> None:
    with cpu_seconds_below(5):
        assert len(str(decoded(RuntimeError(text)))) <= 2_000


def test_spark_hears_of_an_interruption_as_it_wants_to() -> None:
    text = f"An error occurred while calling o1.getResult.\n: {LONG}\nCaused by: java.lang.InterruptedException\n\tat x"
    told = traceback.format_exception(spark_failure(RuntimeError(text)))
    assert "py4j.protocol.Py4JJavaError: An error occurred while calling it: java.lang.InterruptedException" in told[-1]


def test_spark_hears_of_any_other_failure_what_it_is_and_no_more() -> None:
    lost = f"An error occurred while calling o1.getResult.\n: Python worker exited unexpectedly (crashed)\n{LONG}"
    assert str(spark_failure(RuntimeError(lost))) == "a worker process died in the middle of a batch"
    assert len(str(spark_failure(ValueError(LONG)))) <= 2_000

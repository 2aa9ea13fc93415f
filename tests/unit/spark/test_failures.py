"""Errors of ours survive the way through Spark's texts."""

from __future__ import annotations

import pytest

from engine.errors import DataInvalid, EngineError, EpochFenced, InternalError, SourceUnavailable, StateCorrupt
from engine.spark.failures import WorkerLost, decoded, marked

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
    return RuntimeError(SPARK.format(cause=f"engine.spark.failures._Marked: {caught.value}"))


@pytest.mark.parametrize("kind", [DataInvalid, SourceUnavailable, StateCorrupt, EpochFenced])
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


def test_anything_else_is_internal_and_says_the_last_error() -> None:
    error = decoded(RuntimeError(SPARK.format(cause="  File \"x.py\", line 1\nKeyError: 'origin'\n")))
    assert type(error) is InternalError
    assert str(error) == "KeyError: 'origin'"


def test_other_exceptions_leave_the_block_unchanged() -> None:
    with pytest.raises(KeyError), marked():
        raise KeyError("origin")

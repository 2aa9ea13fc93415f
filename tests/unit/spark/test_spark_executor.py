"""What the executor on Spark says of its session. Without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.spark.executor import SparkExecutor


class Session:
    """A session whose JVM can go away."""

    def __init__(self) -> None:
        self.is_gone, self.stops = False, 0

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        if self.is_gone:
            raise ConnectionRefusedError
        return SimpleNamespace(defaultParallelism=1)

    def stop(self) -> None:
        self.stops += 1


def test_an_executor_is_alive_until_its_jvm_has_gone() -> None:
    session = Session()
    executor = SparkExecutor(session, "")  # type: ignore[arg-type]
    assert executor.is_alive
    session.is_gone = True
    assert not executor.is_alive


def test_close_stops_the_session_once() -> None:
    session = Session()
    SparkExecutor(session, "").close()  # type: ignore[arg-type]
    assert session.stops == 1

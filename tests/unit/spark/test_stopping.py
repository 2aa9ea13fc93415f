"""How a stream is stopped when the JVM hangs or is gone: within the time that was given, and without a word of py4j's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.spark.streams import stopping
from engine.spark.streams.stopping import stop_stream

PATIENCE_S = 30.0


def spark_of(cancel: Callable[[str], None]) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=cancel))


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(stopping, "CANCEL_EVERY_S", 0.02)
    event = threading.Event()
    yield event
    event.set()


def test_a_jvm_that_hangs_is_not_waited_for(over: threading.Event) -> None:
    began = time.monotonic()
    query: Any = SimpleNamespace(stop=lambda: over.wait(PATIENCE_S), runId="a")
    assert not stop_stream(spark_of(lambda _group: over.wait(PATIENCE_S) and None), query, 0.2)
    assert time.monotonic() - began < PATIENCE_S / 2


def test_a_jvm_that_is_gone_is_no_error_and_jobs_are_cancelled_again_until_the_stream_stopped(over: threading.Event) -> None:
    asked: list[str] = []

    def gone(group: str) -> None:
        asked.append(group)
        if len(asked) == 3:
            over.set()
        raise ConnectionRefusedError

    query: Any = SimpleNamespace(stop=lambda: over.wait(PATIENCE_S), runId="a")
    assert stop_stream(spark_of(gone), query, PATIENCE_S)
    assert asked[:3] == ["a"] * 3


def test_a_stream_that_stops_soon_has_no_jobs_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "CANCEL_EVERY_S", PATIENCE_S)
    asked: list[str] = []
    query: Any = SimpleNamespace(stop=lambda: time.sleep(0.2), runId="a")
    assert stop_stream(spark_of(asked.append), query, PATIENCE_S)
    time.sleep(0.2)
    assert asked == []

"""How a stream is stopped when the JVM hangs or is gone: within the time that was given, and without a word of py4j's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.spark import carrier
from engine.spark.carrier import Carrier

PATIENCE_S = 30.0


def carrier_of(cancel: Callable[[str], None]) -> Any:
    made: Any = object.__new__(Carrier)
    made._spark = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=cancel))
    return made


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(carrier, "CANCEL_EVERY_S", 0.02)
    event = threading.Event()
    yield event
    event.set()


def test_a_jvm_that_hangs_is_not_waited_for(over: threading.Event) -> None:
    began = time.monotonic()
    query = SimpleNamespace(stop=lambda: over.wait(PATIENCE_S), runId="a")
    assert not carrier_of(lambda _group: over.wait(PATIENCE_S) and None)._stop_stream(query, 0.2)
    assert time.monotonic() - began < PATIENCE_S / 2


def test_a_jvm_that_is_gone_is_no_error_and_jobs_are_cancelled_again_until_the_stream_stopped(over: threading.Event) -> None:
    asked: list[str] = []

    def gone(group: str) -> None:
        asked.append(group)
        if len(asked) == 3:
            over.set()
        raise ConnectionRefusedError

    assert carrier_of(gone)._stop_stream(SimpleNamespace(stop=lambda: over.wait(PATIENCE_S), runId="a"), PATIENCE_S)
    assert asked[:3] == ["a"] * 3


def test_a_stream_that_stops_soon_has_no_jobs_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "CANCEL_EVERY_S", PATIENCE_S)
    asked: list[str] = []
    assert carrier_of(asked.append)._stop_stream(SimpleNamespace(stop=lambda: time.sleep(0.2), runId="a"), PATIENCE_S)
    time.sleep(0.2)
    assert asked == []

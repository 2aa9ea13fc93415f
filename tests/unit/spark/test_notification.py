"""Whoever waits in a slot's planning process is woken by who joins."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.spark.streams.notification import Notification, hang, notify

LONG_S = 600.0
"""Nobody waits for so long: the test would fail before."""


def waits(bell: Notification) -> threading.Thread:
    waiting = threading.Thread(target=bell.wait, args=(LONG_S,), daemon=True)
    waiting.start()
    return waiting


def test_a_ring_ends_the_wait_whether_it_comes_before_or_meanwhile(tmp_path: Path) -> None:
    hang(tmp_path)
    bell = Notification(tmp_path)
    bell.wait(0.0)  # from here on the pipe has somebody who reads
    notify(tmp_path)
    bell.wait(LONG_S)
    waiting = waits(bell)
    assert waiting.is_alive()
    notify(tmp_path)
    waiting.join(60)
    assert not waiting.is_alive()


def test_who_rang_before_anybody_could_hear_it_is_looked_for(tmp_path: Path) -> None:
    hang(tmp_path)
    notify(tmp_path)
    first = waits(Notification(tmp_path))
    first.join(60)
    assert not first.is_alive()


def test_all_rings_that_were_not_heard_are_one(tmp_path: Path) -> None:
    hang(tmp_path)
    bell = Notification(tmp_path)
    bell.wait(0.0)
    for _ in range(100):
        notify(tmp_path)
    bell.wait(LONG_S)
    waiting = waits(bell)
    waiting.join(0.2)
    assert waiting.is_alive()
    notify(tmp_path)
    waiting.join(60)


def test_a_ring_that_nobody_waits_for_is_nothing(tmp_path: Path) -> None:
    notify(tmp_path)
    hang(tmp_path)
    notify(tmp_path)
    (tmp_path / "bell").unlink()
    Notification(tmp_path).wait(0.001)  # without a bell it takes its time

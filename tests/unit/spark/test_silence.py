"""How a source waits where there is nothing: often after something came, seldom later, never for long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.spark.streams.scheduling import LONG_S, PATIENCE_S, RECENT_S, SHORT_S, Silence


class MadeUpTime:
    """A clock that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def after(self, seconds: float) -> Callable[[], bool]:
        moment = self.now + seconds
        return lambda: self.now >= moment


def silence(time: MadeUpTime) -> Silence:
    return Silence(lambda: time.now, time.sleep)


def test_patience_ends_though_nothing_comes() -> None:
    time = MadeUpTime()
    silence(time).wait(lambda: False)
    assert PATIENCE_S <= time.now - 100.0 < PATIENCE_S + SHORT_S


def test_what_comes_after_a_short_silence_is_seen_soon() -> None:
    time = MadeUpTime()
    silence(time).wait(time.after(0.1))
    assert 0.1 <= time.now - 100.0 < 0.1 + SHORT_S
    assert set(time.slept) == {SHORT_S}


def test_after_a_long_silence_looks_are_rare_until_something_comes() -> None:
    time = MadeUpTime()
    waiting = silence(time)
    time.now += RECENT_S
    waiting.wait(lambda: False)
    assert set(time.slept) == {LONG_S}
    waiting.wait(time.after(LONG_S))
    time.slept.clear()
    waiting.wait(lambda: False)
    assert set(time.slept) == {SHORT_S}


def test_what_is_found_without_waiting_breaks_the_silence_too() -> None:
    time = MadeUpTime()
    waiting = silence(time)
    time.now += RECENT_S
    waiting.broken()
    waiting.wait(lambda: False)
    assert set(time.slept) == {SHORT_S}


def test_who_is_not_told_any_more_looks_again_and_again() -> None:
    time = MadeUpTime()
    silence(time).wait(lambda: False, lambda: not time.slept)
    assert time.slept[0] == PATIENCE_S
    time.slept.clear()
    silence(time).wait(lambda: False, lambda: len(time.slept) > 0)
    assert time.slept[0] == SHORT_S
    assert time.slept[1] == pytest.approx(PATIENCE_S - SHORT_S)

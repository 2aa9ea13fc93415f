"""One commit under way: who waits for it, and what becomes of its failure."""

from __future__ import annotations

import threading

import pytest

from engine.errors import SinkUnavailable
from engine.spark.streams.flight import Flight

PATIENCE_S = 30


class Landing:
    """A commit that goes on when it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.may_go_on = threading.Event()
        self._failure = failure

    def __call__(self) -> None:
        assert self.may_go_on.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure


def test_a_commit_is_under_way_until_it_has_landed() -> None:
    flight, commit = Flight(lambda _error: None), Landing()
    flight.land()
    assert flight.depart(commit)
    assert not flight.wait(0)
    commit.may_go_on.set()
    flight.land()
    assert flight.wait(0)


def test_one_commit_is_under_way_at_a_time_whoever_makes_it() -> None:
    first, second, commit = Flight(lambda _error: None), Flight(lambda _error: None), Landing()
    assert first.depart(commit)
    assert not second.depart(Landing())
    second.land()
    commit.may_go_on.set()
    first.land()
    commit.may_go_on.set()
    assert second.depart(commit)
    second.land()


def test_what_a_commit_fails_with_is_told_once_and_raised_to_whoever_lands() -> None:
    told: list[BaseException] = []
    is_told = threading.Event()

    def tell(error: BaseException) -> None:
        told.append(error)
        is_told.set()

    flight, commit = Flight(tell), Landing(SinkUnavailable("away"))
    assert flight.depart(commit)
    commit.may_go_on.set()
    with pytest.raises(SinkUnavailable, match="away"):
        flight.land()
    assert is_told.wait(PATIENCE_S)
    assert [str(error) for error in told] == ["away"]
    assert flight.wait(0)

"""Bounds on what is under way."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter

from app.db.admission import AdmissionLimit
from app.errors.app_errors import TooManyRequests


@pytest.fixture
def refused() -> Counter:
    return Counter("refused", "", registry=CollectorRegistry())


def test_what_is_beyond_the_limit_is_refused_counted_and_may_come_once_others_have_left(refused: Counter) -> None:
    gate = AdmissionLimit(2, refused, "too much")
    with gate.passed(), gate.passed():
        with pytest.raises(TooManyRequests) as error, gate.passed():
            pass
        assert error.value.headers == {"Retry-After": "1"}
    assert gate.under_way == 0
    with gate.passed(2):
        assert gate.under_way == 2
    assert refused.collect()[0].samples[0].value == 1


def test_what_is_larger_than_the_limit_passes_alone(refused: Counter) -> None:
    gate = AdmissionLimit(10, refused, "too much")
    with gate.passed(11), pytest.raises(TooManyRequests), gate.passed():
        pass
    with gate.passed(1), pytest.raises(TooManyRequests), gate.passed(10):
        pass


def test_work_that_grows_over_the_limit_is_refused_and_leaves_nothing_behind(refused: Counter) -> None:
    gate = AdmissionLimit(10, refused, "too much")
    with gate.passed(4):
        with gate.passed(4) as passing:
            passing.grow(5)
            passing.grow(3)
            with pytest.raises(TooManyRequests):
                passing.grow(7)
            assert gate.under_way == 9
        assert gate.under_way == 4
    assert gate.under_way == 0

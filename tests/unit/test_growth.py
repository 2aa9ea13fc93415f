"""The soak's judgement: what grows is told from what fills, saws and jumps."""

from __future__ import annotations

import math

import pytest

from tests.faults.growth import MIB, trend_of

TIMES = [10.0 * number for number in range(60)]


@pytest.mark.parametrize(
    ("name", "value", "is_growing"),
    [
        ("memory.jvm", lambda t: 400 * MIB, False),
        ("memory.jvm", lambda t: 400 * MIB * (1 - math.exp(-t / 60)), False),
        ("memory.jvm", lambda t: 400 * MIB + (t % 70) * MIB, False),
        ("memory.jvm", lambda t: 400 * MIB + 500 * MIB * (t == 500), False),
        ("memory.jvm", lambda t: 300 * MIB + 0.4 * MIB * t, True),
        ("memory.jvm", lambda t: 300 * MIB + 0.5 * MIB * t + (t % 70) * MIB, True),
        ("files.checkpoints", lambda t: 500 + t / 20, False),
        ("files.checkpoints", lambda t: 500 + t / 2, True),
    ],
)
def test_a_trend_is_told_from_noise(name: str, value: object, is_growing: bool) -> None:
    assert callable(value)
    assert trend_of(name, [(at, value(at)) for at in TIMES]).is_growing is is_growing

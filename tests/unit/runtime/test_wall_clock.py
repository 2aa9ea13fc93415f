"""A query's wall clock while the host's is set: never back, never still, and the host's own where that is steady."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.runtime.planning.wall_clock import WallClock
from tests.examples import examples

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass
class Host:
    """A clock that can be set, and one that cannot."""

    wall: int = START_MS
    monotonic: int = 5_000

    def pass_by(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms

    def clock(self) -> WallClock:
        return WallClock(lambda: self.wall, lambda: self.monotonic)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 5_000)),
        st.tuples(st.just("set"), st.sampled_from([-HOUR_MS, HOUR_MS, -1, 1, -2 * HOUR_MS])),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("record"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=examples(100), deadline=None)
def test_time_never_goes_back_whatever_the_host_does_and_whoever_asks(steps: list[tuple[str, int]]) -> None:
    host = Host()
    clock, recorded, last = host.clock(), 0, 0
    for kind, value in steps:
        if kind == "pass":
            host.pass_by(value)
        elif kind == "set":
            host.wall += value
        elif kind == "restart":
            clock, last = host.clock(), recorded
        now = clock.now_ms(recorded)
        assert now >= max(last, recorded)
        last = now
        if kind == "record":
            recorded = now


@given(STEPS, st.integers(1, 600_000))
@settings(max_examples=examples(100), deadline=None)
def test_what_waits_for_a_while_waits_at_most_twice_as_long(steps: list[tuple[str, int]], wait_ms: int) -> None:
    host = Host()
    clock = host.clock()
    begun = clock.now_ms(0)
    begun_at = host.monotonic
    for kind, value in steps:
        if kind == "set":
            host.wall += value
            clock.now_ms(begun)
        elif kind == "pass":
            host.pass_by(value)
            clock.now_ms(begun)
    host.pass_by(max(0, 2 * wait_ms + 2 * len(steps) - (host.monotonic - begun_at)))
    assert clock.now_ms(begun) >= begun + wait_ms


def test_a_steady_clock_is_the_hosts_own() -> None:
    host = Host()
    clock = host.clock()
    for _ in range(5):
        host.pass_by(777)
        assert clock.now_ms(START_MS) == host.wall


def test_a_clock_that_was_set_back_is_the_hosts_own_again_once_that_has_caught_up() -> None:
    host = Host()
    clock = host.clock()
    clock.now_ms(0)
    host.wall -= HOUR_MS
    assert clock.now_ms(0) == START_MS
    host.pass_by(HOUR_MS)
    assert clock.now_ms(0) == START_MS + HOUR_MS // 2
    host.pass_by(HOUR_MS)
    assert clock.now_ms(0) == host.wall == START_MS + HOUR_MS


def test_a_clock_that_was_set_ahead_for_a_moment_does_not_stop_time_afterwards() -> None:
    host = Host()
    host.wall += HOUR_MS
    recorded = host.clock().now_ms(0)
    host.wall -= HOUR_MS
    clock = host.clock()
    assert clock.now_ms(recorded) == recorded
    host.pass_by(20_000)
    assert clock.now_ms(recorded) == recorded + 10_000

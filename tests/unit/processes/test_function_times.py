"""Time that is waited for Python functions: once, whichever threads call them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Barrier, Thread

from engine.processes.function_times import FunctionTimes

MS = 1_000_000


@dataclass
class Clock:
    now_ns: int = 0

    def __call__(self) -> int:
        return self.now_ns

    def go_on(self, ms: int) -> None:
        self.now_ns += ms * MS


def test_time_is_counted_by_function_and_taken_once() -> None:
    clock = Clock()
    times = FunctionTimes(clock)
    for name, ms in (("score", 30), ("tax", 5), ("score", 20)):
        with times.measured(name):
            clock.go_on(ms)
        clock.go_on(100)
    assert times.taken_ms() == {"score": 50, "tax": 5}
    assert times.taken_ms() == {}


def test_calls_of_one_function_that_overlap_count_once_and_those_of_two_count_each() -> None:
    clock = Clock()
    times = FunctionTimes(clock)
    first, second, other = ExitStack(), ExitStack(), ExitStack()
    first.enter_context(times.measured("score"))
    clock.go_on(10)
    second.enter_context(times.measured("score"))
    other.enter_context(times.measured("tax"))
    clock.go_on(10)
    first.close()
    clock.go_on(10)
    second.close()
    other.close()
    clock.go_on(10)
    assert times.taken_ms() == {"score": 30, "tax": 20}


def test_a_call_under_way_is_taken_in_two_parts() -> None:
    clock = Clock()
    times = FunctionTimes(clock)
    with times.measured("score"):
        clock.go_on(10)
        assert times.taken_ms() == {"score": 10}
        clock.go_on(7)
    assert times.taken_ms() == {"score": 7}


def test_a_call_that_fails_is_counted() -> None:
    clock = Clock()
    times = FunctionTimes(clock)
    with ExitStack() as stack:
        stack.enter_context(suppress(ValueError))
        stack.enter_context(times.measured("score"))
        clock.go_on(3)
        raise ValueError
    assert times.taken_ms() == {"score": 3}


def test_threads_that_call_functions_at_once_lose_no_time_and_break_nothing() -> None:
    calls, threads = 200, 8
    times = FunctionTimes()
    begin = Barrier(threads + 1)

    def call(number: int) -> None:
        begin.wait()
        for each in range(calls):
            with times.measured(f"{number}.{each}"):
                pass

    callers = [Thread(target=call, args=(number,)) for number in range(threads)]
    for caller in callers:
        caller.start()
    begin.wait()
    names: list[str] = []
    while any(caller.is_alive() for caller in callers):
        names += times.taken_ms()
    names += times.taken_ms()
    assert sorted(set(names)) == sorted(f"{number}.{each}" for number in range(threads) for each in range(calls))

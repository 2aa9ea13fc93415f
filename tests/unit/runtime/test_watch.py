"""What stands still, or takes too much memory, ends its process; what goes on, or was stopped from outside, does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from engine.processes.python_processes import ALLOCATOR, CODE, import_environment
from engine.runtime.limits.watchdog import (
    LEAST_MEMORY,
    Ended,
    Watch,
    WorkBounds,
    each_at_work,
    machine_memory,
    memory_share,
    own_memory,
    read_end,
    record_end,
    watch,
)

LOOK_S = 0.01


@dataclass
class Watched:
    """A watch whose process is not ended, and of which the memory is told."""

    memory_bytes: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.watch = Watch(self.ended.set, lambda: self.memory_bytes, LOOK_S)


def test_what_makes_no_progress_is_noted_and_ended(tmp_path: Path) -> None:
    watched = Watched()
    with watched.watch.at_work(WorkBounds(stall_s=0.1), tmp_path, 7):
        assert watched.ended.wait(10)
    found = read_end(tmp_path)
    assert found is not None
    assert (found.reason, found.batch_id, found.most) == ("stalled", 7, 0.1)
    assert read_end(tmp_path) is None, "told once"


def test_progress_begins_the_time_anew(tmp_path: Path) -> None:
    watched = Watched()
    with watched.watch.at_work(WorkBounds(stall_s=0.3), tmp_path, 7):
        for _ in range(20):
            assert not watched.ended.wait(0.03)
            with watched.watch.at_work(WorkBounds(stall_s=0.001), None, 8):
                pass


def test_who_has_nothing_to_do_is_left_alone(tmp_path: Path) -> None:
    watched = Watched(memory_bytes=1 << 40)
    with watched.watch.at_work(WorkBounds(stall_s=0.05, memory_bytes=1 << 50), tmp_path, 7):
        pass
    assert not watched.ended.wait(0.3)


def test_too_much_memory_ends_what_is_at_work(tmp_path: Path) -> None:
    watched = Watched()
    with watched.watch.at_work(WorkBounds(memory_bytes=100), tmp_path, None):
        assert not watched.ended.wait(5 * LOOK_S)
        watched.memory_bytes = 101
        assert watched.ended.wait(10)
    assert read_end(tmp_path) == Ended("memory", None, 101, 100)


def test_freed_memory_is_given_back_before_a_process_is_ended_for_it(tmp_path: Path) -> None:
    kept, ended, given_back = [101], threading.Event(), threading.Event()

    def give_back() -> None:
        kept[0] = 100
        given_back.set()

    looking = Watch(ended.set, lambda: kept[0], LOOK_S, give_back)
    with looking.at_work(WorkBounds(memory_bytes=100), tmp_path, 7):
        assert given_back.wait(10)
        assert not ended.wait(5 * LOOK_S)
    assert read_end(tmp_path) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_what_the_allocator_keeps_of_freed_memory_is_given_back() -> None:
    text = """
import numpy as np
from engine.runtime.limits.watchdog import give_freed_back, own_memory
before = own_memory()
del (column := [np.ones(1 << 20) for _ in range(16)])[:]
kept = own_memory() - before
give_freed_back()
print(kept >> 20, (own_memory() - before) >> 20)
"""
    environment = import_environment() | ALLOCATOR
    done = subprocess.run([sys.executable, "-P", "-c", text], env=environment, capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept >= 100, "columns that are freed stay"
    assert left <= 20


def test_each_packet_is_progress_and_who_takes_it_is_not_at_work() -> None:
    bounds = WorkBounds(stall_s=60)
    for packet in each_at_work(iter([1, 2]), bounds, None, 1):
        assert packet in (1, 2)
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    with watch().at_work(bounds, None, 1):
        assert 0 < signal.getitimer(signal.ITIMER_PROF)[0] <= 61, "the kernel rounds up"


@contextmanager
def in_a_process(bounds: str, work: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    text = f"""
import re, sys, time
from engine.runtime.limits.watchdog import WorkBounds, watch
with watch().at_work(WorkBounds({bounds}), None, 1):
    print("at work", flush=True)
    {work}
print("done", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-P", "-c", text], env=import_environment(), cwd=CODE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as told, process:
        assert told.readline() == b"at work\n"
        yield process, told


def test_what_lets_no_thread_run_is_ended_by_the_kernel() -> None:
    with in_a_process("stall_s=0.5", 're.match("(a|aa)+$", "a" * 60 + "b")') as (process, _):
        assert process.wait(60) in (-signal.SIGPROF, -signal.SIGKILL)


def test_a_process_that_was_stopped_has_lost_no_time() -> None:
    with in_a_process("stall_s=2.0", "time.sleep(1.0)") as (process, told):
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(3.0)  # it is the time that passes which must not count
        os.kill(process.pid, signal.SIGCONT)
        assert told.read() == b"done\n"
        assert process.wait(60) == 0


def test_a_note_that_cannot_be_written_keeps_nobody_alive(tmp_path: Path) -> None:
    record_end(tmp_path / "gone", Ended("stalled", 1, 2.0, 1.0))
    assert read_end(tmp_path / "gone") is None


@pytest.mark.parametrize(
    ("total", "cores", "expected"), [(64 << 30, 4, 8 << 30), (2 << 30, 2, LEAST_MEMORY), (8 << 30, 2, 2 << 30)]
)
def test_workers_share_half_of_the_memory(total: int, cores: int, expected: int) -> None:
    assert memory_share(total, cores) == expected


def test_memory_is_measured() -> None:
    assert 10 << 20 < own_memory() < machine_memory()

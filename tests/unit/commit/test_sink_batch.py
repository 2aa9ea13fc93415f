"""What a batch's packets tell of the time that went into it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.commit.sink_batch import GroupedPackets
from engine.sources.packets import Packet, encode_json


def stats(stage: int, task: int, work_ms: int, function_ms: dict[str, int]) -> Packet:
    told: dict[str, Any] = {"stage": stage, "task": task, "work_ms": work_ms, "function_ms": function_ms}
    return Packet(task, "stats", 0, task, 0, 0, None, None, 0, encode_json(told))


def effort(**times: Any) -> Packet:
    return Packet(0, "effort", 0, 0, 0, 0, None, None, 0, encode_json(times))


@pytest.mark.parametrize(
    ("of_worker", "expected"),
    [({"part_ms": 200}, 130), ({"read_ms": 40, "is_whole": True}, 130), ({"read_ms": 40, "is_whole": False}, 90)],
)
def test_functions_take_the_time_of_the_slowest_task_of_each_stage_or_of_all_in_one_worker(
    of_worker: dict[str, Any], expected: int
) -> None:
    packets = [stats(0, 0, 50, {"score": 40}), stats(0, 1, 80, {"score": 70, "tax": 2}), stats(1, 0, 30, {"score": 20, "tax": 5})]
    batch = GroupedPackets.of([*packets, effort(**of_worker)])
    assert batch.function_ms() == {"score": expected, "tax": 7}
    assert batch.process_ms() == (160 if expected == 130 else 110)


def test_readers_take_the_time_of_the_slowest_one_before_the_stages() -> None:
    readers = [effort(read_ms=90, function_ms={"score": 60, "tax": 5}), effort(read_ms=70, function_ms={"score": 65})]
    batch = GroupedPackets.of([*readers, stats(0, 0, 50, {"score": 40}), stats(0, 1, 20, {"rate": 1})])
    assert (batch.part_ms, batch.read_ms) == (None, 90)
    assert batch.function_ms() == {"rate": 1, "score": 105, "tax": 5}


def test_the_worker_that_reads_and_works_counts_its_reading_once() -> None:
    batch = GroupedPackets.of(
        [effort(read_ms=90, function_ms={"score": 60}), stats(0, 0, 50, {"score": 40}), effort(part_ms=150)]
    )
    assert (batch.part_ms, batch.function_ms()) == (150, {"score": 100})

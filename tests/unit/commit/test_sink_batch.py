"""What a batch's packets tell of the time that went into it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.commit.sink_batch import Batch
from engine.sources.packets import Packet, encode_json


def stats(stage: int, task: int, work_ms: int, function_ms: dict[str, int]) -> Packet:
    told: dict[str, Any] = {"stage": stage, "task": task, "work_ms": work_ms, "function_ms": function_ms}
    return Packet(task, "stats", 0, task, 0, 0, None, None, 0, encode_json(told))


def effort(**times: Any) -> Packet:
    return Packet(0, "effort", 0, 0, 0, 0, None, None, 0, encode_json(times))


@pytest.mark.parametrize(
    ("is_one_worker", "expected"),
    [(True, {"score": 130, "tax": 7}), (False, {"score": 90, "tax": 7})],
)
def test_functions_take_the_time_of_the_slowest_task_of_each_stage_or_of_all_in_one_worker(
    expected: dict[str, int], *, is_one_worker: bool
) -> None:
    packets = [stats(0, 0, 50, {"score": 40}), stats(0, 1, 80, {"score": 70, "tax": 2}), stats(1, 0, 30, {"score": 20, "tax": 5})]
    if is_one_worker:
        packets.append(effort(part_ms=200))
    assert Batch.of(packets).function_ms() == expected


def test_readers_take_the_time_of_the_slowest_one_before_the_stages() -> None:
    readers = [effort(read_ms=90, function_ms={"score": 60, "tax": 5}), effort(read_ms=70, function_ms={"score": 65})]
    batch = Batch.of([*readers, stats(0, 0, 50, {"score": 40}), stats(0, 1, 20, {"rate": 1})])
    assert (batch.part_ms, batch.read_ms) == (None, 90)
    assert batch.function_ms() == {"rate": 1, "score": 105, "tax": 5}


def test_the_worker_that_reads_and_works_counts_its_reading_once() -> None:
    batch = Batch.of([effort(read_ms=90, function_ms={"score": 60}), stats(0, 0, 50, {"score": 40}), effort(part_ms=150)])
    assert (batch.part_ms, batch.function_ms()) == (150, {"score": 100})

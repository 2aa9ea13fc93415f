"""What a batch's packets tell of the time that went into it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.commit.sink_batch import GroupedPackets
from engine.sources.packets import Packet, encode_json


def stats(stage: int, task: int, work_ms: int, function_ms: dict[str, int]) -> Packet:
    told: dict[str, Any] = {"stage": stage, "task": task, "work_ms": work_ms, "function_ms": function_ms}
    return Packet(task, "stats", 0, task, 0, 0, None, None, 0, encode_json(told))


@pytest.mark.parametrize(
    ("is_one_worker", "expected"),
    [(True, {"score": 130, "tax": 7}), (False, {"score": 90, "tax": 7})],
)
def test_functions_take_the_time_of_the_slowest_task_of_each_stage_or_of_all_in_one_worker(
    expected: dict[str, int], *, is_one_worker: bool
) -> None:
    packets = [stats(0, 0, 50, {"score": 40}), stats(0, 1, 80, {"score": 70, "tax": 2}), stats(1, 0, 30, {"score": 20, "tax": 5})]
    if is_one_worker:
        packets.append(Packet(0, "effort", 0, 0, 0, 0, None, None, 0, encode_json({"part_ms": 200})))
    assert GroupedPackets.of(packets).function_ms() == expected

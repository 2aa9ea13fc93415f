"""T12 through a whole test case: a partition that lags holds time back, and one that has been silent for long does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.testing.case import Slicing, read_case
from app.testing.documents import read_documents
from app.testing.machines.engine_machine import EngineMachine
from app.testing.running import run_case

CASE = """
name: a partition that lags holds time back until it has been silent for long
streams:
  visits:
    {key: [gate], columns: {gate: string, people: int, at: bigint}, event_time: at, connector: {partitions: 2}}
queries:
  - name: per_minute
    from: {stream: visits}
    group_by: [gate]
    window: {type: tumbling, size: 1m, grace: 10s}
    aggregate: {people: sum(people)}
    suppress: {mode: until_window_closes}
    idle: {after: 5m}
    tasks: TASKS
    clock: slowest
    select: {gate: gate, window_start: window_start, people: people, forced: $forced}
    into: {stream: per_minute}
steps:
  - visits: [{gate: north, people: 2, at: 5000}, {gate: south, people: 1, at: 6000}] # of two partitions
  - visits: [{gate: north, people: 3, at: 50000}, {gate: north, people: 1, at: 150000}]
  - expect: {per_minute: []} # south may have more of the first minute
  - visits: [{gate: south, people: 4, at: 40000}, {gate: south, people: 2, at: 140000}]
  - expect:
      per_minute:
        - {gate: north, window_start: 0, people: 5, forced: false}
        - {gate: south, window_start: 0, people: 5, forced: false}
  - advance: 4m
  - visits: {gate: north, people: 1, at: 400000}
  - expect: {per_minute: []}
  - advance: 1m # south has been at its end for five minutes
expect:
  per_minute:
    changes:
      - {gate: south, window_start: 120000, people: 2, forced: true}
      - {gate: north, window_start: 120000, people: 1, forced: true}
    counters: {}
"""


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
@pytest.mark.parametrize("slicing", ["record", "whole", *(f"random:{seed}" for seed in range(3))])
def test_time_follows_the_slowest_partition_whatever_the_tasks_and_cuts(tasks: int, slicing: str, tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(CASE.replace("TASKS", str(tasks)))
    case = read_case(read_documents(file)[0])
    assert run_case(case, EngineMachine(case, Slicing.parse(slicing))) == []


def test_a_restart_changes_neither_the_times_of_partitions_nor_which_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    steps = (
        CASE.replace("TASKS", "2")
        .replace("  - advance:", "  - restart\n  - advance:")
        .replace("  - expect:", "  - restart\n  - expect:")
    )
    file.write_text(steps)
    case = read_case(read_documents(file)[0])
    assert run_case(case, EngineMachine(case, Slicing())) == []

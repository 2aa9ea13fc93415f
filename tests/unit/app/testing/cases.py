"""Test files written in tests: read, run, what failed as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.testing.case import Case, Slicing, read_case
from app.testing.documents import FileInvalid, read_documents
from app.testing.machines.engine_machine import EngineMachine
from app.testing.running import run_case

ORDERS = """
streams:
  orders: {key: [sku], columns: {sku: string, qty: int, at: bigint}, event_time: at}
queries:
  - {name: copy, from: {stream: orders}, into: {stream: copied}}
"""


def case_of(directory: Path, text: str, tasks: int | None = None) -> Case:
    path = directory / "t.yaml"
    path.write_text(text, encoding="utf-8")
    return read_case(read_documents(path)[0], tasks=tasks)


def faults_of(directory: Path, text: str) -> dict[str, str]:
    """What is wrong with a file: pointer → detail."""
    with pytest.raises(FileInvalid) as caught:
        case_of(directory, text)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def failures_of(directory: Path, text: str, slicing: Slicing | None = None, tasks: int | None = None) -> list[str]:
    """What failed: title and difference of each."""
    case = case_of(directory, text, tasks)
    failures = run_case(case, EngineMachine(case, slicing or case.slicing))
    return ["\n".join([f"{each.pointer} {each.title}", *map(str, each.lines)]) for each in failures]

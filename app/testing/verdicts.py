"""From files to verdicts: what became of each test in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.testing.case import Case, read_case
from app.testing.documents import Document, FileInvalid, FileProblem, find_files, read_documents
from app.testing.expectations import Failure

Run = Callable[[Case], list[Failure]]
"""Runs a test; raises FileInvalid where it asks for what cannot be done."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """What became of one test.

    Attributes:
        name: of the test; of the file where it could not be read.
        problems: why it could not be run.
        document: None where the file could not be read.
    """

    path: Path
    name: str
    ms: float = 0.0
    failures: tuple[Failure, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    document: Document | None = None

    @property
    def state(self) -> Literal["passed", "failed", "invalid"]:
        return "invalid" if self.problems else "failed" if self.failures else "passed"

    def place(self, pointer: str) -> str:
        """Return where a value stands: ``file:line pointer``."""
        line = None if self.document is None else self.document.line_of(pointer)
        return f"{self.path}{'' if line is None else f':{line}'}{f' {pointer}' if pointer else ''}"


def verdicts(paths: list[Path], run: Run, tasks: int | None = None) -> Iterator[TestResult]:
    """Run every test of these files and directories; one that cannot be read does not keep the others from it."""
    for path in paths:
        try:
            files = find_files([path])
        except FileInvalid as error:
            yield TestResult(path, str(path), problems=tuple(error.problems))
            continue
        for file in files:
            yield from _of_file(file, run, tasks)


def _of_file(path: Path, run: Run, tasks: int | None) -> Iterator[TestResult]:
    try:
        documents = read_documents(path)
    except FileInvalid as error:
        yield TestResult(path, str(path), problems=tuple(error.problems))
        return
    for place, document in enumerate(documents):
        yield _of_document(document, place, run, tasks)


def _of_document(document: Document, place: int, run: Run, tasks: int | None) -> TestResult:
    given = document.value.get("name") if isinstance(document.value, dict) else None
    name = given if isinstance(given, str) else document.path.name
    try:
        case = read_case(document, place, tasks)
        name = case.name
        begun = time.perf_counter()
        failures = run(case)
    except FileInvalid as error:
        return TestResult(document.path, name, problems=tuple(error.problems), document=document)
    return TestResult(document.path, name, (time.perf_counter() - begun) * 1e3, tuple(failures), document=document)

"""Running a test: its steps in order on a machine, its expectations against what the machine shows; from files to verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from app.testing.case import Append, Case, Expect, Restart, Wait, read_case
from app.testing.comparing.difference import Line
from app.testing.documents import Document, FileInvalid, FileProblem, find_files, read_documents
from app.testing.expectations import Expectation, Failure, Outcome, compare


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that a source refused.

    Attributes:
        pointer: of the step that brought it.
    """

    pointer: str
    relation: str
    reason: str
    detail: str


class Machine(Protocol):
    """Runs the queries of one test."""

    def append(self, step: Append) -> None:
        """Take records in."""
        ...

    def wait(self, step: Wait) -> None:
        """Let the wall clock go on, and with it everything that waits for it."""
        ...

    def restart(self, step: Restart) -> None:
        """Stop every query and start it again."""
        ...

    def outcome(self, wanted: Expectation) -> Outcome:
        """Return what there is of the parts that are wanted; what was shown once as new is not new any more."""
        ...

    @property
    def rejects(self) -> list[Reject]:
        """Every record that was refused so far."""
        ...

    @property
    def failed(self) -> Mapping[str, str]:
        """Queries that stopped, with what they said."""
        ...


def run_case(case: Case, machine: Machine) -> list[Failure]:
    """Take every step; returns what was not as expected, also records refused and queries failed that nobody expected."""
    failures: list[Failure] = []
    for step in case.steps:
        match step:
            case Append():
                machine.append(step)
            case Wait():
                machine.wait(step)
            case Restart():
                machine.restart(step)
            case Expect():
                for wanted in step.wanted:
                    failures += compare(wanted, machine.outcome(wanted))
    return [*failures, *_unexpected(case, machine)]


def _unexpected(case: Case, machine: Machine) -> list[Failure]:
    expected = {wanted.subject.name for wanted in case.expectations if wanted.rejects is not None}
    failures = [
        Failure(each.pointer, f"a record of {each.relation} was refused", (Line("+", f"{each.reason}: {each.detail}"),))
        for each in machine.rejects
        if each.relation not in expected
    ]
    foreseen = {wanted.subject.query for wanted in case.expectations if wanted.failure is not None}
    failures += [
        Failure("", f"the query {query} failed", (Line("+", detail),))
        for query, detail in machine.failed.items()
        if query not in foreseen
    ]
    return failures


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

"""Running a test: its steps in order on a machine, its expectations against what the machine shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from app.testing.case import Append, Case, Expect, Restart, Wait
from app.testing.comparing.difference import Line
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

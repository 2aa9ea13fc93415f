"""Definitions of forks: whose names they have, and what comes back when one takes its original's place."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from app.catalog.queries.fork_rules import Fork, ForkRequest, as_fork, forked_definition, place_in_body, taken_over
from app.errors.app_errors import Unprocessable

ORIGINAL: dict[str, Any] = {
    "name": "counts",
    "desired_state": "stopped",
    "where": None,
    "into": {"stream": None, "table": "totals", "retention": None},
}


def fork_request(
    name: str = "tried", into: str | None = None, definition: Any = None, desired_state: str | None = None
) -> ForkRequest:
    return ForkRequest(name, into, definition, desired_state)


@pytest.mark.parametrize(
    ("asked", "relation"),
    [
        (fork_request(), "tried"),
        (fork_request(into="other"), "other"),
        (fork_request(definition=ORIGINAL), "tried"),
        (fork_request(definition={"where": "x > 0"}), "tried"),
        (fork_request(definition={**ORIGINAL, "into": {"table": "third"}}), "third"),
        (fork_request(into="other", definition=ORIGINAL), "other"),
    ],
)
def test_a_fork_writes_a_relation_of_its_own(asked: ForkRequest, relation: str) -> None:
    made = forked_definition(ORIGINAL, asked)
    assert (made["name"], made["into"]["table"]) == ("tried", relation)


def test_a_fork_of_what_is_stopped_runs_unless_something_else_is_said() -> None:
    assert forked_definition(ORIGINAL, fork_request())["desired_state"] == "running"
    assert forked_definition(ORIGINAL, fork_request(desired_state="paused"))["desired_state"] == "paused"
    assert forked_definition(ORIGINAL, fork_request(definition=ORIGINAL))["desired_state"] == "stopped"


def test_names_that_contradict_each_other_are_refused_together() -> None:
    definition = {**ORIGINAL, "name": "third", "into": {"table": "fourth", "append_to": "all"}}
    with pytest.raises(Unprocessable) as refused:
        forked_definition(ORIGINAL, fork_request(into="other", definition=definition))
    pointers = [fault.pointer for fault in refused.value.faults]
    assert pointers == ["/definition/name", "/definition/into/table", "/definition/into/append_to"]


def test_what_is_no_object_is_left_for_who_reads_definitions() -> None:
    assert forked_definition(ORIGINAL, fork_request(definition={"into": 3}))["into"] == 3


def test_a_fork_is_no_part_of_a_stream_and_gives_the_part_back() -> None:
    part = {"name": "web", "into": {"stream": "web", "table": None, "append_to": "all"}}
    made = forked_definition(part, fork_request())
    assert made["into"] == {"stream": "tried", "table": None}
    assert taken_over(part, made)["into"] == part["into"]
    assert taken_over(part, made)["name"] == "web"


def test_the_original_under_the_names_of_its_fork_differs_in_nothing_else() -> None:
    made = forked_definition(ORIGINAL, fork_request(definition={**ORIGINAL, "where": "x > 0"}))
    assert as_fork(ORIGINAL, made) == {**made, "where": None}


def test_where_a_fork_comes_from_is_read_as_it_was_stored() -> None:
    fork = Fork(uuid4(), "counts", 7, "2025-01-01T00:00:00+00:00")
    assert Fork.of(fork.to_json()) == fork
    assert Fork.of(None) is None


def test_pointers_into_a_definition_lead_into_the_body() -> None:
    found = [place_in_body(pointer) for pointer in ("/name", "/into/table", "/joins/0/grace", "/into/retention")]
    assert found == ["/name", "/into", "/definition/joins/0/grace", "/definition/into/retention"]

"""A script that fails half-way, as the command line tells it."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from slackwater import ServiceError
from slackwater.cli.options.failing import failure_of, show
from slackwater.cli.options.output import Output
from slackwater.cli.shell.results import Format, Printer
from slackwater.cli.shell.session import Session

from tests.unit.client.scripted import Scripted, problem

SCRIPT = "SET 'a' = 'b';\nDROP STREAM s;\nSET 'c' = 'd';"
STATES = [
    {"line": 1, "statement": "SET 'a' = 'b'", "state": "done", "message": "a is b"},
    {"line": 2, "statement": "DROP STREAM s", "state": "failed"},
    {"line": 3, "statement": "SET 'c' = 'd'", "state": "not_tried"},
]


def _refused() -> tuple[Session, ServiceError]:
    service = Scripted(problem(422, "unknown_relation", statements=STATES))
    session = Session(service.client(), Printer(Output(as_json=False), Format.TABLE))
    with pytest.raises(ServiceError) as caught:
        session.run(SCRIPT)
    return session, caught.value


def test_the_statements_are_listed_with_what_became_of_each() -> None:
    _, error = _refused()
    told = io.StringIO()
    show(Console(file=told, width=200), failure_of(error, "http://service"), as_json=False)
    assert [line.strip() for line in told.getvalue().splitlines() if "line " in line] == [
        "done       line 1: a is b", "failed     line 2: DROP STREAM s", "not tried  line 3: SET 'c' = 'd'",
    ]  # fmt: skip


def test_json_has_the_statements_too() -> None:
    _, error = _refused()
    told = io.StringIO()
    show(Console(file=told, width=200), failure_of(error, "http://service"), as_json=True)
    assert [each["state"] for each in json.loads(told.getvalue())["error"]["statements"]] == ["done", "failed", "not_tried"]


def test_a_session_keeps_what_was_set_before_the_failure() -> None:
    session, _ = _refused()
    assert session.properties == {"a": "b"}

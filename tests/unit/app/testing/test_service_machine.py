"""Tests on a service: what is asked of it, without one. That the answers are right is tests/integration's business."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from slackwater import Client, Json

from app.testing.case import Append, Case
from app.testing.documents import FileInvalid
from app.testing.machines.service_machine import ServiceMachine, ServiceTests
from app.testing.running import run_case
from tests.unit.app.testing.cases import ORDERS, case_of

CALM = """
streams: {orders: {key: [sku], columns: {sku: string, at: bigint}, event_time: at}}
queries:
  - name: calm
    from: {stream: orders}
    group_by: [sku]
    aggregate: {n: count(*)}
    suppress: {mode: until_wall_clock_time_limit, limit: 10s}
    into: {table: calm}
steps: [{orders: {sku: a, at: 1}}, {advance: 10s}]
expect: {calm: [{sku: a, n: 1}]}
"""

COUNTS = """
streams: {orders: {key: [sku], columns: {sku: string, at: bigint}, event_time: at}}
queries:
  - {name: counts, from: {stream: orders}, group_by: [sku], aggregate: {n: count(*)}, into: {table: counts}}
steps: [{orders: [{sku: a, at: 1}, {sku: b, at: 1}, {sku: a, at: 1}]}]
expect: {counts: [{sku: a, n: 1}, {sku: b, n: 1}, {sku: a, n: 2}]}
"""

JOIN = """
streams: {s: {key: [k], columns: {k: string}}}
tables:
  t: {key: [k], columns: {k: string}, connector: {feed: f, where: k > ''}}
  u: {key: [k], columns: {k: string}, connector: {type: files, path: /data, format: csv}}
queries:
  - name: q
    from: {stream: s}
    joins: [{table: t, on: s.k = t.k}, {table: u, as: x, on: s.k = x.k}]
    into: {stream: r}
  - {name: again, from: {stream: r}, into: {stream: again}}
steps: [{s: [{k: a}, {k: b}]}, {s: {k: c}}, {t: {k: a}}]
expect: {r: []}
"""


class RecordingClient(Client):
    """Answers as a service would whose queries run and have read everything; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("http://localhost", transport=httpx.MockTransport(self._answer))
        self.calls: list[tuple[str, str, Any]] = []
        self.shown: list[Json] = []

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "GET" and path.endswith("/records"):
            assert "partition" not in request.url.params
            count = len(self.shown)
            return httpx.Response(200, json={"records": self.shown, "next_offset": count, "end_offset": count})
        if request.method == "GET" and "/queries/" not in path:
            return httpx.Response(200, json={"origin": "derived", "rows": self.shown, "next": None})
        is_json = request.headers.get("content-type") == "application/json"
        self.calls.append((request.method, path, json.loads(request.content) if is_json else None))
        progress = [{"partitions": [{"lag": 0}]}]
        answer = {"state": "running", "epoch": 1, "progress": progress, "generation": 1, "observed_generation": 1}
        refused = {"appended": 1, "offsets": [], "rejected": [], "rejected_count": 0, "older_count": 0, "warnings": []}
        return httpx.Response(200, json={**answer, **refused})


@pytest.fixture
def client() -> Iterator[RecordingClient]:
    with RecordingClient() as client:
        yield client


def case(tmp_path: Path, text: str) -> Case:
    return case_of(tmp_path, text)


def test_names_get_a_prefix_and_expressions_stay_as_they_are(tmp_path: Path, client: RecordingClient) -> None:
    ServiceMachine(client, case(tmp_path, JOIN), "x_").start()
    made = {path: body for method, path, body in client.calls if method == "PUT"}
    query = made["/v1/queries/x_q"]
    assert (query["name"], query["from"], query["into"]) == ("x_q", {"stream": "x_s", "as": "s"}, {"stream": "x_r"})
    assert [(join["table"], join["as"]) for join in query["joins"]] == [("x_t", "t"), ("x_u", "x")]
    assert "tasks" not in query
    assert made["/v1/queries/x_again"]["from"] == {"stream": "x_r", "as": "r"}
    assert made["/v1/tables/x_t"]["connector"] == {"feed": "x_f", "where": "k > ''"}
    assert made["/v1/tables/x_u"]["connector"] == {"type": "log"}
    assert made["/v1/streams/x_s"] == {"key": ["k"], "columns": {"k": "string"}}


def test_a_number_of_tasks_is_that_of_every_query_and_each_source_has_one_partition(
    tmp_path: Path, client: RecordingClient
) -> None:
    ServiceMachine(client, case_of(tmp_path, JOIN, tasks=2), "x_").start()
    made = {path: body for method, path, body in client.calls if method == "PUT"}
    assert [made[f"/v1/queries/x_{name}"]["tasks"] for name in ("q", "again")] == [2, 2]
    assert made["/v1/tables/x_t"]["connector"] == {"type": "log", "feed": "x_f", "where": "k > ''", "partitions": 1}
    assert made["/v1/tables/x_u"]["connector"] == {"type": "log", "partitions": 1}
    assert made["/v1/streams/x_s"]["connector"] == {"type": "log", "partitions": 1}


def test_a_stream_is_read_as_a_whole_and_what_was_shown_is_not_shown_again(tmp_path: Path, client: RecordingClient) -> None:
    machine = ServiceMachine(client, case(tmp_path, ORDERS + "steps: [restart]\nexpect: {copy: [{sku: b}]}"), "x_")
    (wanted,) = machine.case.expectations
    client.shown = [{"sku": "a", "$event_time_ms": 1}]
    assert [row.values["sku"] for row in machine.outcome(wanted).changes] == ["a"]
    client.shown.append({"sku": "b", "$event_time_ms": 2})
    assert [row.values["sku"] for row in machine.outcome(wanted).changes] == ["b"]


def test_a_run_of_records_waits_until_the_one_before_was_read(tmp_path: Path, client: RecordingClient) -> None:
    machine = ServiceMachine(client, case(tmp_path, JOIN), "x_")
    for step in machine.case.steps:
        if isinstance(step, Append):
            machine.append(step)
    assert [path for _, path, _ in client.calls] == [
        "/v1/streams/x_s/records",
        "/v1/streams/x_s/records",
        "/v1/queries/x_q/status",
        "/v1/queries/x_again/status",
        "/v1/tables/x_t/records",
    ]


def test_what_was_made_is_deleted_readers_first(tmp_path: Path, client: RecordingClient) -> None:
    machine = ServiceMachine(client, case(tmp_path, JOIN), "x_")
    machine.start()
    machine.clean()
    deleted = [path for method, path, _ in client.calls if method == "DELETE"]
    assert deleted == ["/v1/queries/x_again", "/v1/queries/x_q", "/v1/tables/x_u", "/v1/tables/x_t", "/v1/streams/x_s"]


@pytest.mark.parametrize(
    ("shown", "is_met"),
    [
        ([{"sku": "b", "n": 1}, {"sku": "a", "n": 2}], True),
        ([{"sku": "a", "n": 2}], False),
        ([{"sku": "b", "n": 1}, {"sku": "a", "n": 1}], False),
        ([{"sku": "b", "n": 1}, {"sku": "a", "n": 2}, {"sku": "c", "n": 1}], False),
    ],
)
def test_where_changes_of_a_table_are_expected_its_rows_must_be_what_they_leave(
    tmp_path: Path, client: RecordingClient, shown: list[Json], is_met: bool
) -> None:
    machine = ServiceMachine(client, case(tmp_path, COUNTS), "x_")
    client.shown = shown
    assert (run_case(machine.case, machine) == []) == is_met


def test_a_clock_of_its_own_is_refused_where_a_query_looks_at_it(tmp_path: Path) -> None:
    with pytest.raises(FileInvalid) as caught:
        ServiceTests("http://nowhere.invalid").run(case(tmp_path, CALM))
    (problem,) = caught.value.problems
    assert (problem.pointer, problem.line) == ("/steps/1/advance", 10)
    assert "a service has the real wall clock" in problem.detail


def test_a_test_that_fails_by_the_engine_never_comes_to_the_service(tmp_path: Path) -> None:
    text = ORDERS + "steps: [{orders: {sku: a, at: 1}}, {advance: 10s}]\nexpect: {copy: []}"
    (failure,) = ServiceTests("http://nowhere.invalid").run(case(tmp_path, text))
    assert failure.title == "changes of copied"

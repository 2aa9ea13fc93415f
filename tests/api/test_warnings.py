"""Warnings in answers: what was accepted and may still surprise."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Json, Jsonb

from tests.api.conftest import STREAM, TABLE, Problem

GATES = {"key": ["flight"], "columns": {"flight": "int", "gate": "string", "at": "bigint"}, "event_time": "at"}
JOINED = {
    "name": "joined", "from": {"stream": "departures"},
    "joins": [{"table": "weather", "as": "w", "on": "departures.origin = w.origin", "grace": "1h"}],
    "select": {"origin": "departures.origin"}, "into": {"stream": "joined"},
}  # fmt: skip
COUNTED = {
    "name": "counted", "from": {"stream": "joined"}, "group_by": ["origin"], "aggregate": {"n": "count(*)"},
    "window": {"type": "tumbling", "size": "1d"}, "suppress": {"mode": "until_window_closes"}, "into": {"table": "counted"},
}  # fmt: skip
LONG = [("/window/grace", "waits_long")]


def warned(response: httpx.Response) -> list[tuple[str, str]]:
    assert response.status_code in (200, 201), response.text
    found = response.json()["warnings"]
    assert all(item.keys() == {"pointer", "code", "detail", "cure", "type"} and item["detail"] and item["cure"] for item in found)
    return [(item["pointer"], item["code"]) for item in found]


@pytest.fixture
async def joined(client: httpx.AsyncClient, sources: None) -> None:
    assert warned(await client.post("/v1/queries", json=JOINED)) == []


@pytest.mark.usefixtures("joined")
async def test_a_validation_and_the_query_itself_warn_alike(client: httpx.AsyncClient) -> None:
    validation = await client.post("/v1/validations", json=COUNTED)
    assert (validation.json()["valid"], warned(validation)) == (True, LONG)
    assert warned(await client.post("/v1/queries", json=COUNTED)) == LONG
    assert warned(await client.put("/v1/queries/counted", json=COUNTED)) == LONG


@pytest.mark.usefixtures("joined")
async def test_a_query_that_follows_the_cure_is_not_warned(client: httpx.AsyncClient) -> None:
    body: dict[str, Any] = {**COUNTED, "window": {**COUNTED["window"], "size": "12h"}}
    assert warned(await client.put("/v1/queries/counted", json=body)) == []


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("tasks", [1, 4])
async def test_no_grace_is_needed_behind_a_join_with_grace_whatever_its_tasks(client: httpx.AsyncClient, tasks: int) -> None:
    """On time stays on time (P15), and tasks are a matter of speed only (T1)."""
    await client.put("/v1/queries/joined", json={**JOINED, "tasks": tasks})
    body: dict[str, Any] = {**COUNTED, "window": {"type": "tumbling", "size": "1h"}}
    assert warned(await client.post("/v1/validations", json=body)) == []


@pytest.mark.usefixtures("joined")
async def test_a_repeat_of_a_request_gets_its_warnings_again(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        answer = await client.post("/v1/queries", json=COUNTED, headers={"Idempotency-Key": "once"})
        assert warned(answer) == LONG


@pytest.mark.usefixtures("joined")
async def test_a_producer_that_a_newer_version_has_stored_is_not_known_and_not_warned_about(
    client: httpx.AsyncClient, dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.query SET definition = (definition::jsonb || %s)::json", (Jsonb({"of_tomorrow": 1}),)
        )
    assert warned(await client.post("/v1/validations", json=COUNTED)) == []


async def test_a_definition_that_cannot_be_has_problems_and_no_warnings(client: httpx.AsyncClient) -> None:
    assert warned(await client.post("/v1/validations", json=COUNTED)) == []


async def test_a_window_over_the_time_of_arrival_is_warned_at_the_stream(client: httpx.AsyncClient) -> None:
    assert warned(await client.put("/v1/streams/departures", json={**STREAM, "event_time": None})) == []
    body = {**COUNTED, "from": {"stream": "departures"}}
    assert warned(await client.post("/v1/queries", json=body)) == [("/from/stream", "event_time_is_arrival")]


async def test_an_unversioned_table_with_an_event_time_is_warned_until_it_says_what_decides(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        assert warned(await client.put("/v1/tables/gates", json=GATES)) == [("/conflict", "arrival_decides_conflicts")]
    for conflict in ("latest_arrival", "latest_event_time"):
        assert warned(await client.put("/v1/tables/gates", json={**GATES, "conflict": conflict})) == []


async def test_a_table_whose_conflicts_cannot_surprise_is_not_warned(client: httpx.AsyncClient) -> None:
    assert warned(await client.put("/v1/tables/weather", json=TABLE)) == []
    assert warned(await client.put("/v1/tables/plain", json={**GATES, "event_time": None})) == []


async def test_only_the_answer_to_a_put_warns(client: httpx.AsyncClient) -> None:
    await client.put("/v1/tables/gates", json=GATES)
    body = (await client.get("/v1/tables/gates")).json()
    assert ("warnings" in body, body["definition"]["conflict"]) == (False, "latest_arrival")


async def test_event_time_decides_only_where_there_is_one_and_nothing_is_versioned(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    asked = {**GATES, "conflict": "latest_event_time"}
    versioned = {**asked, "versioned": {"history_retention": "1d"}}
    body = problem(await client.put("/v1/tables/gates", json=versioned), 422, "unsupported_option", "/conflict")
    assert "a versioned table keeps every upsert as a version" in body["detail"]
    undated = {**asked, "event_time": None}
    problem(await client.put("/v1/tables/gates", json=undated), 422, "conflict_needs_event_time", "/conflict")


async def test_who_decides_conflicts_cannot_change_under_a_reader(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/tables/gates", json=GATES)
    reader = {"name": "reader", "from": {"table": "gates"}, "into": {"table": "copies"}}
    assert (await client.post("/v1/queries", json=reader)).status_code == 201
    problem(await client.put("/v1/tables/gates", json={**GATES, "conflict": "latest_event_time"}), 409, "relation_in_use")


async def test_kept_rows_of_a_table_with_records_need_a_new_beginning(client: httpx.AsyncClient, problem: Problem) -> None:
    kept = {**GATES, "materialize": True}
    await client.put("/v1/tables/gates", json=kept)
    await client.post("/v1/tables/gates/records", json=[{"flight": 1, "gate": "A", "at": 1}])
    edit = await client.put("/v1/tables/gates", json={**kept, "conflict": "latest_event_time"})
    problem(edit, 409, "materialize_needs_rebuild")


async def test_a_table_that_an_earlier_version_has_stored_is_equal_to_what_was_put(client: httpx.AsyncClient, dsn: str) -> None:
    version = (await client.put("/v1/tables/gates", json=GATES)).json()["version"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        stored = connection.execute("SELECT definition FROM slackwater.relation").fetchall()[0][0]
        del stored["conflict"]
        connection.execute("UPDATE slackwater.relation SET definition = %s", (Json(stored),))
    assert (await client.put("/v1/tables/gates", json=GATES)).json()["version"] == version

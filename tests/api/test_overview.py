"""All queries at a glance: the numbers of the overview are those of each query's own status."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psycopg
import pytest

from app.lateness.record_rules import LATE_REASONS
from tests.api.committed import commit, emitted
from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS, Problem

AT = 1_357_037_040_000
M = 60_000
PATH = "/v1/overview"


@pytest.fixture
async def queries(client: httpx.AsyncClient, sources: None) -> None:
    """`joined` reads departures and weather, `delays` departures; three departures are there."""
    for definition in (JOIN, WINDOWS):
        response = await client.post("/v1/queries", json=definition)
        assert response.status_code == 201, response.text
    records = [{**RECORD, "departed_at": AT + minutes * M} for minutes in (0, 10, 5)]
    assert (await client.post("/v1/streams/departures/records", json=records)).json()["appended"] == 3


async def overview(client: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    response = await client.get(PATH, params=params)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def facts(dsn: str, name: str, state: str, error: dict[str, Any] | None = None) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.query_status s SET state = %s, observed_generation = q.generation, error = %s::jsonb, lease_expires_at = "
            "now() + interval '1 minute' FROM slackwater.query q WHERE q.id = s.query_id AND q.name = %s",
            (state, json.dumps(error), name),
        )


def read_all(dsn: str, name: str, *feeds: str) -> None:
    """Commit a batch in which both partitions of departures have been read to their ends."""
    with psycopg.connect(dsn) as connection:
        ends = connection.execute(
            "SELECT f.name, h.partition, h.next_offset FROM log.feed f JOIN log.head h ON h.feed_id = f.id WHERE f.name = ANY(%s)",
            (list(feeds),),
        ).fetchall()
    read_to: dict[str, dict[int, int]] = {}
    for feed, partition, end in ends:
        read_to.setdefault(f"log:{feed}", {})[partition] = end
    commit(dsn, name, [(0, 0, emitted(clocks={"w": AT}))], read_to)


async def test_there_is_nothing_at_first(client: httpx.AsyncClient) -> None:
    body = await overview(client)
    assert (body["queries"], body["relations"], body["next"]) == ([], [], None)


async def test_a_query_without_a_commit_has_edges_and_no_numbers(client: httpx.AsyncClient, queries: None) -> None:
    body = await overview(client)
    delays, joined = body["queries"]
    assert (delays["name"], delays["state"], delays["conditions"]) == ("delays", "stopped", ["unplaced", "stale"])
    assert delays["reason"]["code"] == "no_driver"
    assert (delays["batch_id"], delays["batch_ms"], delays["lag"], delays["read_rows"]) == (None, None, None, 0)
    assert delays["reads"] == [{"relation": "departures", "lag": None, "read_rows": None}]
    assert [read["relation"] for read in joined["reads"]] == ["departures", "weather"]
    assert (delays["writes"], joined["writes"]) == ("delays", "joined")
    assert body["relations"] == [
        {"name": "delays", "kind": "table", "origin": "derived", "appended": 0},
        {"name": "departures", "kind": "stream", "origin": "source", "appended": 3},
        {"name": "joined", "kind": "stream", "origin": "derived", "appended": 0},
        {"name": "weather", "kind": "table", "origin": "source", "appended": 0},
    ]


async def test_numbers_are_those_of_the_status(client: httpx.AsyncClient, queries: None, dsn: str) -> None:
    facts(dsn, "joined", "running")
    read_all(dsn, "joined", "departures", "weather")
    assert (await client.post("/v1/streams/departures/records", json=[RECORD, RECORD])).json()["appended"] == 2
    status = (await client.get("/v1/queries/joined/status")).json()
    found = (await overview(client))["queries"][1]
    for field in (
        "name", "state", "phase", "desired_state", "conditions", "reason", "state_since", "batch_id", "committed_at", "stream_time_ms",
        "read_rows", "emitted_rows",
    ):  # fmt: skip
        assert found[field] == status[field], field
    assert found["lag"] == sum(part["lag"] for feed in status["progress"] for part in feed["partitions"]) == 2
    assert found["waiting"] == sum(status["buffered"].values())
    assert [(read["relation"], read["lag"]) for read in found["reads"]] == [("departures", 2), ("weather", 0)]
    assert found["batch_ms"] >= 0


async def test_a_partition_that_was_not_read_at_all_is_behind_too(client: httpx.AsyncClient, queries: None, dsn: str) -> None:
    many = [{**RECORD, "origin": origin} for origin in ("JFK", "EWR", "LGA", "BOS", "SFO", "LAX")]
    assert (await client.post("/v1/streams/departures/records", json=many)).json()["appended"] == 6
    commit(dsn, "delays", [], {"log:departures": {0: 1}})
    status = (await client.get("/v1/queries/delays/status")).json()
    expected = sum(part["lag"] for feed in status["progress"] for part in feed["partitions"])
    assert (await overview(client))["queries"][0]["lag"] == expected == 8


async def test_late_is_what_operators_refused_as_late(client: httpx.AsyncClient, queries: None, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for reason, number in (
            *((reason, 1) for reason in sorted(LATE_REASONS)),
            ("null_key", 100),
            ("late_records_overflow", 100),
        ):
            connection.execute(
                "INSERT INTO log.counter (owner, input, reason, count) SELECT id, 'w', %s, %s FROM slackwater.query WHERE name = 'joined'",
                (reason, number),
            )
    delays, joined = (await overview(client))["queries"]
    assert (delays["late"], joined["late"]) == (0, len(LATE_REASONS))


async def test_a_failed_query_says_why(client: httpx.AsyncClient, queries: None, dsn: str) -> None:
    facts(dsn, "delays", "failed", {"code": "data_invalid", "detail": "a bad record"})
    found = (await overview(client))["queries"][0]
    assert (found["state"], found["reason"]) == ("failed", {"code": "data_invalid", "detail": "a bad record"})


@pytest.mark.parametrize("state", ["backoff", "starting"])
async def test_a_query_that_is_tried_again_says_why_with_each_attempt(
    client: httpx.AsyncClient, queries: None, dsn: str, state: str
) -> None:
    facts(dsn, "delays", state, {"code": "source_unavailable", "detail": "no broker", "domain": "external", "retryable": True})
    reason = {"code": "source_unavailable", "detail": "no broker"}
    assert (await overview(client))["queries"][0]["reason"] == reason
    assert (await client.get("/v1/queries/delays/status")).json()["reason"] == reason


async def test_relations_of_one_feed_share_its_lag(client: httpx.AsyncClient, dsn: str) -> None:
    shared = {"connector": {"type": "log", "feed": "events", "partitions": 1}}
    assert (await client.put("/v1/streams/departures", json={**STREAM, **shared})).status_code == 201
    assert (await client.put("/v1/tables/weather", json={**TABLE, **shared})).status_code == 201
    assert (await client.post("/v1/queries", json=JOIN)).status_code == 201
    assert (await client.post("/v1/streams/departures/records", json=[RECORD] * 3)).json()["appended"] == 3
    commit(dsn, "joined", [], {"log:events": {0: 1}})
    (found,) = (await overview(client))["queries"]
    assert [(read["relation"], read["lag"]) for read in found["reads"]] == [("departures", 2), ("weather", 2)]
    assert found["lag"] == 2, "counted once"


async def test_pages_have_every_query_once_with_its_own_relations(client: httpx.AsyncClient, queries: None) -> None:
    first = await overview(client, limit=1)
    second = await overview(client, limit=1, cursor=first["next"])
    assert [one["name"] for page in (first, second) for one in page["queries"]] == ["delays", "joined"]
    assert second["next"] is None
    assert [one["name"] for one in first["relations"]] == ["delays", "departures"]
    assert [one["name"] for one in second["relations"]] == ["departures", "joined", "weather"]


async def test_a_deleted_query_is_not_there(client: httpx.AsyncClient, queries: None) -> None:
    assert (await client.delete("/v1/queries/delays")).status_code == 204
    assert [one["name"] for one in (await overview(client))["queries"]] == ["joined"]


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": "x"}, {"cursor": "x"}, {"size": 1}])
async def test_bad_parameters_are_refused(client: httpx.AsyncClient, problem: Problem, params: dict[str, Any]) -> None:
    response = await client.get(PATH, params=params)
    assert response.status_code == 400
    assert response.json()["code"] in ("bad_parameter", "bad_cursor", "unknown_parameter")

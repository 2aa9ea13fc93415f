"""Queries that no driver has room for say so with the answer that stores them; internal queries take no room."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.conftest import JOIN, STREAM, TABLE


def codes(response: httpx.Response) -> list[str]:
    assert response.status_code in (200, 201, 202), response.text
    return [item["code"] for item in response.json()["warnings"]]


@pytest.fixture
async def driver(dsn: str) -> str:
    """A ready driver that takes one query."""
    own = str(uuid.uuid4())
    execute(
        dsn,
        "INSERT INTO slackwater.driver (id, host, pid, create_time, phase, detail) VALUES (%s, 'h', 1, 1, 'ready', '{\"max_queries\": 1}')",
        own,
    )
    return own


def execute(dsn: str, statement: str, *values: object) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement, values)


def take(dsn: str, driver_id: str, name: str) -> None:
    """Lease a query as the driver would."""
    execute(
        dsn,
        "UPDATE slackwater.query_status s SET lease_owner = %s, lease_expires_at = now() + interval '1 minute' "
        "FROM slackwater.query q WHERE q.id = s.query_id AND q.name = %s",
        driver_id,
        name,
    )


def copied(name: str) -> dict[str, Any]:
    return {**JOIN, "name": name, "into": {"stream": name}}


async def test_a_query_that_waiting_for_place_for_is_stored_with_a_warning(
    client: httpx.AsyncClient, dsn: str, sources: None, driver: str
) -> None:
    assert codes(await client.post("/v1/queries", json=copied("one"))) == []
    second = await client.post("/v1/queries", json=copied("two"))
    assert codes(second) == ["waiting_for_place"], "the first waits for the only place"
    take(dsn, driver, "one")
    answer = await client.put("/v1/queries/three", json=copied("three"))
    (warning,) = answer.json()["warnings"]
    assert (warning["pointer"], warning["code"]) == ("/desired_state", "waiting_for_place")
    assert "1 ready driver holds 1 of 1 queries" in warning["detail"]
    assert "SLACKWATER_DRIVER__MAX_QUERIES" in warning["cure"]
    status = (await client.get("/v1/queries/three/status")).json()
    assert (status["reason"]["code"], status["conditions"]) == ("waiting_for_place", ["unplaced", "stale"])


async def test_a_wish_that_waiting_for_place_for_says_so_and_one_that_needs_none_does_not(
    client: httpx.AsyncClient, dsn: str, sources: None, driver: str
) -> None:
    await client.post("/v1/queries", json=copied("one"))
    take(dsn, driver, "one")
    assert codes(await client.post("/v1/queries", json={**copied("two"), "desired_state": "stopped"})) == []
    assert codes(await client.put("/v1/queries/two/desired-state", json={"state": "running"})) == ["waiting_for_place"]
    assert codes(await client.post("/v1/queries/two/restart")) == ["waiting_for_place"]
    assert codes(await client.post("/v1/queries/one/restart")) == []
    assert codes(await client.put("/v1/queries/two/desired-state", json={"state": "stopped"})) == []


async def test_a_failed_query_that_is_restarted_wants_a_place_again(
    client: httpx.AsyncClient, dsn: str, sources: None, driver: str
) -> None:
    await client.post("/v1/queries", json=copied("one"))
    take(dsn, driver, "one")
    await client.post("/v1/queries", json=copied("two"))
    execute(
        dsn,
        "UPDATE slackwater.query_status s SET state = 'failed', observed_generation = 1 FROM slackwater.query q "
        "WHERE q.id = s.query_id AND q.name = 'two'",
    )
    assert codes(await client.post("/v1/queries/two/restart")) == ["waiting_for_place"]


async def test_a_statement_whose_query_no_driver_has_room_for_says_so_and_another_driver_ends_that(
    client: httpx.AsyncClient, dsn: str, sources: None, driver: str
) -> None:
    await client.post("/v1/queries", json=copied("one"))
    take(dsn, driver, "one")
    script = "CREATE STREAM delays AS SELECT * FROM departures;"
    answer = await client.post("/v1/statements", content=script, headers={"content-type": "application/sql"})
    assert answer.status_code == 200, answer.text
    (made,) = answer.json()["results"]
    (warning,) = [each for each in made["warnings"] if each["pointer"] == "/desired_state"]
    assert (warning["code"], "1 of 1 queries, which is the limit" in warning["detail"]) == ("waiting_for_place", True)
    status = (await client.get(f"/v1/queries/{made['query']}/status")).json()
    assert status["reason"]["code"] == "waiting_for_place"
    execute(
        dsn,
        "INSERT INTO slackwater.driver (id, host, pid, create_time, phase, detail) VALUES (%s, 'i', 2, 1, 'ready', '{\"max_queries\": 1}')",
        str(uuid.uuid4()),
    )
    status = (await client.get(f"/v1/queries/{made['query']}/status")).json()
    assert status["reason"] is None


async def test_internal_queries_take_no_room(client: httpx.AsyncClient, dsn: str, driver: str) -> None:
    assert (await client.put("/v1/streams/departures", json=STREAM)).status_code == 201
    registered = await client.put("/v1/tables/weather", json={**TABLE, "materialize": True})
    assert codes(registered) == []
    take(dsn, driver, "materialize:weather")
    assert codes(await client.post("/v1/queries", json=copied("one"))) == []
    take(dsn, driver, "one")
    other = {**TABLE, "materialize": True}
    assert codes(await client.put("/v1/tables/climate", json=other)) == []
    status = (await client.get("/v1/queries/materialize:climate/status")).json()
    assert status["reason"] is None, "it has no cap to wait for"


async def test_the_wish_stands_in_the_query_and_in_its_status(client: httpx.AsyncClient, sources: None) -> None:
    for desired in ("running", "paused", "stopped"):
        body = (await client.put("/v1/queries/joined", json={**JOIN, "desired_state": desired})).json()
        assert (body["desired_state"], body["definition"]["desired_state"]) == (desired, desired)
        shown = (await client.get("/v1/queries/joined")).json()
        listed = (await client.get("/v1/queries")).json()["items"][0]
        status = (await client.get("/v1/queries/joined/status")).json()
        assert {each["desired_state"] for each in (shown, listed, status, shown["definition"], listed["definition"])} == {desired}


async def test_a_query_whose_state_is_elsewhere_says_where_and_what_helps(
    client: httpx.AsyncClient, dsn: str, sources: None, driver: str
) -> None:
    await client.post("/v1/queries", json=copied("one"))
    root = uuid.uuid4()
    execute(
        dsn,
        "UPDATE slackwater.query_status s SET state_root = %s, state_checkpoint_id = q.checkpoint_id FROM slackwater.query q "
        "WHERE q.id = s.query_id",
        root,
    )
    status = (await client.get("/v1/queries/one/status")).json()
    assert (status["reason"]["code"], status["conditions"]) == ("state_not_here", ["unplaced", "stale"])
    assert str(root) in status["reason"]["detail"]
    assert "PUT /v1/queries/one?state=discard" in status["reason"]["detail"]

"""The status of a query that waits for the one that writes its other input (P4). The test plays the drivers."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from app.access.rules import PRINCIPAL, Principal, Role
from app.access.scopes import Scope
from tests.api.committed import commit
from tests.api.conftest import RECORD, STREAM, TABLE

AT = 1_357_037_040_000
"""Event time of ``RECORD``."""

WARM = {
    "name": "warm",
    "from": {"table": "weather"},
    "where": "temp > 0",
    "into": {"table": "warm", "versioned": {"history_retention": "2d"}},
}
JOINED: dict[str, Any] = {
    "name": "joined",
    "from": {"stream": "departures"},
    "joins": [{"table": "warm", "as": "w", "on": "departures.origin = w.origin"}],
    "select": {"origin": "departures.origin", "temp": "w.temp"},
    "into": {"stream": "joined"},
}
HELD = {**JOINED["joins"][0], "grace": "0s", "hold": {"until": "table_time", "at_most": "10s"}}
READ_WEATHER = {"log:weather": {0: 1}}


@pytest.fixture
async def feeds(client: httpx.AsyncClient) -> None:
    """A flight at 10:44, and weather at 10:00 and at 11:00 of which `warm` turns a table of its own."""
    assert (await client.put("/v1/streams/departures", json={**STREAM, "connector": {"type": "log", "partitions": 1}})).is_success
    assert (await client.put("/v1/tables/weather", json={**TABLE, "versioned": {"history_retention": "2d"}})).is_success
    assert (await client.post("/v1/queries", json=WARM)).status_code == 201
    weather = [{"origin": "JFK", "temp": 1.5, "observed_at": f"2013-01-01T{hour}:00:00Z"} for hour in (10, 11)]
    assert (await client.post("/v1/tables/weather/records", json=weather)).json()["appended"] == 2
    assert (await client.post("/v1/streams/departures/records", json=[RECORD])).json()["appended"] == 1


async def post(client: httpx.AsyncClient, definition: dict[str, Any]) -> None:
    response = await client.post("/v1/queries", json=definition)
    assert response.status_code == 201, response.text


def play(dsn: str, **states: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, state in states.items():
            connection.execute(
                "UPDATE slackwater.query_status SET state = %s, lease_expires_at = now() + interval '1 minute' "
                "WHERE query_id = (SELECT id FROM slackwater.query WHERE name = %s)",
                (state, name),
            )


async def status(client: httpx.AsyncClient) -> tuple[list[str], dict[str, str] | None]:
    body = (await client.get("/v1/queries/joined/status")).json()
    return body["conditions"], body["reason"]


async def test_it_says_which_query_it_waits_for(client: httpx.AsyncClient, feeds: None, dsn: str) -> None:
    await post(client, JOINED)
    commit(dsn, "warm", read_to=READ_WEATHER, heads={"log:weather": {0: AT - 44 * 60_000}})
    await client.put("/v1/queries/warm/desired-state", json={"state": "paused"})
    play(dsn, warm="paused", joined="running")
    conditions, reason = await status(client)
    assert conditions == ["waits_for_producer"]
    assert reason == {
        "code": "waits_for_producer",
        "detail": "it reads its feeds together in event time, and no further than 'warm' has come (2013-01-01T10:00:00Z): the query 'warm', "
        "which writes it, is paused and has 1 record to read, 1h of event time. Resume it (PUT /v1/queries/warm/desired-state "
        '{"state": "running"}); or a `grace` with a `hold` and its `at_most` on the join bounds the wait; '
        "or DELETE /v1/queries/warm?state=keep ends it for good and keeps what there is of the result",
    }


async def test_it_waits_for_nobody_once_the_producer_has_read_everything(
    client: httpx.AsyncClient, feeds: None, dsn: str
) -> None:
    await post(client, JOINED)
    commit(dsn, "warm", read_to={"log:weather": {0: 2}}, heads={"log:weather": {0: AT + 16 * 60_000}})
    play(dsn, warm="paused", joined="running")
    assert await status(client) == ([], None)


async def test_a_join_that_holds_waits_by_itself(client: httpx.AsyncClient, feeds: None, dsn: str) -> None:
    await post(client, {**JOINED, "joins": [HELD]})
    play(dsn, warm="paused", joined="running")
    assert await status(client) == ([], None)


async def test_it_waits_for_nobody_once_the_producers_result_was_kept(client: httpx.AsyncClient, feeds: None, dsn: str) -> None:
    await post(client, JOINED)
    play(dsn, joined="running")
    assert (await status(client))[0] == ["waits_for_producer"]
    assert (await client.delete("/v1/queries/warm", params={"state": "keep"})).status_code == 204
    assert await status(client) == ([], None)


async def test_a_query_that_does_not_run_waits_for_nobody(client: httpx.AsyncClient, feeds: None, dsn: str) -> None:
    await post(client, JOINED)
    play(dsn, warm="paused", joined="paused")
    assert await status(client) == (["stale"], None)


async def test_a_query_behind_the_inputs_that_is_not_within_the_caller_s_scope_is_not_named(
    client: httpx.AsyncClient, feeds: None, dsn: str
) -> None:
    await post(client, JOINED)
    commit(dsn, "warm", read_to=READ_WEATHER, heads={"log:weather": {0: AT - 44 * 60_000}})
    await client.put("/v1/queries/warm/desired-state", json={"state": "paused"})
    play(dsn, warm="paused", joined="running")
    before = PRINCIPAL.set(Principal("api_key", None, "team", Role.READ, Scope(("joined", "departures", "warm"))))
    try:
        conditions, reason = await status(client)
    finally:
        PRINCIPAL.reset(before)
    assert conditions == ["waits_for_producer"]
    assert reason is not None
    assert "weather" not in reason["detail"]
    assert "'warm'" not in reason["detail"]
    assert "not within your key's scope" in reason["detail"]

"""How fresh an answer is: waiting for a position, refusing staleness, tables that change while they are read; windows' states."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg.types.json import Jsonb

from tests.api.conftest import WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")
PATH = "/v1/tables/delays/rows"
CHANGES = {**WINDOWS, "suppress": {"mode": "none"}}


async def create(client: httpx.AsyncClient, definition: dict[str, Any]) -> None:
    response = await client.post("/v1/queries", json=definition)
    assert response.status_code == 201, response.text


def commit(dsn: str, offset: int, stream_time: str = "2013-01-01T02:00:00Z", age: str = "0s") -> None:
    """Play the sink: both partitions of `departures` are read up to ``offset``."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE slackwater.query_status SET state = 'running', lease_expires_at = now() + interval '1 minute'")
        connection.execute(
            """
            INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail)
            SELECT id, checkpoint_id, 1, 3, clock_timestamp() - %(age)s::interval, %(position)s,
                (extract(epoch FROM %(time)s::timestamptz) * 1000)::bigint, '{}' FROM slackwater.query
            ON CONFLICT (query_id) DO UPDATE SET position = excluded.position, committed_at = excluded.committed_at
            """,
            {"position": Jsonb({"log:departures": {"0": offset, "1": offset}}), "time": stream_time, "age": age},
        )
        connection.execute("SELECT pg_notify('slackwater_commit', id::text) FROM slackwater.query")


def position(offset: int, feed: str = "log:departures") -> str:
    return json.dumps({feed: {"1": offset}})


async def test_a_position_that_is_included_is_answered_at_once(client: httpx.AsyncClient, dsn: str) -> None:
    await create(client, WINDOWS)
    commit(dsn, 5)
    for offset in (0, 5):
        response = await client.get(PATH, params={"min_position": position(offset), "timeout": 0})
        assert response.status_code == 200
    asked = json.dumps(response.json()["position"])
    assert (await client.get(PATH, params={"min_position": asked, "timeout": 0})).status_code == 200


async def test_a_position_that_is_not_reached_answers_504(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await create(client, WINDOWS)
    commit(dsn, 5)
    for response in (
        await client.get(PATH, params={"min_position": position(6), "timeout": 0}),
        await client.get(f"{PATH}/JFK", params={"min_position": position(6), "timeout": 0.01}),
        await client.post(
            f"{PATH}:lookup",
            params={"min_position": position(6), "timeout": 0},
            json={"keys": [{"origin": "JFK", "window_start": 0, "window_end": 1}]},
        ),
    ):
        body = problem(response, 504, "position_not_reached")
        assert '"1": 5' in body["detail"]
        assert (body["retryable"], response.headers["retry-after"]) == (True, "1")


async def test_a_commit_wakes_who_waits_for_it(client: httpx.AsyncClient, app: FastAPI, dsn: str) -> None:
    await create(client, WINDOWS)
    commit(dsn, 5)
    bell = app.state.services.bell
    waiting = asyncio.create_task(client.get(PATH, params={"min_position": position(6), "timeout": 60}))
    while not bell.waiters:
        await asyncio.sleep(0)
    commit(dsn, 6)
    body = (await waiting).json()
    assert body["position"]["log:departures"] == {"0": 6, "1": 6}


async def test_a_feed_that_is_never_read_is_refused(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await create(client, WINDOWS)
    response = await client.get(PATH, params={"min_position": position(1, "log:weather")})
    body = problem(response, 422, "unknown_feed", "?min_position")
    assert "log:departures" in body["detail"]


async def test_a_partition_that_there_is_not_is_refused_instead_of_waited_for(
    client: httpx.AsyncClient, dsn: str, problem: Problem
) -> None:
    await create(client, WINDOWS)
    response = await client.get(PATH, params={"min_position": '{"log:departures": {"7": 1}}'})
    assert "[0, 1]" in problem(response, 422, "unknown_partition", "?min_position")["detail"]


async def test_a_commit_that_is_old_is_stale_while_something_is_unread(
    client: httpx.AsyncClient, dsn: str, problem: Problem
) -> None:
    await create(client, WINDOWS)
    problem(await client.get(PATH, params={"max_staleness": "1h"}), 503, "too_stale")
    records = [{"origin": origin, "flight": 1, "departed_at": "2013-01-01T00:00:00Z"} for origin in "ABCDEFGH"]
    assert (await client.post("/v1/streams/departures/records", json=records)).status_code == 200
    commit(dsn, 0, age="1 minute")
    assert (await client.get(PATH, params={"max_staleness": "1h"})).status_code == 200
    response = await client.get(PATH, params={"max_staleness": "10s"})
    assert "10s" in problem(response, 503, "too_stale")["detail"]
    assert response.headers["retry-after"] == "1"
    commit(dsn, 8, age="1 minute")
    assert (await client.get(PATH, params={"max_staleness": "10s"})).status_code == 200, "nothing came after the old commit"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE slackwater.query_status SET state = 'paused'")
    problem(await client.get(PATH, params={"max_staleness": "10s"}), 503, "too_stale")


async def test_a_table_made_anew_is_read_in_its_new_form(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await create(client, CHANGES)
    assert (await client.get(PATH, params={"where.mean_delay.null": "true"})).status_code == 200
    changed = {**CHANGES, "aggregate": {"worst": "max(delay)"}}
    assert (await client.put("/v1/queries/delays", json=changed, params={"state": "discard"})).status_code == 200
    assert (await client.get(PATH, params={"where.worst.null": "true"})).status_code == 200
    problem(await client.get(PATH, params={"where.mean_delay.null": "true"}), 400, "unknown_parameter")
    assert (await client.delete("/v1/queries/delays")).status_code == 204
    problem(await client.get(PATH), 404, "relation_not_found")
    await create(client, CHANGES)
    assert (await client.get(PATH, params={"where.mean_delay.null": "true"})).status_code == 200


async def test_a_window_is_final_once_it_cannot_change(client: httpx.AsyncClient, dsn: str) -> None:
    await create(client, CHANGES)  # an hour long, half an hour of grace: the second one is still open at 02:29
    with psycopg.connect(dsn, autocommit=True) as connection:
        for hour in range(3):
            connection.execute("INSERT INTO views.delays VALUES ('JFK', %s, %s, 1, 1, 0)", (at(hour), at(hour + 1)))

    async def states(**params: str) -> list[str]:
        response = await client.get(PATH, params=params)
        return [row["$state"] for row in response.json()["rows"]]

    assert await states() == ["open"] * 3, "nothing is known before the first commit"
    commit(dsn, 1, "2013-01-01T02:29:59.999Z")
    assert await states() == ["final", "open", "open"]
    assert (await states(state="final"), await states(state="open")) == (["final"], ["open", "open"])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.commit SET stream_time_ms = stream_time_ms + 1")
    assert await states(state="any") == ["final", "final", "open"]
    key = {"origin": "JFK", "window_start": at(0), "window_end": at(1)}
    found = (await client.post(f"{PATH}:lookup", json={"keys": [key]})).json()
    assert found["results"][0]["row"]["$state"] == "final"


async def test_open_windows_of_a_suppressed_table_are_not_there(client: httpx.AsyncClient, problem: Problem) -> None:
    await create(client, WINDOWS)
    for state in ("open", "any"):
        body = problem(await client.get(PATH, params={"state": state}), 409, "open_not_materialised", "?state")
        assert "materialize_open" in body["detail"]
    assert (await client.get(PATH, params={"state": "final"})).status_code == 200


async def test_open_windows_are_read_beside_final_ones(client: httpx.AsyncClient, dsn: str) -> None:
    await create(client, {**WINDOWS, "into": {"table": "delays", "materialize_open": True}})
    with psycopg.connect(dsn, autocommit=True) as connection:
        for schema, hour, flights in (("views", 0, 3), ("open", 1, 2), ("open", 2, 1)):
            connection.execute(f"INSERT INTO {schema}.delays VALUES ('JFK', %s, %s, %s, 1, 0)", (at(hour), at(hour + 1), flights))

    async def found(path: str = PATH, /, **params: Any) -> list[tuple[int, str]]:
        response = await client.get(path, params=params)
        assert response.status_code == 200, response.text
        return [(row["flights"], row["$state"]) for row in response.json()["rows"]]

    assert await found() == [(3, "final")]
    assert await found(state="open") == [(2, "open"), (1, "open")]
    assert await found(state="any") == [(3, "final"), (2, "open"), (1, "open")]
    assert await found(f"{PATH}/JFK", state="any", order="desc", limit=2) == [(1, "open"), (2, "open")]
    assert await found(**{"state": "any", "where.flights.ge": 2, "window_from": at(1)}) == [(2, "open")]
    pages: list[int] = []
    params: dict[str, Any] = {"state": "any", "limit": 1}
    while True:
        body = (await client.get(PATH, params=params)).json()
        pages += [row["flights"] for row in body["rows"]]
        if body["next"] is None:
            break
        params["cursor"] = body["next"]
    assert pages == [3, 2, 1]
    assert (await client.delete("/v1/queries/delays")).status_code == 204
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('open.delays')").fetchone() == (None,)


async def test_windows_of_the_past_have_no_state(client: httpx.AsyncClient, problem: Problem) -> None:
    await create(client, {**CHANGES, "into": {"table": "delays", "versioned": {"history_retention": "1d"}}})
    assert (await client.get(PATH, params={"as_of": 5})).json()["rows"] == []
    problem(await client.get(PATH, params={"as_of": 5, "state": "any"}), 400, "conflicting_parameters", "?state")


def at(hour: int) -> str:
    return f"2013-01-01T{hour:02}:00:00Z"

"""Source tables whose rows are kept for reading: the internal query that does it, and its life with the table."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.upkeep.retention import forget_versions
from tests.api.conftest import TABLE, Problem

WEATHER = {**TABLE, "materialize": True}
QUERY = "/v1/queries/materialize:weather"
READER = {"name": "reader", "from": {"table": "weather"}, "into": {"table": "copies"}}


@pytest.fixture(autouse=True)
async def weather(client: httpx.AsyncClient) -> None:
    response = await client.put("/v1/tables/weather", json=WEATHER)
    assert response.status_code == 201, response.text


def play_the_sink(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table, deleted in (("views.weather", ""), ("history.weather", ", false")):
            connection.execute(f"INSERT INTO {table} VALUES ('JFK', 1.5, '2013-01-01T00:00:00Z', 1356998400000{deleted})")
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "SELECT id, checkpoint_id, 1, 0, now(), %s, 1356998400000, '{}' FROM slackwater.query WHERE deleted_at IS NULL",
            (Jsonb({"log:weather": {"0": 1}}),),
        )


async def put(client: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    return await client.put("/v1/tables/weather", json={**WEATHER, **changes})


async def test_a_materialised_source_is_read_like_a_result(client: httpx.AsyncClient, dsn: str) -> None:
    assert (await client.get("/v1/tables/weather/rows")).json()["rows"] == []
    play_the_sink(dsn)
    row = {"origin": "JFK", "temp": 1.5, "observed_at": "2013-01-01T00:00:00Z"}
    body = (await client.get("/v1/tables/weather/rows/JFK")).json()
    assert (body["rows"], body["position"], body["stale"]) == ([row], {"log:weather": {"0": 1}}, True)
    assert (await client.get("/v1/tables/weather/rows", params={"as_of": "2013-01-01T00:00:00Z"})).json()["rows"] == [row]
    history = (await client.get("/v1/tables/weather/rows/JFK", params={"from": 0})).json()
    assert (len(history["rows"]), history["truncated"]) == (1, True)
    assert (await client.get("/v1/tables/weather/changes", params={"from": "earliest"})).status_code == 200


async def test_versions_that_no_read_reaches_go_from_a_materialised_source_too(client: httpx.AsyncClient, dsn: str) -> None:
    play_the_sink(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for days, temp in ((1, 2.5), (9, 3.5)):
            values = (temp, 1_356_998_400_000 + days * 86_400_000)
            connection.execute("INSERT INTO history.weather VALUES ('JFK', %s, '2013-01-01T00:00:00Z', %s, false)", values)
        connection.execute("UPDATE log.commit SET stream_time_ms = 1356998400000 + 9 * 86400000")
        assert forget_versions(dsn) == 1
        assert connection.execute("SELECT temp FROM history.weather ORDER BY 1").fetchall() == [(2.5,), (3.5,)]


async def test_the_internal_query_is_visible_and_marked(client: httpx.AsyncClient) -> None:
    body = (await client.get(QUERY)).json()
    assert (body["internal"], body["desired_state"]) == (True, "running")
    assert body["definition"]["into"]["versioned"] == {"history_retention": "2d"}
    assert [(one["name"], one["internal"]) for one in (await client.get("/v1/queries")).json()["items"]] == [
        ("materialize:weather", True)
    ]
    assert (await client.get("/v1/tables/weather")).json()["read_by"] == ["materialize:weather"]
    assert (await client.get(f"{QUERY}/status")).json()["state"] == "stopped"


async def test_the_internal_query_is_paused_and_restarted_but_not_edited_by_hand(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    assert "materialize" in problem(await client.delete(QUERY), 409, "query_is_internal")["detail"]
    problem(await client.delete(QUERY, params={"state": "keep"}), 409, "query_is_internal")
    definition = (await client.get(QUERY)).json()["definition"]
    problem(await client.put(QUERY, json=definition), 409, "query_is_internal")
    problem(await client.post("/v1/queries", json=definition), 409, "name_taken")
    assert (await client.post(f"{QUERY}/restart")).status_code == 202
    assert (await client.put(f"{QUERY}/desired-state", json={"state": "paused"})).status_code == 202


async def test_the_internal_query_goes_with_its_table(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    play_the_sink(dsn)
    assert (await client.delete("/v1/tables/weather")).status_code == 204
    problem(await client.get(QUERY), 404, "query_not_found")
    problem(await client.get("/v1/tables/weather/rows"), 404, "relation_not_found")
    with psycopg.connect(dsn) as connection:
        left = connection.execute("SELECT to_regclass('views.weather'), to_regclass('history.weather')").fetchone()
        assert left == (None, None)
        assert connection.execute("SELECT count(*) FROM log.head").fetchone() == (0,)
    assert (await client.put("/v1/tables/weather", json=WEATHER)).status_code == 201
    assert (await client.get("/v1/tables/weather/rows")).json()["rows"] == []


async def test_a_table_that_others_read_stays(client: httpx.AsyncClient, problem: Problem) -> None:
    assert (await client.post("/v1/queries", json=READER)).status_code == 201
    body = problem(await client.delete("/v1/tables/weather"), 409, "relation_in_use")
    assert [fault["detail"] for fault in body["errors"]] == ["query 'reader' reads 'weather'"]


async def test_rows_are_kept_from_when_they_are_asked_for_until_they_are_not(client: httpx.AsyncClient, problem: Problem) -> None:
    assert (await put(client, materialize=False)).status_code == 200
    problem(await client.get(QUERY), 404, "query_not_found")
    problem(await client.get("/v1/tables/weather/rows"), 409, "table_not_materialised")
    problem(await client.get("/v1/tables/weather/changes"), 409, "table_not_materialised")
    assert (await put(client)).status_code == 200
    assert (await client.get("/v1/tables/weather/rows")).status_code == 200


async def test_an_equal_definition_changes_nothing(client: httpx.AsyncClient) -> None:
    before = (await client.get(QUERY)).json()
    assert (await put(client)).json()["version"] == 1
    assert (await client.get(QUERY)).json() == before


async def test_an_edit_of_how_records_are_judged_keeps_the_rows(client: httpx.AsyncClient, dsn: str) -> None:
    before = (await client.get(QUERY)).json()
    play_the_sink(dsn)
    assert (await put(client, max_future_skew="2d")).status_code == 200
    assert (await client.get(QUERY)).json()["created_at"] == before["created_at"]
    assert len((await client.get("/v1/tables/weather/rows")).json()["rows"]) == 1


async def test_an_edit_that_needs_other_rows_is_refused_once_there_are_records(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    before = (await client.get(QUERY)).json()
    assert (await put(client, versioned=None)).status_code == 200, "an empty table begins anew"
    assert (await client.get(QUERY)).json()["created_at"] != before["created_at"]
    problem(await client.get("/v1/tables/weather/rows", params={"as_of": 5}), 409, "table_not_versioned")
    record = {"origin": "JFK", "temp": 1, "observed_at": "2013-01-01T00:00:00Z"}
    assert (await client.post("/v1/tables/weather/records", json=record)).status_code == 200
    problem(await put(client), 409, "materialize_needs_rebuild", "/materialize")
    assert (await put(client, versioned=None, materialize=False)).status_code == 200
    assert (await put(client)).status_code == 200
    assert (await client.get("/v1/tables/weather/rows", params={"as_of": 5})).status_code == 200


async def test_a_stream_has_no_rows_to_keep(client: httpx.AsyncClient, problem: Problem) -> None:
    response = await client.put("/v1/streams/s", json={"columns": {"a": "int"}, "materialize": True})
    problem(response, 422, "unknown_field", "/materialize")

"""Columns of sources that have records and readers: what may change in place."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from tests.api.conftest import RECORD, STREAM, TABLE, WINDOWS, Problem
from tests.api.test_statement_edits import write_in_sql

MORE: dict[str, Any] = {**STREAM, "columns": {**STREAM["columns"], "gate": "string"}}
ALL: dict[str, Any] = {
    "name": "everything",
    "from": {"stream": "departures"},
    "where": "flight > 1",
    "into": {"stream": "copied"},
}


@pytest.fixture(autouse=True)
async def _departures(client: httpx.AsyncClient) -> None:
    columns = {**STREAM["columns"], "flight": "int"}
    assert (await client.put("/v1/streams/departures", json={**STREAM, "columns": columns})).status_code == 201
    assert (await client.post("/v1/streams/departures/records", json=RECORD)).json()["appended"] == 1


async def put(client: httpx.AsyncClient, columns: dict[str, str], name: str = "departures") -> httpx.Response:
    return await client.put(f"/v1/streams/{name}", json={**STREAM, "columns": columns})


async def records(client: httpx.AsyncClient, partition: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in (0, 1):
        answer = await client.get("/v1/streams/departures/records", params={"partition": number})
        found += answer.json()["records"]
    return found


async def test_old_records_have_null_in_a_new_column_and_new_ones_are_judged_by_all(client: httpx.AsyncClient) -> None:
    response = await client.put("/v1/streams/departures", json=MORE)
    assert (response.status_code, response.json()["version"]) == (200, 2)
    added = {**RECORD, "flight": 2**40, "gate": "B7"}
    answer = (await client.post("/v1/streams/departures/records", json=[added, {**RECORD, "gate": 7}])).json()
    assert (answer["appended"], [each["code"] for each in answer["rejected"]]) == (1, ["wrong_type"])
    assert sorted((each["flight"], each["gate"]) for each in await records(client)) == [(725, None), (2**40, "B7")]


async def test_columns_that_records_have_stay(client: httpx.AsyncClient, problem: Problem) -> None:
    for columns, pointer in (
        ({name: kind for name, kind in STREAM["columns"].items() if name != "delay"}, "/columns/delay"),
        ({**STREAM["columns"], "delay": "int"}, "/columns/delay"),
        ({**STREAM["columns"], "flight": "string"}, "/columns/flight"),
    ):
        problem(await put(client, columns), 409, "relation_not_empty", pointer)
    other = {**MORE, "event_time": None}
    problem(await client.put("/v1/streams/departures", json=other), 409, "relation_not_empty", "/event_time")


async def test_a_reader_of_all_columns_goes_on_with_those_it_has(client: httpx.AsyncClient, dsn: str) -> None:
    body = {**ALL, "where": None}
    assert (await client.post("/v1/queries", json=body)).status_code == 201
    before = (await client.get("/v1/queries/everything")).json()
    await write_in_sql(client, "everything")
    columns = {"origin": "string", "flight": "int", "gate": "string", "delay": "double", "departed_at": "timestamp"}
    assert (await put(client, columns)).status_code == 200
    after = (await client.get("/v1/queries/everything")).json()
    assert before["definition"]["select"] is None
    assert list(after["definition"]["select"]) == ["origin", "flight", "delay", "departed_at"]
    assert after["statement"] is None, "a SELECT * would take the column that is new"
    assert list((await client.get("/v1/streams/copied")).json()["columns"]) == ["origin", "flight", "delay", "departed_at"]
    events = (await client.get("/v1/queries/everything/events")).json()["items"]
    assert any(each["kind"] == "query_replaced" and each["detail"]["changed"] == ["/select"] for each in events)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT restart_nonce FROM slackwater.query").fetchone() == (1,)


async def test_a_reader_of_other_columns_stays_as_it_is(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    before = (await client.get("/v1/queries/delays")).json()["definition"]
    assert (await client.put("/v1/streams/departures", json=MORE)).status_code == 200
    assert (await client.get("/v1/queries/delays")).json()["definition"] == before


async def test_a_column_that_a_reader_uses_is_not_widened_under_it(client: httpx.AsyncClient, problem: Problem) -> None:
    assert (await client.post("/v1/queries", json=ALL)).status_code == 201
    body = problem(await client.put("/v1/streams/departures", json=MORE), 409, "relation_in_use")
    assert "everything" in body["detail"]


async def test_a_versioned_materialised_table_says_how_to_get_another_column(client: httpx.AsyncClient, problem: Problem) -> None:
    kept = {**TABLE, "materialize": True}
    assert (await client.put("/v1/tables/weather", json=kept)).status_code == 201
    row = {"origin": "JFK", "temp": 2.5, "observed_at": "2013-01-01T10:00:00Z"}
    assert (await client.post("/v1/tables/weather/records", json=row)).json()["appended"] == 1
    more = {**kept, "columns": {**TABLE["columns"], "wind": "double"}}
    problem(await client.put("/v1/tables/weather", json=more), 409, "materialize_needs_rebuild")
    for is_kept in (False, True):
        assert (await client.put("/v1/tables/weather", json={**more, "materialize": is_kept})).status_code == 200
    assert "wind" in (await client.get("/v1/tables/weather")).json()["columns"]


async def test_a_result_gets_further_columns_in_place(client: httpx.AsyncClient, dsn: str) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    reader = {"name": "reader", "from": {"table": "delays"}, "into": {"table": "late"}}
    assert (await client.post("/v1/queries", json=reader)).status_code == 201
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO views.delays VALUES ('JFK', 'epoch', timestamptz 'epoch' + interval '1 hour', 2, 1.5, 9)")
        before = connection.execute("SELECT checkpoint_id FROM slackwater.query WHERE name = 'delays'").fetchone()
    names = ("origin", "window_start", "window_end", "flights", "mean_delay")
    edited = {**WINDOWS, "select": {**{name: name for name in names}, "xmin": "flights * mean_delay"}}
    response = await client.put("/v1/queries/delays", json=edited)
    assert response.status_code == 200, response.text
    (row,) = (await client.get("/v1/tables/delays/rows")).json()["rows"]
    assert (row["flights"], row["xmin"]) == (2, None)
    assert list((await client.get("/v1/tables/delays")).json()["columns"]) == [*names, "xmin"]
    pinned = (await client.get("/v1/queries/reader")).json()["definition"]["select"]
    assert list(pinned) == list(names)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT checkpoint_id FROM slackwater.query WHERE name = 'delays'").fetchone() == before


async def test_what_a_result_has_shown_is_not_taken_away_in_place(client: httpx.AsyncClient, problem: Problem) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    names = ("origin", "window_start", "window_end", "flights")
    fewer = {**WINDOWS, "select": {name: name for name in names}}
    problem(await client.put("/v1/queries/delays", json=fewer), 409, "state_incompatible", "/select")


async def test_a_materialised_table_gets_further_columns_in_place(client: httpx.AsyncClient, dsn: str) -> None:
    kept = {**{name: part for name, part in TABLE.items() if name != "versioned"}, "materialize": True}
    assert (await client.put("/v1/tables/weather", json=kept)).status_code == 201
    row = {"origin": "JFK", "temp": 2.5, "observed_at": "2013-01-01T10:00:00Z"}
    assert (await client.post("/v1/tables/weather/records", json=row)).json()["appended"] == 1
    more = {**kept, "columns": {**TABLE["columns"], "wind": "double"}}
    assert (await client.put("/v1/tables/weather", json=more)).status_code == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO views.weather (origin, temp, _ts) VALUES ('EWR', 1.5, 9)")
    assert (await client.get("/v1/tables/weather/rows/EWR")).json()["rows"][0]["wind"] is None

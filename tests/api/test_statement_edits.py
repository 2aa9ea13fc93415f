"""CREATE OR REPLACE: the query of a result is edited in place, or starts from scratch where that is asked for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.conftest import JOIN, STREAM, TABLE, WINDOWS, Problem
from tests.api.test_statements import HOURLY, ORDERS, PATH, rows, run
from tests.kafka.topics import mock_cluster

DEAR = "CREATE STREAM dear AS SELECT id, amount FROM orders WHERE amount > 10 EMIT CHANGES;"
CHEAPER = DEAR.replace("CREATE STREAM", "CREATE OR REPLACE STREAM").replace("> 10", "> 3")


def with_state(sql: str, state: str) -> str:
    return sql.replace("STREAM dear AS", f"STREAM dear WITH (STATE='{state}') AS")


async def test_a_result_is_replaced_by_its_query_with_another_grace(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS + HOURLY)
    (done,) = await run(client, HOURLY.replace("CREATE TABLE", "CREATE OR REPLACE TABLE").replace("10 MINUTES", "20 MINUTES"))
    assert (done["query"], done["definition"]["window"]["grace"]) == ("hourly", "20m")
    assert done["message"] == "query hourly is edited in place: it keeps its state and what table HOURLY holds"
    assert [row[0] for row in await rows(client, "SHOW QUERIES")] == ["hourly"]


async def test_a_change_that_does_not_fit_begins_anew_only_where_that_is_asked_for(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    await run(client, ORDERS + DEAR)
    for sql in (CHEAPER, with_state(CHEAPER, "KEEP")):
        body = problem(await client.post(PATH, json={"sql": sql}), 409, "state_incompatible", "/sql")
        assert "WITH (STATE = 'DISCARD')" in body["detail"]
    (done,) = await run(client, with_state(CHEAPER, "DISCARD"))
    assert (done["query"], done["relation"]) == ("dear", "dear")
    assert done["message"] == "query dear starts from scratch: its state and what stream DEAR held are thrown away"
    (again,) = await run(client, CHEAPER)
    assert again["message"] == "query dear is as it was: the statement says nothing new"
    assert "> 3" in (await client.get("/v1/queries/dear")).json()["statement"]
    assert [row[0] for row in await rows(client, "SHOW QUERIES")] == ["dear"]


async def test_state_is_asked_about_of_a_replacement_alone(client: httpx.AsyncClient, problem: Problem) -> None:
    await run(client, ORDERS)
    body = problem(await client.post(PATH, json={"sql": with_state(DEAR, "DISCARD")}), 422, "unknown_property", "/sql")
    assert "STATE" in body["detail"]
    body = problem(await client.post(PATH, json={"sql": with_state(CHEAPER, "FORGET")}), 422, "property_malformed", "/sql")
    assert "DISCARD" in body["detail"]


async def statement_of(client: httpx.AsyncClient, name: str) -> str | None:
    found: str | None = (await client.get(f"/v1/queries/{name}")).json()["statement"]
    return found


async def write_in_sql(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    """Replace a query by the statement that means the same, so that there is one; returns how it says the definition."""
    sql = (await client.get(f"/v1/queries/{name}")).json()["sql"]
    (done,) = await run(client, sql.replace("CREATE", "CREATE OR REPLACE", 1) + ";")
    assert await statement_of(client, name) is not None
    definition: dict[str, Any] = done["definition"]
    return definition


async def test_a_statement_is_shown_as_long_as_it_says_what_the_query_does(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS + HOURLY)
    stored = (await client.get("/v1/queries/hourly")).json()
    for params in ({}, {"state": "discard", "from": "earliest"}):
        same = await client.put("/v1/queries/hourly", json=stored["definition"], params=params)
        assert same.status_code == 200, same.text
        assert await statement_of(client, "hourly") == HOURLY.removesuffix(";"), "nothing is otherwise"
    edited = {**stored["definition"], "window": {**stored["definition"]["window"], "grace": "2h"}}
    assert (await client.put("/v1/queries/hourly", json=edited)).status_code == 200
    shown = (await client.get("/v1/queries/hourly")).json()
    assert shown["statement"] is None
    assert "GRACE PERIOD 2 HOURS" in shown["sql"]
    assert [row[4] for row in await rows(client, "SHOW QUERIES")] == [None]
    again = HOURLY.replace("CREATE TABLE", "CREATE OR REPLACE TABLE")
    await run(client, again)
    assert await statement_of(client, "hourly") == again.removesuffix(";")


async def test_the_sql_of_a_query_edits_it_once_it_says_or_replace(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS + HOURLY.replace("AS SELECT", "WITH (QUERY_ID = 'by_hour') AS SELECT", 1))
    sql = (await client.get("/v1/queries/by_hour")).json()["sql"]
    edited = sql.replace("CREATE", "CREATE OR REPLACE", 1).replace("10 MINUTES", "20 MINUTES") + ";"
    (done,) = await run(client, edited)
    assert (done["query"], done["definition"]["window"]["grace"]) == ("by_hour", "20m")
    assert await statement_of(client, "by_hour") == edited.removesuffix(";")


WRITTEN_BY_HAND: dict[str, Any] = {
    **WINDOWS,
    "name": "by_hand",
    "from": {"stream": "departures", "as": "d", "where": "d.delay>0"},
    "where": "(delay <60)AND origin!='XXX'",
    "aggregate": {"flights": "COUNT(*)", "mean_delay": "AVG( delay )"},
    "having": "flights>1",
    "into": {"table": "by_hand"},
}


@pytest.mark.parametrize("definition", [JOIN, WINDOWS, WRITTEN_BY_HAND], ids=lambda each: each["name"])
async def test_the_sql_of_a_query_that_json_made_changes_nothing_of_it(
    client: httpx.AsyncClient, definition: dict[str, Any]
) -> None:
    for kind, name, source in (("streams", "departures", STREAM), ("tables", "weather", TABLE)):
        assert (await client.put(f"/v1/{kind}/{name}", json=source)).status_code == 201
    path = f"/v1/queries/{definition['name']}"
    assert (await client.post("/v1/queries", json=definition)).status_code == 201
    before = (await client.get(path)).json()
    statement = before["sql"].replace("CREATE", "CREATE OR REPLACE", 1) + ";"
    (done,) = await run(client, statement)
    assert done["message"] == f"query {definition['name']} is as it was: the statement says nothing new"
    after = (await client.get(path)).json()
    assert done["definition"] == after["definition"]
    kept = ("definition", "generation", "sql")
    assert [after[each] for each in kept] == [before[each] for each in kept]
    assert after["statement"] == statement.removesuffix(";")
    events = [each["kind"] for each in (await client.get(f"{path}/events")).json()["items"]]
    assert "query_replaced" not in events


async def test_lists_say_what_a_result_is_after_an_edit_in_json(client: httpx.AsyncClient) -> None:
    await run(client, ORDERS + HOURLY)
    definition = (await client.get("/v1/queries/hourly")).json()["definition"]
    sessions = {"type": "session", "gap": "5m", "grace": "10m", "retention": "7d"}
    edited = await client.put("/v1/queries/hourly", json={**definition, "window": sessions}, params={"state": "discard"})
    assert edited.status_code == 200, edited.text
    (hourly,) = await rows(client, "SHOW TABLES")
    assert hourly[5] == "session"


async def test_a_topic_is_called_by_its_name_whoever_registered_it(client: httpx.AsyncClient) -> None:
    cluster = mock_cluster()
    first, second = cluster.topic(), cluster.topic()
    where = f"BOOTSTRAP = '{cluster.bootstrap}', VALUE_FORMAT = 'JSON'"
    await run(client, f"CREATE STREAM by_sql (n INT) WITH (KAFKA_TOPIC = '{first}', {where});")
    connector = {"type": "kafka", "bootstrap": cluster.bootstrap, "topic": first, "value": {"format": "json"}}
    made = await client.put("/v1/streams/by_json", json={"columns": {"n": "int"}, "connector": connector})
    assert made.status_code == 201, made.text
    assert [(row[0], row[1]) for row in await rows(client, "SHOW TOPICS")] == [(first, "BY_JSON, BY_SQL")]
    moved = await client.put("/v1/streams/by_sql", json={"columns": {"n": "int"}, "connector": {**connector, "topic": second}})
    assert moved.status_code == 200, moved.text
    assert sorted((row[0], row[1]) for row in await rows(client, "SHOW TOPICS")) == sorted(
        [(first, "BY_JSON"), (second, "BY_SQL")]
    )

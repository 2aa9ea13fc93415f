"""Sources that others fill (``read_only``, CREATE SOURCE …): every way of writing into them is refused, by one code."""

from __future__ import annotations

from typing import Any

import httpx

from tests.api.conftest import RECORD, STREAM, TABLE, Problem

READ_ONLY = {**STREAM, "read_only": True}
SHARED = {**STREAM, "connector": {"type": "log", "partitions": 2, "feed": "shared"}}


async def put(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.put(f"/v1/{path}", json=body)
    assert response.status_code in (200, 201), response.text
    return response.json()  # type: ignore[no-any-return]


async def run(client: httpx.AsyncClient, sql: str) -> httpx.Response:
    return await client.post("/v1/statements", json={"sql": sql})


async def test_records_are_not_appended_to_what_is_read_only(client: httpx.AsyncClient, problem: Problem) -> None:
    made = await put(client, "streams/departures", READ_ONLY)
    assert (made["read_only"], made["definition"]["read_only"]) == (True, True)
    body = problem(await client.post("/v1/streams/departures/records", json=[RECORD]), 409, "read_only")
    assert '"read_only": false' in body["detail"]
    await put(client, "tables/weather", {**TABLE, "read_only": True})
    put_row = {"origin": "JFK", "temp": 1.0, "observed_at": "2013-01-01T11:00:00Z"}
    problem(await client.post("/v1/tables/weather/records", json=[put_row]), 409, "read_only")


async def test_a_source_of_sql_is_read_only_and_says_so(client: httpx.AsyncClient, problem: Problem) -> None:
    create = "CREATE SOURCE TABLE t (id STRING PRIMARY KEY, n INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');"
    assert (await run(client, create)).status_code == 200
    found = (await client.get("/v1/tables/t")).json()
    assert (found["read_only"], found["definition"]["read_only"], found["definition"]["materialize"]) == (True, True, True)
    problem(await client.post("/v1/tables/t/records", json=[{"ID": "a", "N": 1}]), 409, "read_only")
    refused = await run(client, "INSERT INTO t (id, n) VALUES ('a', 1);")
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "read_only")


async def test_what_json_says_is_read_only_is_so_for_statements(client: httpx.AsyncClient) -> None:
    await put(client, "streams/departures", READ_ONLY)
    await put(client, "streams/web", STREAM)
    for sql in (
        "INSERT INTO departures (`origin`) VALUES ('JFK');",
        "INSERT INTO departures SELECT * FROM web;",
        "DROP STREAM departures DELETE TOPIC;",
    ):
        refused = await run(client, sql)
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "read_only"), sql


async def test_no_query_appends_to_what_is_read_only(client: httpx.AsyncClient, problem: Problem) -> None:
    await put(client, "streams/departures", READ_ONLY)
    await put(client, "streams/web", STREAM)
    writer = {"name": "w", "from": {"stream": "web"}, "into": {"stream": "w_out", "append_to": "departures"}}
    body = problem(await client.post("/v1/queries", json=writer), 422, "read_only", "/into/append_to")
    assert "make it writable" in body["detail"]


async def test_a_stream_that_queries_write_does_not_become_read_only(client: httpx.AsyncClient, problem: Problem) -> None:
    for name in ("departures", "web"):
        await put(client, f"streams/{name}", STREAM)
    writer = {"name": "w", "from": {"stream": "web"}, "into": {"stream": "w_out", "append_to": "departures"}}
    assert (await client.post("/v1/queries", json=writer)).status_code == 201
    problem(await client.put("/v1/streams/departures", json=READ_ONLY), 409, "relation_in_use")


async def test_it_becomes_writable_and_read_only_again_with_its_records(client: httpx.AsyncClient, problem: Problem) -> None:
    assert (await put(client, "streams/departures", STREAM))["read_only"] is False
    assert (await client.post("/v1/streams/departures/records", json=[RECORD])).status_code == 200
    await put(client, "streams/departures", READ_ONLY)
    problem(await client.post("/v1/streams/departures/records", json=[RECORD]), 409, "read_only")
    await put(client, "streams/departures", STREAM)
    assert (await client.post("/v1/streams/departures/records", json=[RECORD])).status_code == 200


async def test_another_relation_of_its_feed_fills_it(client: httpx.AsyncClient) -> None:
    await put(client, "streams/departures", {**SHARED, "read_only": True})
    await put(client, "streams/everything", SHARED)
    assert (await client.post("/v1/streams/everything/records", json=[RECORD])).status_code == 200
    pages = [(await client.get(f"/v1/streams/departures/records?partition={number}")).json() for number in (0, 1)]
    assert sum(len(page["records"]) for page in pages) == 1

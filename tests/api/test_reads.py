"""Pull reads, on rows written as the sink writes them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.api.conftest import WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("results")
PATH = "/v1/tables/delays/rows"
HOURS = [f"2013-01-01T{hour:02}:00:00Z" for hour in range(6)]


@pytest.fixture
async def results(client: httpx.AsyncClient, dsn: str, sources: None) -> None:
    """Two airports, four hours each, as of one commit; the query does not run."""
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    with psycopg.connect(dsn, autocommit=True) as connection:
        for origin in ("EWR", "JFK"):
            for hour in range(4):
                connection.execute(
                    "INSERT INTO views.delays VALUES (%s, %s, %s, %s, %s, 0)",
                    (origin, HOURS[hour], HOURS[hour + 1], hour + 1, hour + 0.5),
                )
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "SELECT id, checkpoint_id, 1, 3, '2025-01-01T00:00:00Z', %s, 1357041600000, %s FROM slackwater.query",
            (
                Jsonb({"log:departures": {"0": 8}}),
                Jsonb({"clocks": {"window": 3}, "buffered": {"window": {"0": 2, "1": 1}}}),
            ),
        )


def run(dsn: str, state: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.query_status SET state = %s, lease_expires_at = now() + interval '1 minute'", (state,)
        )


async def rows(client: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    response = await client.get(PATH, params=params)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["rows"]
    return found


async def test_rows_come_with_what_they_include(client: httpx.AsyncClient) -> None:
    body = (await client.get(PATH, params={"limit": 1})).json()
    assert body["rows"] == [
        {"origin": "EWR", "window_start": HOURS[0], "window_end": HOURS[1], "flights": 1, "mean_delay": 0.5, "$state": "final"}
    ]
    assert body["position"] == {"log:departures": {"0": 8}}
    assert (body["stream_time_ms"], body["committed_at"], body["stale"]) == (1357041600000, "2025-01-01T00:00:00Z", True)


@pytest.mark.parametrize("state", ["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"])
async def test_rows_are_answered_in_every_state_and_are_stale_in_all_but_running(
    client: httpx.AsyncClient, dsn: str, state: str
) -> None:
    run(dsn, state)
    body = (await client.get(PATH)).json()
    assert (len(body["rows"]), body["stale"]) == (8, state != "running")


async def test_rows_of_a_query_whose_driver_is_gone_are_stale(client: httpx.AsyncClient, dsn: str) -> None:
    run(dsn, "running")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE slackwater.query_status SET lease_expires_at = now() - interval '1 second'")
    assert (await client.get(PATH)).json()["stale"] is True


async def test_pages_cover_everything_once(client: httpx.AsyncClient) -> None:
    found, cursor = [], None
    while True:
        params = {"limit": 3} | ({} if cursor is None else {"cursor": cursor})
        page = (await client.get(PATH, params=params)).json()
        found += page["rows"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [(row["origin"], row["window_start"]) for row in found] == [(o, HOURS[h]) for o in ("EWR", "JFK") for h in range(4)]


async def test_rows_are_filtered_by_key_and_window(client: httpx.AsyncClient) -> None:
    found = await rows(client, **{"key.origin": "JFK", "window_from": HOURS[1], "window_to": HOURS[3]})
    assert [(row["origin"], row["window_start"]) for row in found] == [("JFK", HOURS[1]), ("JFK", HOURS[2])]
    assert (
        await rows(client, **{"key.origin": "JFK", "window_from": 1357002000000, "window_to": "2013-01-01T04:00:00+01:00"})
        == found
    )
    assert [row["flights"] for row in await rows(client, **{"key.window_start": HOURS[2]})] == [3, 3]
    assert await rows(client, **{"key.origin": "LGA"}) == []


async def test_one_key_is_read_by_its_path(client: httpx.AsyncClient, problem: Problem) -> None:
    body = (await client.get(f"{PATH}/JFK", params={"window_from": HOURS[3]})).json()
    assert [row["flights"] for row in body["rows"]] == [4]
    problem(await client.get(f"{PATH}/LGA"), 404, "row_not_found")


async def test_rows_come_as_lines_on_request(client: httpx.AsyncClient) -> None:
    response = await client.get(PATH, params={"limit": 2}, headers={"accept": "application/x-ndjson"})
    assert [json.loads(line)["flights"] for line in response.text.splitlines()] == [1, 2]
    assert json.loads(response.headers["slackwater-position"]) == {"log:departures": {"0": 8}}
    assert response.headers["slackwater-stale"] == "true"
    follow = await client.get(PATH, params={"cursor": response.headers["slackwater-next"]})
    assert len(follow.json()["rows"]) == 6


async def test_bigints_are_strings_on_request(client: httpx.AsyncClient) -> None:
    assert [row["flights"] for row in await rows(client, bigints="string", limit=2)] == ["1", "2"]


async def test_a_table_without_a_commit_is_empty_and_stale(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json={**WINDOWS, "name": "fresh", "into": {"table": "fresh"}})
    body = (await client.get("/v1/tables/fresh/rows")).json()
    assert body == {
        "table": "fresh",
        "position": {},
        "stream_time_ms": None,
        "committed_at": None,
        "stale": True,
        "as_of_ms": None,
        "history_starts_at_ms": None,
        "truncated": False,
        "next": None,
        "rows": [],
    }


async def test_a_source_has_no_rows_and_says_what_to_do(client: httpx.AsyncClient, problem: Problem) -> None:
    body = problem(await client.get("/v1/tables/weather/rows"), 409, "table_not_materialised")
    assert '"materialize": true' in body["detail"]
    problem(await client.get("/v1/tables/nowhere/rows"), 404, "relation_not_found")
    problem(await client.get("/v1/tables/departures/rows"), 404, "relation_not_found")


@pytest.mark.parametrize(
    ("params", "code", "pointer"),
    [
        ({"limt": 5}, "unknown_parameter", "?limt"),
        ({"order_by": "x"}, "unknown_parameter", "?order_by"),
        ({"key.flights": 5}, "unknown_parameter", "?key.flights"),
        ({"key.window_start": "noon"}, "bad_parameter", "?key.window_start"),
        ({"key.origin": "a\0b"}, "bad_parameter", "?key.origin"),
        ({"window_from": "yesterday"}, "bad_parameter", "?window_from"),
        ({"window_from": "2013-01-01T00:00:00"}, "bad_parameter", "?window_from"),
        ({"window_to": -1}, "bad_parameter", "?window_to"),
        ({"limit": 0}, "bad_parameter", "?limit"),
        ({"limit": "many"}, "bad_parameter", "?limit"),
        ({"bigints": "maybe"}, "bad_parameter", "?bigints"),
        ({"as_of": "noon"}, "bad_parameter", "?as_of"),
        ({"as_of_ms": -1}, "bad_parameter", "?as_of_ms"),
        ({"as_of": 5, "as_of_ms": 5}, "conflicting_parameters", "?as_of_ms"),
        ({"as_of": 5, "from": 5}, "conflicting_parameters", "?as_of"),
        ({"from": "noon"}, "bad_parameter", "?from"),
        ({"from": 7, "to": 6}, "bad_parameter", "?to"),
        ({"order": "up"}, "bad_parameter", "?order"),
        ({"state": "ajar"}, "bad_parameter", "?state"),
        ({"timeout": 5}, "bad_parameter", "?timeout"),
        ({"timeout": 61, "min_position": "{}"}, "bad_parameter", "?timeout"),
        ({"min_position": "9000"}, "bad_parameter", "?min_position"),
        ({"min_position": '{"log:departures": {"0": -1}}'}, "bad_parameter", "?min_position"),
        ({"min_position": '{"log:departures": {"zero": 1}}'}, "bad_parameter", "?min_position"),
        ({"max_staleness": "5"}, "bad_parameter", "?max_staleness"),
        ({"where.origin.like": "J%"}, "unknown_parameter", "?where.origin.like"),
        ({"where.airport": "JFK"}, "unknown_parameter", "?where.airport"),
        ({"where.flights": "many"}, "bad_parameter", "?where.flights"),
        ({"where.flights.null": "perhaps"}, "bad_parameter", "?where.flights.null"),
        ({"where.flights.in": "1,two"}, "bad_parameter", "?where.flights.in"),
        ({"where.flights.in": "[1"}, "bad_parameter", "?where.flights.in"),
        ({"where.flights": ["1", "2"]}, "bad_parameter", "?where.flights"),
        ({"cursor": "!"}, "bad_cursor", "?cursor"),
        ({"cursor": "WyJKRksiLCJub29uIiwibm9vbiJd"}, "bad_cursor", "?cursor"),
        ({"cursor": "WyJkZWxheXMiXQ"}, "bad_cursor", "?cursor"),
    ],
)
async def test_bad_parameters_are_refused_by_name(
    client: httpx.AsyncClient, problem: Problem, params: dict[str, Any], code: str, pointer: str
) -> None:
    problem(await client.get(PATH, params=params), 400, code, pointer)


@pytest.mark.parametrize(
    ("path", "params", "pointers"),
    [
        (PATH, {"limt": 5, "order": "up", "limit": "many"}, ["?limt", "?order", "?limit"]),
        (PATH, {"limt": 5, "limit": ["1", "2"], "ordr": "asc"}, ["?limit", "?limt", "?ordr"]),
        (PATH, {"window_from": "x", "window_to": "y", "max_staleness": "5"}, ["?max_staleness", "?window_from", "?window_to"]),
        (PATH, {"key.flights": 5, "where.flights": "many"}, ["?key.flights", "?where.flights"]),
        ("/v1/queries", {"limt": 5, "limit": "many"}, ["?limt", "?limit"]),
    ],
)
async def test_all_wrong_parameters_are_reported_at_once(
    client: httpx.AsyncClient, path: str, params: dict[str, Any], pointers: list[str]
) -> None:
    answer = await client.get(path, params=params)
    assert (answer.status_code, [each["pointer"] for each in answer.json()["errors"]]) == (400, pointers)


@pytest.mark.parametrize("other", [{"order": "desc"}, {"where.flights.ge": 1}, {"state": "final"}, {"key.origin": "JFK"}])
async def test_a_cursor_goes_on_in_the_same_answer_only(
    client: httpx.AsyncClient, problem: Problem, other: dict[str, Any]
) -> None:
    cursor = (await client.get(PATH, params={"limit": 2})).json()["next"]
    assert (await client.get(PATH, params={"limit": 3, "cursor": cursor})).status_code == 200
    problem(await client.get(PATH, params={"limit": 2, "cursor": cursor} | other), 400, "bad_cursor", "?cursor")


async def test_a_key_that_looks_like_sql_is_only_a_key(client: httpx.AsyncClient) -> None:
    assert await rows(client, **{"key.origin": "JFK' OR '1'='1"}) == []
    assert await rows(client, **{"key.origin": '"; DROP TABLE views.delays; --'}) == []
    assert len(await rows(client)) == 8


async def test_the_status_shows_progress_clocks_and_buffers(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/queries/delays/status")).json()
    assert (body["batch_id"], body["stream_time_ms"]) == (3, 1357041600000)
    assert body["clocks"] == {"window": 3}
    assert body["buffered"] == {"window": 3}
    [feed] = body["progress"]
    assert (feed["feed"], feed["relations"]) == ("log:departures", ["departures"])
    told = {"partition": 0, "next_offset": 8, "end_offset": 0, "lag": 0, "begins_at": None, "open_records": 0, "open_since": None}
    assert feed["is_discovered"]
    assert feed["partitions"][0] == told


async def test_every_type_of_column_and_key_can_be_read(client: httpx.AsyncClient, dsn: str) -> None:
    columns = {
        "k": "bigint",
        "a": "boolean",
        "c": "double",
        "m": "decimal(12,2)",
        "e": "bytes",
        "f": "date",
        "g": "time",
        "h": "timestamp",
    }
    await client.put("/v1/streams/typed", json={"key": ["k"], "columns": columns})
    query = {"name": "typed_rows", "from": {"stream": "typed"}, "into": {"table": "typed_rows"}}
    response = await client.post("/v1/queries", json=query)
    assert response.status_code == 201, response.text
    values = (2**60, True, 0.1, "12.50", b"\0\xff", "2013-01-31", "13:45:00", "2013-01-01T12:00:00.25Z", 0)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"INSERT INTO views.typed_rows VALUES ({', '.join(['%s'] * 9)})", values)
    response = await client.get(f"/v1/tables/typed_rows/rows/{2**60}")
    assert '"k":1152921504606846976' in response.text
    assert '"m":12.50' in response.text
    [row] = response.json()["rows"]
    shown = {"a": True, "c": 0.1, "e": "AP8=", "f": "2013-01-31", "g": "13:45:00", "h": "2013-01-01T12:00:00.25Z"}
    assert row | shown == row


async def test_odd_column_names_are_only_names(client: httpx.AsyncClient, dsn: str) -> None:
    columns = {"key of': %s é": "string", "a%(b)s:c": "int", "window_start": "string"}
    definition = {"key": list(columns)[:1], "columns": columns, "connector": {"partitions": 1}}
    assert (await client.put("/v1/streams/odd", json=definition)).status_code == 201
    record = dict(zip(columns, ("x", 1, "noon"), strict=True))
    assert (await client.post("/v1/streams/odd/records", json=record)).status_code == 200
    [shown] = (await client.get("/v1/streams/odd/records")).json()["records"]
    assert shown | record == shown
    query = {"name": "odd_rows", "from": {"stream": "odd"}, "into": {"table": "odd_rows"}}
    response = await client.post("/v1/queries", json=query)
    assert response.status_code == 201, response.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO views.odd_rows VALUES ('x', 1, 'noon', 0)")
    assert (await client.get("/v1/tables/odd_rows/rows/x")).json()["rows"] == [record]
    assert (await client.get("/v1/tables/odd_rows/rows", params={f"key.{next(iter(columns))}": "x"})).json()["rows"] == [record]


async def test_only_windowed_tables_have_window_bounds(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/plain", json={"key": ["window_start"], "columns": {"window_start": "string"}})
    query = {"name": "plain_rows", "from": {"stream": "plain"}, "into": {"table": "plain_rows"}}
    assert (await client.post("/v1/queries", json=query)).status_code == 201
    problem(await client.get("/v1/tables/plain_rows/rows", params={"window_from": 0}), 400, "not_windowed")


async def test_a_composite_key_is_not_read_by_its_path(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/pairs", json={"key": ["a", "b"], "columns": {"a": "int", "b": "int"}})
    query = {"name": "pair_rows", "from": {"stream": "pairs"}, "into": {"table": "pair_rows"}}
    assert (await client.post("/v1/queries", json=query)).status_code == 201
    body = problem(await client.get("/v1/tables/pair_rows/rows/1"), 400, "composite_key")
    assert "key.a=…&key.b=…" in body["detail"]

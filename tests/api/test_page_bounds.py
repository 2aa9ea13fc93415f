"""Pages that end before their limit because their items are large, and what cannot end early."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pytest
from fastapi import FastAPI

from app.http.answers.negotiation import ARROW_TYPE
from app.main.main import create_app
from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from tests.api.conftest import Problem

PAGE_BYTES, ANSWER_BYTES = 4_096, 20_000
TEXT = "x" * 1_500
"""Three of them make a page full: the third is begun before the page is."""


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[FastAPI]:
    limits = LimitSettings(page_bytes=PAGE_BYTES, answer_bytes=ANSWER_BYTES, read_timeout_ms=120_000)
    built = create_app(settings.model_copy(update={"limits": limits}))
    async with built.router.lifespan_context(built):
        yield built


@pytest.fixture
async def noted(client: httpx.AsyncClient, dsn: str) -> str:
    """A table of ten rows with 1,500 characters each."""
    columns = {"id": "string", "note": "string"}
    await made(client, "/v1/tables/notes", {"key": ["id"], "columns": columns})
    query = {"name": "noted", "from": {"table": "notes"}, "into": {"table": "noted"}}
    response = await client.post("/v1/queries", json=query)
    assert response.status_code == 201, response.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO views.noted SELECT n::text, repeat('x', 1500), 0 FROM generate_series(0, 9) AS n")
    return "/v1/tables/noted"


async def made(client: httpx.AsyncClient, path: str, definition: Mapping[str, Any]) -> None:
    response = await client.put(path, json=definition)
    assert response.status_code == 201, response.text


async def pages(client: httpx.AsyncClient, path: str, member: str, **params: Any) -> list[list[Any]]:
    """Return every page's items, following `next`."""
    found, cursor = [], None
    while True:
        given = params if cursor is None else {**params, "cursor": cursor}
        response = await client.get(path, params=given)
        assert response.status_code == 200, response.text
        body = response.json()
        found.append(body[member])
        cursor = body["next"]
        if cursor is None:
            return found


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_of_large_rows_ends_early_and_next_brings_the_rest(
    client: httpx.AsyncClient, noted: str, order: str
) -> None:
    found = await pages(client, f"{noted}/rows", "rows", limit=10_000, order=order)
    assert [len(rows) for rows in found] == [3, 3, 3, 1]
    ids = [row["id"] for rows in found for row in rows]
    assert ids == sorted(map(str, range(10)), reverse=order == "desc")


async def test_a_limit_below_the_bound_is_the_page(client: httpx.AsyncClient, noted: str) -> None:
    assert [len(rows) for rows in await pages(client, f"{noted}/rows", "rows", limit=2)] == [2] * 5
    assert [len(rows) for rows in await pages(client, f"{noted}/rows", "rows", limit=3)] == [3, 3, 3, 1]


async def test_pages_as_arrow_and_as_lines_end_early_too(client: httpx.AsyncClient, noted: str) -> None:
    response = await client.get(f"{noted}/rows", headers={"Accept": ARROW_TYPE})
    table = pa.ipc.open_stream(response.content).read_all()
    assert table["id"].to_pylist() == ["0", "1", "2"]
    lines = await client.get(
        f"{noted}/rows", params={"cursor": response.headers["Slackwater-Next"]}, headers={"Accept": "application/x-ndjson"}
    )
    assert [json.loads(line)["id"] for line in lines.text.splitlines()] == ["3", "4", "5"]


async def test_narrow_rows_are_large_by_the_names_of_their_columns(client: httpx.AsyncClient, dsn: str) -> None:
    columns = {"id": "int", **{f"a_rather_long_name_{place}": "boolean" for place in range(50)}}
    await made(client, "/v1/tables/flags", {"key": ["id"], "columns": columns})
    query = {"name": "flagged", "from": {"table": "flags"}, "into": {"table": "flagged"}}
    assert (await client.post("/v1/queries", json=query)).status_code == 201
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO views.flagged (id, _ts) SELECT n, 0 FROM generate_series(0, 9) AS n")
    found = await pages(client, "/v1/tables/flagged/rows", "rows")
    assert sum(map(len, found)) == 10
    assert len(found[0]) < 5


@pytest.mark.parametrize("form", ["application/json", ARROW_TYPE])
async def test_a_row_that_is_more_than_an_answer_is_refused_by_name_of_the_bound(
    client: httpx.AsyncClient, dsn: str, noted: str, problem: Problem, form: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE views.noted SET note = repeat('x', 30000) WHERE id = '3'")
    headers = {"Accept": form}
    first = await client.get(f"{noted}/rows", headers=headers)
    body = problem(await client.get(f"{noted}/rows", params={"key.id": "3"}, headers=headers), 422, "answer_too_large", "?limit")
    assert "20,000 bytes (SLACKWATER_LIMITS__ANSWER_BYTES)" in body["detail"]
    assert first.status_code == 200, "what comes before it is answered"
    problem(await client.get(f"{noted}/rows/3", headers=headers), 422, "answer_too_large")


async def test_keys_whose_rows_are_too_much_together_are_refused_and_fewer_are_answered(
    client: httpx.AsyncClient, dsn: str, noted: str, problem: Problem
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE views.noted SET note = repeat('x', 5000)")
    keys = [str(number) for number in range(10)]
    problem(await client.post(f"{noted}/rows:lookup", json={"keys": keys}), 422, "answer_too_large", "/keys")
    few = await client.post(f"{noted}/rows:lookup", json={"keys": keys[:3]})
    assert [found["found"] for found in few.json()["results"]] == [True] * 3


async def test_a_versioned_table_and_its_history_end_early(client: httpx.AsyncClient, dsn: str) -> None:
    columns = {"id": "string", "note": "string", "at": "timestamp"}
    definition = {"key": ["id"], "columns": columns, "event_time": "at", "versioned": {"history_retention": "2d"}}
    await made(client, "/v1/tables/notes", definition)
    query = {"name": "kept", "from": {"table": "notes"}, "into": {"table": "kept", "versioned": {"history_retention": "2d"}}}
    response = await client.post("/v1/queries", json=query)
    assert response.status_code == 201, response.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO history.kept (id, note, at, _ts, _is_deleted) SELECT (n % 5)::text, repeat('x', 1500), now(), n, false "
            "FROM generate_series(0, 9) AS n"
        )
    assert [len(rows) for rows in await pages(client, "/v1/tables/kept/rows", "rows", as_of_ms=100)] == [3, 2]
    versions = await pages(client, "/v1/tables/kept/rows", "rows", **{"from": "0"})
    assert [len(rows) for rows in versions] == [3, 3, 3, 1]
    assert sorted(row["$valid_from_ms"] for rows in versions for row in rows) == list(range(10))


@pytest.fixture
async def said(client: httpx.AsyncClient) -> str:
    """A stream of ten records of 1,500 characters in one batch."""
    await made(client, "/v1/streams/said", {"columns": {"n": "int", "text": "string"}, "connector": {"partitions": 1}})
    records = "\n".join(json.dumps({"n": n, "text": TEXT}) for n in range(10))
    response = await client.post("/v1/streams/said/records", content=records, headers={"Content-Type": "application/x-ndjson"})
    assert response.status_code == 200, response.text
    return "/v1/streams/said"


async def test_records_end_early_and_next_offset_brings_the_rest(client: httpx.AsyncClient, said: str) -> None:
    found, offset = [], 0
    while offset < 10:
        body = (await client.get(f"{said}/records", params={"offset": offset, "limit": 1_000})).json()
        assert 1 <= len(body["records"]) <= 3
        found += [record["n"] for record in body["records"]]
        offset = body["next_offset"]
    assert found == list(range(10))


async def test_changes_end_early_and_next_brings_the_rest(client: httpx.AsyncClient, said: str) -> None:
    found: list[int] = []
    cursor, is_caught_up = None, False
    while not is_caught_up:
        body = (await client.get(f"{said}/changes", params={"limit": 1_000} | ({"cursor": cursor} if cursor else {}))).json()
        assert 1 <= len(body["changes"]) <= 3
        found += [change["row"]["n"] for change in body["changes"]]
        cursor, is_caught_up = body["next"], body["caught_up"]
    assert found == list(range(10))


async def test_a_snapshot_of_large_rows_ends_early(client: httpx.AsyncClient, noted: str) -> None:
    body = (await client.get(f"{noted}/changes", params={"from": "snapshot", "limit": 1_000})).json()
    sizes, found = [], []
    while body["phase"] == "snapshot":
        sizes.append(len(body["changes"]))
        found += [change["row"]["id"] for change in body["changes"]]
        body = (await client.get(f"{noted}/changes", params={"cursor": body["next"], "limit": 1_000})).json()
    found += [change["row"]["id"] for change in body["changes"]]
    assert found == [str(number) for number in range(10)]
    assert max(sizes) == 3


async def test_audit_late_records_rejects_and_events_end_early(client: httpx.AsyncClient, dsn: str, noted: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE slackwater.audit")
        connection.execute(
            "INSERT INTO slackwater.audit (actor_kind, actor, action, outcome, after) "
            "SELECT 'anonymous', 'x', 'create', 'done', json_build_object('text', repeat('x', 1500)) FROM generate_series(0, 9)"
        )
        connection.execute(
            "INSERT INTO log.late_record (query_id, input, reason, event_time_ms, record, at) "
            "SELECT id, 'notes', 'late_dropped', n, repeat('x', 1500), now() FROM slackwater.query, generate_series(0, 9) AS n "
            "WHERE name = 'noted'"
        )
        connection.execute(
            'INSERT INTO log.reject (owner, feed, partition, "offset", reason, detail, excerpt, at) '
            "SELECT 'notes', 'notes', 0, n, 'wrong_type', 'x', repeat('x', 1500), now() FROM generate_series(0, 9) AS n"
        )
        connection.execute("DELETE FROM slackwater.query_event")
        connection.execute(
            "INSERT INTO slackwater.query_event (query_id, kind, actor, detail) "
            "SELECT id, 'edited', 'x', json_build_object('text', repeat('x', 1500)) FROM slackwater.query, generate_series(0, 9) "
            "WHERE name = 'noted'"
        )
    for path in ("/v1/audit", "/v1/queries/noted/late-records", "/v1/tables/notes/rejects", "/v1/queries/noted/events"):
        found = await pages(client, path, "items", limit=1_000)
        assert [len(items) for items in found] == [3, 3, 3, 1], path
        ids = [item["id"] for items in found for item in items]
        assert ids in (sorted(ids), sorted(ids, reverse=True)), path
        assert len(set(ids)) == 10, path


async def test_lists_of_large_definitions_end_early(client: httpx.AsyncClient) -> None:
    columns = {f"a_rather_long_name_{place}": "boolean" for place in range(50)}
    for number in range(6):
        await made(client, f"/v1/streams/wide_{number}", {"columns": columns})
        query = {"name": f"copy_{number}", "from": {"stream": f"wide_{number}"}, "into": {"stream": f"copied_{number}"}}
        query["select"] = {name: name for name in columns}
        assert (await client.post("/v1/queries", json=query)).status_code == 201
    for path in ("/v1/streams", "/v1/queries"):
        found = await pages(client, path, "items")
        names = [item["name"] for items in found for item in items]
        assert names == sorted(set(names)), path
        assert (len(names) >= 6, len(found) > 1) == (True, True), path

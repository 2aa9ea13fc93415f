"""Queries that append to a stream (``into.append_to``): what is told of it, and what goes no sooner than what."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from app.catalog.stored.catalog import load_catalog, load_catalog_for
from engine.definition.queries import QueryDefinition
from tests.api.conftest import RECORD, STREAM, Problem

READER: dict[str, Any] = {"name": "reader", "from": {"stream": "departures"}, "into": {"stream": "reader_out"}}


def writer(name: str, source: str = "web", **parts: Any) -> dict[str, Any]:
    return {"name": name, "from": {"stream": source}, "into": {"stream": f"{name}_out", "append_to": "departures"}, **parts}


@pytest.fixture(autouse=True)
async def _streams(client: httpx.AsyncClient) -> None:
    for name in ("departures", "web", "shop"):
        assert (await client.put(f"/v1/streams/{name}", json=STREAM)).status_code == 201


async def post(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    response = await client.post("/v1/queries", json=body)
    assert response.status_code == 201, response.text


def nonces(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute("SELECT name, restart_nonce FROM slackwater.query").fetchall())


async def test_a_stream_tells_its_parts_and_a_part_its_stream(client: httpx.AsyncClient) -> None:
    await post(client, writer("b"))
    await post(client, writer("a", "shop"))
    whole = (await client.get("/v1/streams/departures")).json()
    assert (whole["parts"], whole["append_to"], whole["read_by"]) == (["b_out", "a_out"], None, [])
    part = (await client.get("/v1/streams/a_out")).json()
    assert (part["parts"], part["append_to"], part["produced_by"]) == ([], "departures", "a")
    assert (await client.get("/v1/streams/a_out/records")).json()["records"] == []
    assert (await client.post("/v1/streams/departures/records", json=RECORD)).status_code == 200, "it still takes records"


async def test_a_reader_reads_the_parts_that_there_are_and_is_launched_anew_for_another(
    client: httpx.AsyncClient, dsn: str
) -> None:
    await post(client, writer("a"))
    await post(client, READER)
    assert nonces(dsn) == {"a": 0, "reader": 0}
    await post(client, writer("b", "shop"))
    assert nonces(dsn) == {"a": 0, "reader": 1, "b": 0}
    for name in ("departures", "a_out", "b_out"):
        assert (await client.get(f"/v1/streams/{name}")).json()["read_by"] == ["reader"]
    with psycopg.connect(dsn) as connection:
        assert [feed.name for feed in load_catalog(connection)["departures"].parts] == ["log:a_out", "log:b_out"]
    edges = (await client.get("/v1/streams/reader_out/lineage")).json()["reads"]
    assert {edge["relation"] for edge in edges if edge["query"] == "reader"} == {"departures", "a_out", "b_out"}


async def test_a_definition_is_planned_against_what_it_leads_to_and_the_rest_is_found_when_it_is_asked_for(
    client: httpx.AsyncClient, dsn: str
) -> None:
    await post(client, writer("a"))
    await post(client, writer("b", "shop"))
    await post(client, READER)
    assert (await client.put("/v1/streams/elsewhere", json=STREAM)).status_code == 201
    definition = QueryDefinition.model_validate({**READER, "name": "next", "from": {"stream": "reader_out"}})
    with psycopg.connect(dsn, autocommit=True) as connection:
        near, whole = load_catalog_for(connection, definition), load_catalog(connection)
        assert "elsewhere" in load_catalog_for(connection, definition)
        assert dict(load_catalog_for(connection, definition)) == dict(whole)
        assert load_catalog_for(connection, definition).get("nowhere") is None
    leads_to = ("reader_out", "departures", "a_out", "b_out", "web", "shop")
    assert {name: near[name] for name in leads_to} == {name: whole[name] for name in leads_to}
    with pytest.raises(psycopg.OperationalError):  # of a connection that is closed: nothing more was asked so far
        near["elsewhere"]


async def test_what_others_need_does_not_go(client: httpx.AsyncClient, problem: Problem) -> None:
    await post(client, writer("a"))
    body = problem(await client.delete("/v1/streams/departures"), 409, "relation_in_use")
    assert [fault["code"] for fault in body["errors"]] == ["written_by"]
    await post(client, READER)
    problem(await client.delete("/v1/queries/a"), 409, "relation_in_use")
    edited = writer("a", where="flight > 1")
    problem(await client.put("/v1/queries/a", params={"state": "discard"}, json=edited), 409, "relation_in_use")
    assert (await client.delete("/v1/queries/a", params={"state": "keep"})).status_code in (202, 204)
    kept = (await client.get("/v1/streams/departures")).json()["parts"]
    assert kept == ["a_out"], "its records stay records of the stream"
    problem(await client.delete("/v1/streams/a_out"), 409, "relation_in_use")


async def test_what_deleted_queries_left_of_a_stream_goes_with_it(client: httpx.AsyncClient, problem: Problem, dsn: str) -> None:
    await post(client, writer("a"))
    assert (await client.delete("/v1/queries/a", params={"state": "keep"})).status_code in (202, 204)
    assert (await client.delete("/v1/streams/departures")).status_code == 204
    problem(await client.get("/v1/streams/a_out"), 404, "relation_not_found")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM log.feed WHERE name = 'a_out'").fetchone() == (0,)


async def test_a_result_into_which_queries_write_stays(client: httpx.AsyncClient, problem: Problem) -> None:
    await post(client, {**READER, "name": "made", "into": {"stream": "made_out"}})
    await post(client, {"name": "b", "from": {"stream": "shop"}, "into": {"stream": "b_out", "append_to": "made_out"}})
    problem(await client.delete("/v1/queries/made"), 409, "relation_in_use")
    assert (await client.delete("/v1/queries/b")).status_code in (202, 204)
    assert (await client.delete("/v1/queries/made")).status_code in (202, 204)


async def test_a_stream_keeps_the_columns_that_are_written_into_it(client: httpx.AsyncClient, problem: Problem) -> None:
    await post(client, writer("a"))
    fewer = {**STREAM, "columns": {name: kind for name, kind in STREAM["columns"].items() if name != "delay"}}
    body = problem(await client.put("/v1/streams/departures", json=fewer), 409, "relation_in_use")
    assert [fault["code"] for fault in body["errors"]] == ["written_by"]


async def test_a_query_does_not_append_to_what_it_reads(client: httpx.AsyncClient, problem: Problem) -> None:
    await post(client, READER)
    problem(await client.post("/v1/queries", json=writer("a", "reader_out")), 422, "query_cycle", "/into")


async def test_what_is_left_of_a_stream_stays_while_a_query_reads_it(client: httpx.AsyncClient, problem: Problem) -> None:
    await post(client, writer("a"))
    assert (await client.delete("/v1/queries/a", params={"state": "keep"})).status_code in (202, 204)
    await post(client, {"name": "reader", "from": {"stream": "a_out"}, "into": {"stream": "reader_out"}})
    body = problem(await client.delete("/v1/streams/departures"), 409, "relation_in_use")
    assert [fault["code"] for fault in body["errors"]] == ["read_by"]


async def test_columns_stay_that_records_have_which_deleted_queries_left(client: httpx.AsyncClient, problem: Problem) -> None:
    await post(client, writer("a"))
    assert (await client.delete("/v1/queries/a", params={"state": "keep"})).status_code in (202, 204)
    other = {**STREAM, "columns": {**STREAM["columns"], "delay": "string"}}
    problem(await client.put("/v1/streams/departures", json=other), 409, "relation_not_empty", "/columns/delay")
    more = {**STREAM, "columns": {**STREAM["columns"], "remark": "string"}}
    assert (await client.put("/v1/streams/departures", json=more)).status_code == 200

"""What a relation is made of, and what is made of it: the graph, positions, and lag in event time."""

from __future__ import annotations

from typing import Any

import httpx
import polars as pl
import pytest
from fastapi import FastAPI

from app.status.lineage.sql import load_graph
from tests.api.committed import commit, emitted
from tests.api.conftest import RECORD, STREAM, TABLE, Problem

AT = 1_357_037_040_000
"""Event time of ``RECORD``."""

M = 60_000
ONE_PARTITION = {**STREAM, "connector": {"type": "log", "partitions": 1}}
FLIGHTS = {
    "name": "flights",
    "from": {"stream": "departures"},
    "where": "delay >= 0",
    "select": {"origin": "origin", "flight": "flight", "delay": "delay"},
    "into": {"stream": "flights"},
}
HOURLY = {
    "name": "hourly",
    "from": {"stream": "flights"},
    "group_by": ["origin"],
    "window": {"type": "tumbling", "size": "1h", "grace": "30m"},
    "aggregate": {"flights": "count(*)"},
    "into": {"table": "hourly"},
}


def record(minutes: int) -> dict[str, Any]:
    return {**RECORD, "departed_at": AT + minutes * M}


@pytest.fixture
async def chain(client: httpx.AsyncClient) -> None:
    """departures → flights → hourly, with three records from 10:44 to 10:54."""
    assert (await client.put("/v1/streams/departures", json=ONE_PARTITION)).status_code == 201
    for definition in (FLIGHTS, HOURLY):
        response = await client.post("/v1/queries", json=definition)
        assert response.status_code == 201, response.text
    appended = await client.post("/v1/streams/departures/records", json=[record(0), record(10), record(5)])
    assert appended.json()["appended"] == 3, appended.text


async def lineage(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    response = await client.get(f"/v1/{path}/lineage")
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def edges(body: dict[str, Any]) -> list[tuple[str, str]]:
    reads = [(read["relation"], read["query"]) for read in body["reads"]]
    return reads + [(write["query"], write["relation"]) for write in body["writes"]]


def emit(ts: int) -> pl.DataFrame:
    """One row of the stream `flights`."""
    row = {"origin": "JFK", "flight": 725, "delay": 2.5, "_ts": ts, "_op": 0}
    schema = {"origin": pl.String(), "flight": pl.Int64(), "delay": pl.Float64(), "_ts": pl.Int64(), "_op": pl.Int8()}
    return pl.DataFrame([row], schema=schema)


@pytest.mark.parametrize("path", ["streams/departures", "streams/flights", "tables/hourly"])
async def test_a_chain_is_the_same_from_each_of_its_relations(client: httpx.AsyncClient, chain: None, path: str) -> None:
    body = await lineage(client, path)
    assert (body["name"], body["kind"], body["truncated"]) == (path.split("/")[1], path.split("/")[0][:-1], False)
    assert [(one["name"], one["kind"], one["origin"], one["feed"]) for one in body["relations"]] == [
        ("departures", "stream", "source", "log:departures"),
        ("flights", "stream", "derived", "log:flights"),
        ("hourly", "table", "derived", "log:changes:hourly"),
    ]
    assert [(one["name"], one["state"], one["tasks"], one["internal"]) for one in body["queries"]] == [
        ("flights", "stopped", 2, False),
        ("hourly", "stopped", 2, False),
    ]
    assert edges(body) == [("departures", "flights"), ("flights", "hourly"), ("flights", "flights"), ("hourly", "hourly")]


async def test_before_the_first_launch_the_records_are_behind_and_the_lag_is_not_known(
    client: httpx.AsyncClient, chain: None
) -> None:
    body = await lineage(client, "streams/departures")
    read, further = body["reads"]
    assert (read["lag"], read["lag_s"]) == (3, None)
    assert read["partitions"] == [
        {"partition": 0, "next_offset": None, "end_offset": 3, "lag": 3, "read_to_ms": None, "lag_s": None}
    ]
    assert (further["lag"], further["lag_s"]) == (0, 0), "nothing is there to be read"
    assert [(one["end_offsets"], one["newest_ms"]) for one in body["relations"]] == [
        ({"0": 3}, AT + 10 * M),
        ({"0": 0}, None),
        ({"0": 0}, None),
    ]
    assert [(write["end_offset"], write["reached_ms"]) for write in body["writes"]] == [(0, None), (0, None)]


async def test_a_commit_moves_position_lag_and_what_is_reached(client: httpx.AsyncClient, chain: None, dsn: str) -> None:
    feed = "log:departures"
    commit(dsn, "flights", [(0, 0, emitted(changes=emit(AT)))], {feed: {0: 1}}, heads={feed: {0: AT}})
    body = await lineage(client, "tables/hourly")
    read, further = body["reads"]
    assert (read["lag"], read["lag_s"]) == (2, 600.0)
    assert read["partitions"] == [{"partition": 0, "next_offset": 1, "end_offset": 3, "lag": 2, "read_to_ms": AT, "lag_s": 600.0}]
    assert (further["lag"], further["lag_s"]) == (1, None)
    assert body["writes"][0] == {"query": "flights", "relation": "flights", "end_offset": 1, "reached_ms": AT}
    assert body["relations"][1]["newest_ms"] == AT


async def test_lag_is_nothing_once_everything_is_read(client: httpx.AsyncClient, chain: None, dsn: str) -> None:
    feed = "log:departures"
    commit(dsn, "flights", [(0, 0, emitted(changes=emit(AT)))], {feed: {0: 3}}, heads={feed: {0: AT + 10 * M}})
    commit(dsn, "hourly", [], {"log:flights": {0: 1}}, heads={"log:flights": {0: AT + 10 * M}})
    body = await lineage(client, "streams/departures")
    assert [(read["lag"], read["lag_s"]) for read in body["reads"]] == [(0, 0), (0, 0)]


async def test_of_a_diamond_every_node_and_edge_comes_once(client: httpx.AsyncClient, chain: None) -> None:
    late = {**FLIGHTS, "name": "late", "where": "delay > 30", "into": {"stream": "late"}}
    both = {
        "name": "both",
        "from": {"stream": "flights"},
        "joins": [{"stream": "late", "on": "flights.origin = late.origin", "within": {"before": "1h", "after": "1h"}}],
        "select": {"origin": "flights.origin", "flight": "flights.flight", "other": "late.flight"},
        "into": {"stream": "both"},
    }
    for definition in (late, both):
        response = await client.post("/v1/queries", json=definition)
        assert response.status_code == 201, response.text
    body = await lineage(client, "streams/both")
    assert [one["name"] for one in body["relations"]] == ["departures", "flights", "late", "both"]
    assert sorted(edges(body)) == [
        ("both", "both"),
        ("departures", "flights"),
        ("departures", "late"),
        ("flights", "both"),
        ("flights", "flights"),
        ("late", "both"),
        ("late", "late"),
    ]
    of_late = await lineage(client, "streams/late")
    assert [one["name"] for one in of_late["relations"]] == ["departures", "late", "both"], "no other branches"


async def test_a_relation_without_readers_stands_alone(client: httpx.AsyncClient, sources: None) -> None:
    body = await lineage(client, "tables/weather")
    assert [(one["name"], one["newest_ms"]) for one in body["relations"]] == [("weather", None)]
    assert (body["queries"], body["reads"], body["writes"]) == ([], [], [])


async def test_a_materialised_source_is_read_by_its_internal_query(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/tables/weather", json={**TABLE, "materialize": True})).status_code == 201
    body = await lineage(client, "tables/weather")
    assert [(one["name"], one["internal"]) for one in body["queries"]] == [("materialize:weather", True)]
    assert edges(body) == [("weather", "materialize:weather")]


async def test_a_result_that_was_kept_has_no_upstream(client: httpx.AsyncClient, chain: None) -> None:
    assert (await client.delete("/v1/queries/flights", params={"state": "keep"})).status_code == 204
    body = await lineage(client, "tables/hourly")
    assert [one["name"] for one in body["relations"]] == ["flights", "hourly"]


@pytest.mark.parametrize("path", ["streams/nowhere", "tables/nowhere", "tables/departures"])
async def test_an_unknown_relation_is_not_found(client: httpx.AsyncClient, sources: None, problem: Problem, path: str) -> None:
    problem(await client.get(f"/v1/{path}/lineage"), 404, "relation_not_found")


@pytest.mark.parametrize(("most", "relations"), [(1, {"departures", "flights"}), (3, {"departures", "flights", "hourly"})])
async def test_of_a_graph_that_is_too_large_the_nearest_is_told(
    app: FastAPI, client: httpx.AsyncClient, chain: None, most: int, relations: set[str]
) -> None:
    async with app.state.services.database.reads.connect() as connection:
        graph = await load_graph(connection, ["departures"], most=most)
    assert (set(graph.relations), graph.is_whole) == (relations, most == 3)

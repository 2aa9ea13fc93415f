"""Following tables and streams in pages: snapshots, cursors that lead nowhere. `test_change_streams` follows them by events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest

from app.upkeep.retention import RetentionLimits, trim_once
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import RECORD, Problem

TOTALS = {
    "name": "totals",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "aggregate": {"flights": "count(*)"},
    "into": {"table": "totals"},
}
FILTERED = {
    "name": "warm",
    "from": {"table": "weather"},
    "where": "temp > 20",
    "into": {"table": "warm", "versioned": {"history_retention": "2d"}},
}
JsonPage = dict[str, Any]


def row(origin: str, flights: int | None, ts: int = 5) -> tuple[str, dict[str, Any], int]:
    return ("delete" if flights is None else "upsert", {"origin": origin, "flights": flights}, ts)


def folded(changes: list[JsonPage]) -> dict[str, int]:
    table: dict[str, int] = {}
    for change in changes:
        if change["op"] == "delete":
            table.pop(change["key"]["origin"], None)
        else:
            table[change["key"]["origin"]] = change["row"]["flights"]
    return table


@pytest.fixture
async def totals(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.put("/v1/queries/totals", json=TOTALS)).status_code == 201


async def page(client: httpx.AsyncClient, path: str, **params: str | int | float) -> JsonPage:
    response = await client.get(path, params=params)
    assert response.status_code == 200, response.text
    found: JsonPage = response.json()
    return found


async def test_pages_go_on_where_the_last_one_ended(client: httpx.AsyncClient, totals: None, dsn: str) -> None:
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([row("JFK", 1), row("EWR", 1), row("JFK", 2)])
        first = await page(client, "/v1/tables/totals/changes", limit=2)
        assert [(c["op"], c["offset"], c["key"], c["row"], c["event_time_ms"]) for c in first["changes"]] == [
            ("upsert", 0, {"origin": "JFK"}, {"origin": "JFK", "flights": 1}, 5),
            ("upsert", 1, {"origin": "EWR"}, {"origin": "EWR", "flights": 1}, 5),
        ]
        assert first["caught_up"] is False
        second = await page(client, "/v1/tables/totals/changes", cursor=first["next"])
        assert [change["offset"] for change in second["changes"]] == [2]
        assert second["caught_up"] is True
        assert (await page(client, "/v1/tables/totals/changes", cursor=second["next"]))["changes"] == []
        writer.commit([row("EWR", None)])
    third = await page(client, "/v1/tables/totals/changes", cursor=second["next"])
    assert [(change["op"], change["row"]) for change in third["changes"]] == [("delete", None)]


async def test_latest_begins_with_what_comes(client: httpx.AsyncClient, totals: None, dsn: str) -> None:
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([row("JFK", 1)])
        begin = await page(client, "/v1/tables/totals/changes", **{"from": "latest"})
        assert begin["changes"] == []
        writer.commit([row("JFK", 2)])
    assert folded((await page(client, "/v1/tables/totals/changes", cursor=begin["next"]))["changes"]) == {"JFK": 2}


async def test_a_snapshot_read_in_pages_amid_commits_folds_to_the_table(
    client: httpx.AsyncClient, totals: None, dsn: str
) -> None:
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([row(origin, 1) for origin in "ACEGI"])
        found = await page(client, "/v1/tables/totals/changes", limit=2, **{"from": "snapshot"})
        assert [(c["kind"], c["key"]["origin"]) for c in found["changes"]] == [("snapshot", "A"), ("snapshot", "C")]
        # Behind the snapshot's key (G): will be read as a row. Before it (A, B, C): must come as a change.
        writer.commit([row("A", 2), row("G", 2), row("B", 9), row("C", None)])
        seen = found["changes"]
        rest = await page(client, "/v1/tables/totals/changes", limit=100, cursor=found["next"])
        assert [(c["kind"], c["key"]["origin"]) for c in rest["changes"]] == [
            ("change", "A"), ("change", "B"), ("change", "C"), ("snapshot", "E"), ("snapshot", "G"), ("snapshot", "I"),
        ]  # fmt: skip
        assert rest["phase"] == "changes"
        writer.commit([row("I", 7)])
        seen += rest["changes"] + (await page(client, "/v1/tables/totals/changes", cursor=rest["next"]))["changes"]
    assert folded(seen) == {"A": 2, "B": 9, "E": 1, "G": 2, "I": 7}


async def test_a_versioned_table_gives_its_tombstones_with_the_snapshot(
    client: httpx.AsyncClient, sources: None, dsn: str
) -> None:
    assert (await client.put("/v1/queries/warm", json=FILTERED)).status_code == 201
    weather = {"origin": "JFK", "temp": 21.5, "observed_at": None}
    with ChangeWriter(dsn, "warm") as writer:
        writer.commit([("upsert", weather, 10), ("delete", weather, 20), ("upsert", {**weather, "origin": "EWR"}, 15)])
        found = await page(client, "/v1/tables/warm/changes", **{"from": "snapshot"})
        assert [(c["op"], c["key"]["origin"], c["event_time_ms"]) for c in found["changes"]] == [
            ("upsert", "EWR", 15),
            ("delete", "JFK", 20),
        ]
        writer.commit([("upsert", weather, 12)])  # out of order: a version of the past, not the row of now
        late = await page(client, "/v1/tables/warm/changes", cursor=found["next"])
        assert [(c["op"], c["event_time_ms"]) for c in late["changes"]] == [("upsert", 12)]
    assert (await client.get("/v1/tables/warm/rows")).json()["rows"][0]["origin"] == "EWR"


async def test_a_long_poll_answers_when_something_is_committed(client: httpx.AsyncClient, totals: None, dsn: str) -> None:
    begin = await page(client, "/v1/tables/totals/changes", **{"from": "latest"})
    with ChangeWriter(dsn, "totals") as writer:
        waiting = asyncio.create_task(page(client, "/v1/tables/totals/changes", cursor=begin["next"], wait=20))
        await asyncio.sleep(0)
        await asyncio.to_thread(writer.commit, [row("JFK", 1)])
        assert folded((await waiting)["changes"]) == {"JFK": 1}
    assert (await page(client, "/v1/tables/totals/changes", wait=0.01, **{"from": "latest"}))["changes"] == []


async def test_a_stream_is_followed_by_partition_and_never_has_a_snapshot(
    client: httpx.AsyncClient, sources: None, problem: Problem
) -> None:
    records = [{**RECORD, "origin": origin, "flight": number} for number, origin in enumerate(["JFK", "EWR", "LGA", "BOS"])]
    assert (await client.post("/v1/streams/departures/records", json=records)).status_code == 200
    seen: list[JsonPage] = []
    found = await page(client, "/v1/streams/departures/changes", limit=1)
    for _ in range(4):
        seen += found["changes"]
        found = await page(client, "/v1/streams/departures/changes", limit=1, cursor=found["next"])
    assert sorted(change["row"]["flight"] for change in seen) == [0, 1, 2, 3]
    assert {change["op"] for change in seen} == {"append"}
    assert found["changes"] == []
    problem(await client.get("/v1/streams/departures/changes?from=snapshot"), 400, "bad_parameter", "?from")


async def test_what_cannot_be_followed_is_refused(client: httpx.AsyncClient, totals: None, problem: Problem) -> None:
    problem(await client.get("/v1/tables/weather/changes"), 409, "table_not_materialised")
    problem(await client.get("/v1/tables/nothing/changes"), 404, "relation_not_found")
    problem(await client.get("/v1/streams/totals/changes"), 404, "relation_not_found")
    problem(await client.get("/v1/tables/totals/changes?form=earliest"), 400, "unknown_parameter", "?form")
    problem(await client.get("/v1/tables/totals/changes", headers={"accept": "image/png"}), 406, "not_acceptable")
    problem(await client.get("/v1/tables/totals/changes?cursor=nonsense"), 400, "bad_cursor", "?cursor")
    problem(await client.get("/v1/tables/totals/changes?wait=61"), 400, "bad_parameter", "?wait")
    stream = {"accept": "text/event-stream"}
    problem(await client.get("/v1/tables/totals/changes?limit=5", headers=stream), 400, "bad_parameter", "?limit")
    problem(await client.get("/v1/queries/totals/events?limit=5", headers=stream), 400, "bad_parameter", "?limit")
    problem(await client.get("/v1/tables/totals/changes", headers={**stream, "last-event-id": "x"}), 400, "bad_cursor")
    begin = await page(client, "/v1/tables/totals/changes")
    problem(await client.get(f"/v1/tables/totals/changes?from=latest&cursor={begin['next']}"), 400, "bad_parameter", "?from")
    for forged in (f"{begin['next']}_0", f"{begin['next'].split('.')[0]}.99999"):
        body = problem(await client.get("/v1/tables/totals/changes", params={"cursor": forged}), 410, "cursor_expired")
        assert "from=snapshot" in body["detail"]


async def test_cursors_of_a_discarded_or_trimmed_result_are_gone(
    client: httpx.AsyncClient, totals: None, dsn: str, problem: Problem
) -> None:
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([row("JFK", 1), row("EWR", 1)])
    begin = await page(client, "/v1/tables/totals/changes", limit=1)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.feed SET start_sequence = 2 WHERE name = 'changes:totals'")
    body = problem(await client.get("/v1/tables/totals/changes", params={"cursor": begin["next"]}), 410, "cursor_expired")
    assert "retention" in body["detail"]
    after = await page(client, "/v1/tables/totals/changes")
    anew = {**TOTALS, "aggregate": {"flights": "count(*)", "worst": "max(delay)"}}
    assert (await client.put("/v1/queries/totals?state=discard", json=anew)).status_code == 200
    problem(await client.get("/v1/tables/totals/changes", params={"cursor": after["next"]}), 410, "cursor_expired")


async def test_retention_trims_the_change_log_but_never_what_a_reader_has_still_to_read(
    client: httpx.AsyncClient, totals: None, dsn: str, problem: Problem
) -> None:
    def age(connection: psycopg.Connection[Any]) -> None:
        connection.execute("UPDATE log.batch SET appended_at = now() - interval '2 days'")

    reader = {"name": "many", "from": {"table": "totals"}, "where": "flights > 1", "into": {"table": "many"}}
    with ChangeWriter(dsn, "totals") as writer, psycopg.connect(dsn, autocommit=True) as connection:
        writer.commit([row("JFK", 1), row("EWR", 1)])
        age(connection)
        assert (await client.put("/v1/queries/many", json=reader)).status_code == 201
        assert trim_once(dsn, RetentionLimits(86_400_000)) == 0
        with ChangeWriter(dsn, "many") as following:
            following.commit([])
            position = '{"log:changes:totals": {"0": 1}}'
            connection.execute("UPDATE log.commit SET position = %s WHERE query_id = %s", (position, following.query_id))
        assert trim_once(dsn, RetentionLimits(86_400_000)) == 0  # offset 1 is in the batch
        assert (await client.delete("/v1/queries/many")).status_code in (202, 204)
        begin = await page(client, "/v1/tables/totals/changes", limit=1)
        writer.commit([row("JFK", 2)])
        assert trim_once(dsn, RetentionLimits(86_400_000)) == 1
    problem(await client.get("/v1/tables/totals/changes", params={"cursor": begin["next"]}), 410, "cursor_expired")
    assert [change["offset"] for change in (await page(client, "/v1/tables/totals/changes"))["changes"]] == [2]
    problem(
        await client.put("/v1/queries/less", json={**reader, "name": "less", "into": {"table": "less"}}), 409, "changes_expired"
    )


@pytest.mark.parametrize("path", ["/v1/tables/totals/changes", "/v1/streams/departures/changes"])
async def test_a_cursor_from_before_the_database_was_put_back_counts_no_more_though_the_log_is_longer_by_now(
    client: httpx.AsyncClient, totals: None, dsn: str, put_back: Callable[[], None], problem: Problem, path: str
) -> None:
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([row("JFK", 1), row("EWR", 1)])
        cursor = (await page(client, path, **{"from": "earliest"}))["next"]
        writer.commit([row("JFK", 2), row("EWR", 3), row("LGA", 1)])
    put_back()
    assert "restored" in problem(await client.get(path, params={"cursor": cursor}), 410, "cursor_expired")["detail"]
    fresh = (await page(client, path, **{"from": "earliest"}))["next"]
    assert fresh != cursor
    await page(client, path, cursor=fresh)

"""P1: what several tasks made is followed and read as one sequence, and cursors outlive a change of the number of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import psycopg
import pytest

from app.following.cursors import ChangeCursor
from app.upkeep.retention import RetentionLimits, trim_once
from tests.api.change_writer import Change, ChangeWriter
from tests.api.conftest import JOIN, RECORD, Problem
from tests.api.test_changes import TOTALS, JsonPage, folded, page, row

CHANGES = "/v1/tables/totals/changes"
RECORDS = "/v1/streams/joined/records"
ORIGINS = ["JFK", "EWR", "LGA", "BOS", "SFO", "ORD", "LAX", "DCA"]


@pytest.fixture
async def totals(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.put("/v1/queries/totals", json=TOTALS)).status_code == 201


@pytest.fixture
async def joined(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.put("/v1/queries/joined", json=JOIN)).status_code == 201


def commit(dsn: str, query: str, tasks: int, changes: Sequence[Change]) -> None:
    with ChangeWriter(dsn, query, tasks=tasks) as writer:
        writer.commit(changes)


def some(begin: int, count: int) -> list[Change]:
    return [row(ORIGINS[number % len(ORIGINS)], number) for number in range(begin, begin + count)]


async def rest(client: httpx.AsyncClient, path: str, cursor: str, limit: int = 3) -> list[JsonPage]:
    """Follow to the end, page by page."""
    found: list[JsonPage] = []
    while True:
        answer = await page(client, path, cursor=cursor, limit=limit)
        found += answer["changes"]
        cursor = answer["next"]
        assert len(ChangeCursor.decode(cursor).offsets) == 1
        if answer["caught_up"]:
            return found


async def test_changes_of_several_tasks_come_in_one_order_each_with_its_own_place(
    client: httpx.AsyncClient, totals: None, dsn: str
) -> None:
    commit(dsn, "totals", 4, some(0, 40))
    changes = (await page(client, CHANGES, limit=100))["changes"]
    assert [change["sequence"] for change in changes] == list(range(40))
    assert [change["row"]["flights"] for change in changes] == list(range(40)), "by what caused them, not by task"
    by_partition: dict[int, list[int]] = {}
    for change in changes:
        by_partition.setdefault(change["partition"], []).append(change["offset"])
    assert len(by_partition) > 1
    assert all(offsets == list(range(len(offsets))) for offsets in by_partition.values())


async def test_a_cursor_goes_on_across_changes_of_the_number_of_tasks(client: httpx.AsyncClient, totals: None, dsn: str) -> None:
    commit(dsn, "totals", 1, some(0, 10))
    begin = await page(client, CHANGES, limit=7)
    for batch, tasks in enumerate((1, 5, 2, 1, 8), 1):
        commit(dsn, "totals", tasks, some(batch * 10, 10))
    found = begin["changes"] + await rest(client, CHANGES, begin["next"])
    assert [change["sequence"] for change in found] == list(range(60))
    assert [change["row"]["flights"] for change in found] == list(range(60))


async def test_a_snapshot_goes_on_across_a_change_of_the_number_of_tasks(
    client: httpx.AsyncClient, totals: None, dsn: str
) -> None:
    commit(dsn, "totals", 1, some(0, 8))
    begin = await page(client, CHANGES, limit=3, **{"from": "snapshot"})
    commit(dsn, "totals", 4, [*some(8, 5), row("BOS", None)])
    middle = await page(client, CHANGES, limit=4, cursor=begin["next"])
    commit(dsn, "totals", 2, some(13, 6))
    found = begin["changes"] + middle["changes"] + await rest(client, CHANGES, middle["next"])
    with psycopg.connect(dsn) as connection:
        assert folded(found) == dict(connection.execute("SELECT origin, flights FROM views.totals").fetchall())


async def test_retention_of_changes_counts_over_all_partitions(
    client: httpx.AsyncClient, totals: None, dsn: str, problem: Problem
) -> None:
    commit(dsn, "totals", 3, some(0, 10))
    inside, behind = [await page(client, CHANGES, limit=limit) for limit in (9, 10)]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.batch SET appended_at = now() - interval '2 days'")
    commit(dsn, "totals", 2, some(10, 10))
    assert trim_once(dsn, RetentionLimits(86_400_000)) > 0
    problem(await client.get(CHANGES, params={"cursor": inside["next"]}), 410, "cursor_expired")
    for found in (await rest(client, CHANGES, behind["next"]), (await page(client, CHANGES, limit=100))["changes"]):
        assert [change["sequence"] for change in found] == list(range(10, 20))


def flights(begin: int, count: int) -> list[Change]:
    return [
        ("upsert", {"origin": ORIGINS[number % len(ORIGINS)], "flight": number, "temp": None}, 5)
        for number in range(begin, begin + count)
    ]


async def test_a_stream_of_several_tasks_is_read_as_a_whole_or_by_partition(
    client: httpx.AsyncClient, joined: None, dsn: str, problem: Problem
) -> None:
    for begin, tasks in ((0, 3), (20, 2), (40, 3)):
        commit(dsn, "joined", tasks, flights(begin, 20))
    whole: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"next_offset": 0, "end_offset": 60}
    while answer["next_offset"] < answer["end_offset"]:
        answer = (await client.get(RECORDS, params={"offset": answer["next_offset"], "limit": 7})).json()
        whole += answer["records"]
    assert [record["flight"] for record in whole] == [record["$offset"] for record in whole] == list(range(60))
    parts: list[int] = []
    while (response := await client.get(RECORDS, params={"partition": len(parts), "limit": 100})).status_code == 200:
        found = response.json()["records"]
        assert [record["$offset"] for record in found] == list(range(len(found)))
        assert [record["flight"] for record in found] == sorted(record["flight"] for record in found)
        parts.append(len(found))
    problem(response, 404, "partition_not_found")
    assert sum(parts) == 60
    assert sum(rows > 0 for rows in parts) > 1


async def test_changes_of_a_stream_of_several_tasks_have_the_places_by_which_its_records_are_read(
    client: httpx.AsyncClient, joined: None, dsn: str
) -> None:
    commit(dsn, "joined", 3, flights(0, 12))
    changes = (await page(client, "/v1/streams/joined/changes", limit=100))["changes"]
    assert [change["sequence"] for change in changes] == list(range(12))
    for change in changes:
        place = {"partition": change["partition"], "offset": change["offset"], "limit": 1}
        [record] = (await client.get(RECORDS, params=place)).json()["records"]
        assert record["flight"] == change["row"]["flight"]


async def test_changes_of_a_source_have_no_number(client: httpx.AsyncClient, sources: None) -> None:
    await client.post("/v1/streams/departures/records", json=RECORD)
    [change] = (await page(client, "/v1/streams/departures/changes"))["changes"]
    assert "sequence" not in change

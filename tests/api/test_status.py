"""Status with waiting, runs, late records. The test plays the driver."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from psycopg.types.json import Jsonb

from engine.postgres.links import LinkedAsyncConnection
from tests.api.conftest import JOIN, Problem

pytestmark = pytest.mark.usefixtures("query")
PATH = "/v1/queries/joined/status"


@pytest.fixture
async def query(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.post("/v1/queries", json=JOIN)).status_code == 201


async def facts(dsn: str, state: str, generation: int = 1, error: str = "null") -> None:
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "UPDATE slackwater.query_status SET state = %s, observed_generation = %s, error = %s::jsonb, "
            "lease_expires_at = now() + interval '1 minute'",
            (state, generation, error),
        )


async def committed(dsn: str, age: str, execution: dict[str, Any]) -> None:
    """Play a driver that committed so long ago, and recorded this of its slot."""
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, detail) "
            "SELECT id, checkpoint_id, 1, 1, now() - %s::interval, '{}', %s::jsonb FROM slackwater.query",
            (age, json.dumps({"execution": execution})),
        )


async def wait_for(client: httpx.AsyncClient, state: str, timeout: float = 60) -> asyncio.Task[httpx.Response]:
    """Begin to wait; returns once the request is under way."""
    task = asyncio.create_task(client.get(PATH, params={"wait_for": state, "timeout": timeout}))
    await asyncio.sleep(0)
    return task


async def test_a_new_query_is_stopped_and_stale(client: httpx.AsyncClient) -> None:
    body = (await client.get(PATH)).json()
    assert (body["state"], body["desired_state"], body["conditions"]) == ("stopped", "running", ["unplaced", "stale"])
    assert body["reason"]["code"] == "no_driver"
    assert "slackwater serve" in body["reason"]["detail"]
    assert (body["generation"], body["observed_generation"], body["epoch"], body["batch_id"]) == (1, 0, 0, None)
    assert [feed["feed"] for feed in body["progress"]] == ["log:departures", "log:weather"]


async def test_waiting_ends_when_the_state_is_reached(client: httpx.AsyncClient, dsn: str) -> None:
    task = await wait_for(client, "running")
    await facts(dsn, "starting")
    await facts(dsn, "running")
    body = (await asyncio.wait_for(task, 15)).json()
    assert (body["state"], body["conditions"]) == ("running", [])


async def test_waiting_ends_when_the_query_fails(client: httpx.AsyncClient, dsn: str) -> None:
    task = await wait_for(client, "running")
    await facts(dsn, "failed", error='{"code": "data_invalid", "detail": "a bad record"}')
    body = (await asyncio.wait_for(task, 15)).json()
    assert (body["state"], body["error"]["code"]) == ("failed", "data_invalid")


async def test_waiting_ends_with_the_timeout_and_tells_the_present_state(client: httpx.AsyncClient) -> None:
    response = await client.get(PATH, params={"wait_for": "running", "timeout": 0.05})
    assert (response.status_code, response.json()["state"]) == (200, "stopped")


async def test_a_state_of_an_earlier_generation_is_not_waited_for(client: httpx.AsyncClient, dsn: str) -> None:
    await facts(dsn, "running", generation=1)
    await client.put("/v1/queries/joined", json={**JOIN, "late_records": {"max_rows": 5}})
    assert (await client.get(PATH, params={"wait_for": "running", "timeout": 0.05})).json()["observed_generation"] == 1
    task = await wait_for(client, "running")
    await facts(dsn, "running", generation=2)
    assert (await asyncio.wait_for(task, 15)).json()["observed_generation"] == 2


async def test_a_state_from_before_a_restart_is_not_waited_for(client: httpx.AsyncClient, dsn: str) -> None:
    await facts(dsn, "running")
    assert (await client.post("/v1/queries/joined/restart")).status_code == 202
    at_once = await client.get(PATH, params={"wait_for": "running", "timeout": 0})
    assert (at_once.status_code, at_once.json()["state"]) == (200, "running"), "the timeout answers with what is"
    task = await wait_for(client, "running")
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("UPDATE slackwater.query_status SET observed_restart_nonce = 1, epoch = 2")
    assert (await asyncio.wait_for(task, 15)).json()["epoch"] == 2


async def test_a_stop_is_waited_for_whatever_the_definition_that_ran(client: httpx.AsyncClient, dsn: str) -> None:
    await facts(dsn, "running")
    await client.put("/v1/queries/joined", json={**JOIN, "late_records": {"max_rows": 5}})
    await client.put("/v1/queries/joined/desired-state", json={"state": "stopped"})
    task = await wait_for(client, "stopped")
    await facts(dsn, "stopped")
    assert (await asyncio.wait_for(task, 15)).json()["observed_generation"] == 1


async def test_waiting_ends_when_the_query_is_deleted(client: httpx.AsyncClient, problem: Problem) -> None:
    task = await wait_for(client, "running")
    assert (await client.delete("/v1/queries/joined")).status_code == 204
    problem(await asyncio.wait_for(task, 15), 404, "query_not_found")


async def test_an_expired_lease_shows_as_unreachable(client: httpx.AsyncClient, dsn: str) -> None:
    await facts(dsn, "running")
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("UPDATE slackwater.query_status SET lease_expires_at = now() - interval '1 second'")
    assert (await client.get(PATH)).json()["conditions"] == ["unreachable", "stale"]


@pytest.mark.parametrize("params", [{"wait_for": "happy"}, {"timeout": 61}, {"timeout": -1}, {"timeout": "nan"}])
async def test_bad_waits_are_refused(client: httpx.AsyncClient, problem: Problem, params: dict[str, str]) -> None:
    problem(await client.get(PATH, params=params), 400, "bad_parameter")


@pytest.mark.parametrize("part", ["", "/status", "/events", "/runs", "/late-records"])
async def test_an_unknown_query_is_not_found(client: httpx.AsyncClient, problem: Problem, part: str) -> None:
    problem(await client.get(f"/v1/queries/nowhere{part}"), 404, "query_not_found")


async def test_runs_come_newest_first(client: httpx.AsyncClient, dsn: str) -> None:
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO slackwater.query_run (query_id, epoch, generation, end_reason) "
            "SELECT id, epoch, 1, 'stopped' FROM slackwater.query, generate_series(1, 3) AS epoch"
        )
    page = (await client.get("/v1/queries/joined/runs", params={"limit": 2})).json()
    rest = (await client.get("/v1/queries/joined/runs", params={"cursor": page["next"]})).json()
    assert [run["epoch"] for run in (*page["items"], *rest["items"])] == [3, 2, 1]


async def test_late_records_come_newest_first_with_all_counters(client: httpx.AsyncClient, dsn: str) -> None:
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            'INSERT INTO log.late_record (query_id, input, reason, event_time_ms, stream_time_ms, "offset", record, at) '
            "SELECT id, 'w', reason, 5, 9, 1, record, now() FROM slackwater.query, "
            "(VALUES ('late_dropped', '{\"origin\": \"JFK\"}'), ('late_diverted', '{\"origin\": \"cut')) AS late (reason, record)"
        )
        await connection.execute("INSERT INTO log.counter SELECT id, 'w', 'late_joined', 7 FROM slackwater.query")
    body = (await client.get("/v1/queries/joined/late-records")).json()
    assert [item["record"] for item in body["items"]] == ['{"origin": "cut', {"origin": "JFK"}]
    assert body["counters"] == [{"input": "w", "reason": "late_joined", "count": 7}]
    filtered = (await client.get("/v1/queries/joined/late-records", params={"reason": "late_dropped"})).json()
    assert ([item["reason"] for item in filtered["items"]], filtered["counters"]) == (["late_dropped"], [])


@pytest.mark.parametrize(
    ("shares", "age", "expected"),
    [
        ({"reading": 0.1, "tasks": 0.7, "commit": 0.1, "other_queries": 0.05, "busiest_task": 0.9}, "1 second", "tasks"),
        ({"reading": 0.1, "tasks": 0.1, "commit": 0.2, "other_queries": 0.5}, "1 second", "other_queries"),
        ({"reading": 0.1, "tasks": 0.1, "commit": 0.1, "other_queries": 0.1}, "1 second", "input"),
        ({"reading": 0.1, "tasks": 0.7, "commit": 0.1, "other_queries": 0.05, "busiest_task": 0.9}, "1 minute", "input"),
    ],
)
async def test_the_status_says_what_limits_a_query_and_what_decided_its_slot(
    client: httpx.AsyncClient, dsn: str, shares: dict[str, float], age: str, expected: str
) -> None:
    execution = {
        "is_shared": False, "is_trial": True, "is_waiting": False, "moves": 2, "cpu_share": 0.4, "largest_batch": 16_000, "max_rows": 78,
        "deferred": 3,
        "shares": shares,
    }  # fmt: skip
    await facts(dsn, "running")
    await committed(dsn, age, execution)
    body = (await client.get(PATH)).json()
    assert body["limited_by"] == expected
    is_recent = age == "1 second"
    assert body["shares"] == {
        part: shares[part] if is_recent else 0 for part in ("reading", "tasks", "commit", "other_queries")
    } | {"busiest_task": shares.get("busiest_task") if is_recent else None}
    told = {
        "mode": "isolated",
        "is_waiting": False,
        "moves": 2,
        "cpu_share": 0.4,
        "largest_batch": 16_000,
        "max_rows": 78,
        "deferred": 3,
    }
    assert body["execution"] == told


@pytest.mark.parametrize(("age", "is_waiting"), [("1 second", True), ("1 minute", False)])
async def test_who_has_nothing_more_to_do_waits_for_no_slot(
    client: httpx.AsyncClient, dsn: str, age: str, *, is_waiting: bool
) -> None:
    execution = {"is_shared": True, "is_waiting": True, "moves": 0, "cpu_share": 0.4, "largest_batch": 16_000, "max_rows": None}
    await facts(dsn, "running")
    await committed(dsn, age, execution)
    assert (await client.get(PATH)).json()["execution"]["is_waiting"] is is_waiting


async def test_a_slow_function_is_named(client: httpx.AsyncClient, dsn: str) -> None:
    shares = {"reading": 0.0, "tasks": 0.9, "commit": 0.05, "other_queries": 0.05, "functions": {"score": 0.8, "tax": 0.01}}
    await facts(dsn, "running")
    await committed(dsn, "1 second", {"is_shared": True, "moves": 0, "shares": shares})
    body = (await client.get(PATH)).json()
    assert body["functions"] == [{"name": "score", "share": 0.8}, {"name": "tax", "share": 0.01}]
    assert (body["conditions"], body["reason"]["code"]) == (["slow_function"], "slow_function")
    assert "the Python function score for 80%" in body["reason"]["detail"]


async def test_what_does_not_run_is_limited_by_that(client: httpx.AsyncClient, dsn: str) -> None:
    assert (await client.get(PATH)).json()["limited_by"] == "not_running"
    await facts(dsn, "paused")
    assert (await client.get(PATH)).json()["limited_by"] == "paused"


async def held_back(dsn: str, records: int, age_s: int) -> None:
    """Play a topic: hold the end of the stream's feed back for an open transaction."""
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "UPDATE log.head SET open_records = %s, open_since = now() - %s * interval '1 second' "
            "WHERE partition = 0 AND feed_id = (SELECT id FROM log.feed WHERE name = 'departures')",
            (records, age_s),
        )


async def test_a_transaction_that_does_not_end_is_told_where_nothing_else_is_unread(client: httpx.AsyncClient, dsn: str) -> None:
    await facts(dsn, "running")
    await held_back(dsn, 17, 90)
    body = (await client.get(PATH)).json()
    assert body["conditions"] == ["waits_for_transaction"]
    assert body["reason"]["code"] == "waits_for_transaction"
    assert "partition 0 of log:departures" in body["reason"]["detail"]
    assert "17 offsets" in body["reason"]["detail"]
    (partition, *_), *_ = (feed["partitions"] for feed in body["progress"])
    assert (partition["open_records"], partition["open_since"] is None, partition["lag"]) == (17, False, 0)
    await facts(dsn, "paused")
    body = (await client.get(PATH)).json()
    assert (body["conditions"], body["reason"]) == (["stale"], None)


async def test_where_reading_began_is_told_of_a_partition_whose_beginning_was_removed(
    client: httpx.AsyncClient, dsn: str
) -> None:
    await facts(dsn, "running")
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, cursor) "
            "SELECT id, checkpoint_id, 1, %s FROM slackwater.query ON CONFLICT (query_id) DO UPDATE SET cursor = excluded.cursor",
            (Jsonb({"feeds": {"log:departures": {"0": 30}}, "skipped": {"log:departures": {"0": [10, 25]}}}),),
        )
    partitions = [each for feed in (await client.get(PATH)).json()["progress"] for each in feed["partitions"]]
    assert {each["begins_at"] for each in partitions} == {25, None}


async def test_transactions_under_way_are_no_trouble(client: httpx.AsyncClient, dsn: str) -> None:
    await facts(dsn, "running")
    await held_back(dsn, 17, 5)
    body = (await client.get(PATH)).json()
    assert (body["conditions"], body["reason"]) == ([], None)
    assert body["progress"][0]["partitions"][0]["open_records"] == 17


async def test_it_says_from_when_on_a_dump_of_the_database_will_do(client: httpx.AsyncClient, dsn: str) -> None:
    assert (await client.get(PATH)).json()["restorable_since"] is None
    async with await LinkedAsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO log.state_retention (query_id, since) SELECT id, '2026-03-01T08:00:00Z' FROM slackwater.query"
        )
    assert (await client.get(PATH)).json()["restorable_since"] == "2026-03-01T08:00:00Z"

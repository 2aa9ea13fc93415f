"""More at once than the service takes: refused at once, and over once the rest is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg import sql
from pydantic import SecretStr

from app.db.admission import AdmissionLimit
from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import RECORD, Problem

pytestmark = pytest.mark.usefixtures("totals")
PATH = "/v1/tables/totals/rows"
RECORDS = "/v1/streams/departures/records"
APPEND_BYTES = 40_000
"""Room for two small bodies."""

TOTALS: dict[str, Any] = {
    "name": "totals",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "aggregate": {"flights": "count(*)"},
    "into": {"table": "totals"},
}


@pytest.fixture(scope="module")
def settings(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    limits = LimitSettings(row_reads=2, scan_reads=2, page_reads=1, append_bytes=APPEND_BYTES)
    return Settings(database_url=SecretStr(dsn), data_dir=Path(tmp_path_factory.mktemp("data")), limits=limits)


@pytest.fixture
async def totals(client: httpx.AsyncClient, dsn: str, sources: None) -> None:
    assert (await client.post("/v1/queries", json=TOTALS)).status_code == 201
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([("upsert", {"origin": origin, "flights": 1}, 1_000) for origin in ("EWR", "JFK", "LGA")])


@contextmanager
def locked(dsn: str, schema: str, table: str) -> Iterator[None]:
    """Let nobody read a table."""
    with psycopg.connect(dsn) as connection:
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(schema, table)))
        yield


async def filled(gate: AdmissionLimit, amount: int) -> None:
    async with asyncio.timeout(20):
        while gate.under_way < amount:
            await asyncio.sleep(0)


async def test_reads_beyond_the_limit_are_refused_at_once_and_the_others_are_answered(
    client: httpx.AsyncClient, app: FastAPI, dsn: str, problem: Problem
) -> None:
    assert (await client.get(PATH)).status_code == 200
    with locked(dsn, "views", "totals"):
        waiting = [asyncio.create_task(client.get(path)) for path in (f"{PATH}/JFK", f"{PATH}/LGA", PATH, PATH)]
        await filled(app.state.services.gates.rows, 2)
        await filled(app.state.services.gates.scans, 2)
        for refused in (
            await client.get(f"{PATH}/EWR"),
            await client.get(PATH),
            await client.post(f"{PATH}:lookup", json={"keys": ["JFK"]}),
        ):
            assert problem(refused, 429, "too_many_requests")["retryable"]
            assert refused.headers["retry-after"] == "1"
    one, other, many, _ = await asyncio.gather(*waiting)
    assert [row["origin"] for answer in (one, other) for row in answer.json()["rows"]] == ["JFK", "LGA"]
    assert len(many.json()["rows"]) == 3
    assert (await client.get(f"{PATH}/EWR")).status_code == 200
    assert 'slackwater_requests_refused_total{limit="row_reads"} 2.0' in (await client.get("/metrics")).text


async def test_a_read_that_waits_for_a_position_keeps_nobody_out(client: httpx.AsyncClient, app: FastAPI) -> None:
    later = {"min_position": '{"log:departures":{"0":9}}', "timeout": "1"}
    waiting = [asyncio.create_task(client.get(f"{PATH}/LGA", params=later)) for _ in range(2)]
    await filled(app.state.services.gates.rows, 1)
    while app.state.services.gates.rows.under_way:
        await asyncio.sleep(0)
    assert (await client.get(f"{PATH}/JFK")).status_code == 200
    assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [504, 504]


async def test_a_read_that_waits_is_not_refused_because_others_came_meanwhile(client: httpx.AsyncClient, app: FastAPI) -> None:
    gate = app.state.services.gates.rows
    later = {"min_position": '{"log:departures":{"0":9}}', "timeout": "1"}
    waiting = asyncio.create_task(client.get(f"{PATH}/LGA", params=later))
    while not app.state.services.bell.waiters or gate.under_way:
        await asyncio.sleep(0)
    with gate.passed(2):
        assert (await client.get(f"{PATH}/JFK")).status_code == 429
        assert (await waiting).status_code == 504


async def test_a_read_that_gets_no_connection_in_time_is_answered_503(
    client: httpx.AsyncClient, app: FastAPI, dsn: str, problem: Problem
) -> None:
    pool = app.state.services.database.scans
    await pool.wait()
    pool.timeout = 0.05
    await pool.resize(1, 1)
    with locked(dsn, "views", "totals"):
        waiting = asyncio.create_task(client.get(PATH))
        await filled(app.state.services.gates.scans, 1)
        while pool.get_stats().get("pool_available", 0):
            await asyncio.sleep(0)
        problem(await client.get(PATH), 503, "database_busy")
    assert (await waiting).status_code == 200


async def test_pages_beyond_the_limit_are_refused(client: httpx.AsyncClient, app: FastAPI, dsn: str, problem: Problem) -> None:
    with locked(dsn, "slackwater", "relation"):
        waiting = asyncio.create_task(client.get(RECORDS))
        await filled(app.state.services.gates.pages, 1)
        problem(await client.get(RECORDS), 429, "too_many_requests")
    assert (await waiting).status_code == 200
    assert (await client.get(RECORDS)).status_code == 200


async def test_appends_beyond_the_bytes_that_may_wait_are_refused_and_can_be_repeated(
    client: httpx.AsyncClient, app: FastAPI, dsn: str, problem: Problem
) -> None:
    with locked(dsn, "log", "batch"):
        waiting = [asyncio.create_task(client.post(RECORDS, json=[RECORD])) for _ in range(2)]
        await filled(app.state.services.gates.append_bytes, APPEND_BYTES // 2)
        problem(await client.post(RECORDS, json=[RECORD]), 429, "too_many_requests")
    assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200, 200]
    assert (await client.post(RECORDS, json=[RECORD])).status_code == 200
    assert app.state.services.gates.append_bytes.under_way == 0


async def test_a_body_that_did_not_say_its_length_is_counted_as_it_comes(
    client: httpx.AsyncClient, app: FastAPI, dsn: str, problem: Problem
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 10_000

    with locked(dsn, "log", "batch"):
        waiting = asyncio.create_task(client.post(RECORDS, json=[RECORD]))
        await filled(app.state.services.gates.append_bytes, 1)
        problem(
            await client.post(RECORDS, content=endless(), headers={"content-type": "application/json"}), 429, "too_many_requests"
        )
    assert (await waiting).status_code == 200


async def test_a_body_larger_than_the_limit_passes_alone(client: httpx.AsyncClient) -> None:
    body = [RECORD] * 1_000
    assert (await client.post(RECORDS, json=body)).json()["appended"] == 1_000


@pytest.mark.parametrize(
    ("table", "key"),
    [
        *(("totals", key) for key in ("JFK", "XXX", "a%00b", "J%2FK", "x" * 4_097, "caf%C3%A9")),
        *((table, "JFK") for table in ("nothing", "departures", "a%00b", "x" * 256)),
    ],
)
async def test_a_plain_read_of_a_key_is_answered_as_the_same_read_with_parameters(
    client: httpx.AsyncClient, table: str, key: str
) -> None:
    path = f"/v1/tables/{table}/rows/{key}"
    plain, with_parameters = await client.get(path), await client.get(path, params={"limit": 100, "where.flights.ge": 0})
    same = await client.get(path, params={"limit": 100})
    assert plain.status_code == same.status_code
    if plain.status_code == 200:
        assert plain.json() == same.json() == with_parameters.json()
    else:
        assert {**plain.json(), "request_id": ""} == {**same.json(), "request_id": ""}


async def test_many_more_requests_than_connections_and_threads_get_their_turns(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(client.get("/v1/queries/totals") for _ in range(150)))
    assert {answer.status_code for answer in answers} == {200}

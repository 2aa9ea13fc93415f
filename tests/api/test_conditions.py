"""HTTP's own guards: ETags, If-Match, If-None-Match, Idempotency-Key."""

from __future__ import annotations

import asyncio
import json

import httpx
import psycopg
import pytest

from app.access.idempotency import digest_of
from app.upkeep.retention import RetentionLimits, trim_once
from engine.postgres.links import LinkedAsyncConnection
from tests.api.conftest import JOIN, STREAM, TABLE, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")


async def created(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/queries", json=JOIN)).status_code == 201


@pytest.mark.parametrize("path", ["/v1/queries/joined", "/v1/streams/departures", "/v1/tables/weather"])
async def test_a_get_carries_the_version_and_repeats_nothing_while_it_holds(client: httpx.AsyncClient, path: str) -> None:
    await created(client)
    first = await client.get(path)
    assert (first.headers["etag"], first.headers["cache-control"]) == (f'"{first.json()["version"]}"', "no-store")
    for tags in ('"1"', 'W/"1"', '"7", "1"', "*"):
        same = await client.get(path, headers={"if-none-match": tags})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", '"1"'), tags
    assert (await client.get(path, headers={"if-none-match": '"2"'})).json() == first.json()


@pytest.mark.parametrize(
    ("path", "body", "edited"),
    [
        ("/v1/queries/joined", JOIN, {**JOIN, "late_records": {"max_rows": 5}}),
        ("/v1/streams/departures", STREAM, {**STREAM, "max_future_skew": "2d"}),
        ("/v1/tables/weather", TABLE, {**TABLE, "max_future_skew": "2d"}),
    ],
)
async def test_an_edit_of_an_old_version_shows_the_present_one(
    client: httpx.AsyncClient, problem: Problem, path: str, body: dict[str, object], edited: dict[str, object]
) -> None:
    await created(client)
    for tags in ('"7"', 'W/"1"', "1"):
        refused = await client.put(path, json=edited, headers={"if-match": tags})
        assert '"1"' in problem(refused, 412, "version_mismatch")["detail"]
        assert refused.headers["etag"] == '"1"'
    only_new = await client.put(path, json=body, headers={"if-none-match": "*"})
    problem(only_new, 412, "version_mismatch")
    assert (await client.put(path, json=edited, headers={"if-match": '"1", "9"'})).headers["etag"] == '"2"'
    problem(await client.delete(path, headers={"if-match": '"1"'}), 412, "version_mismatch")


@pytest.mark.parametrize(("path", "body"), [("/v1/queries/new", {**JOIN, "name": "new"}), ("/v1/tables/new", TABLE)])
async def test_what_is_not_there_cannot_match(client: httpx.AsyncClient, problem: Problem, path: str, body: object) -> None:
    problem(await client.put(path, json=body, headers={"if-match": "*"}), 412, "version_mismatch")
    problem(await client.get(path), 404, "query_not_found" if "queries" in path else "relation_not_found")
    assert (await client.put(path, json=body, headers={"if-none-match": "*"})).status_code == 201


async def test_a_repeated_creation_gets_the_first_answer(client: httpx.AsyncClient, dsn: str) -> None:
    headers = {"idempotency-key": "k1"}
    first = await client.post("/v1/queries", json=JOIN, headers=headers)
    await client.put("/v1/queries/joined/desired-state", json={"state": "paused"})
    again = await client.post("/v1/queries", json=JOIN, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert list(again.json()["definition"]["select"]) == list(JOIN["select"])
    assert [again.headers[name] for name in ("etag", "location")] == [first.headers[name] for name in ("etag", "location")]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.query").fetchone() == (1,)


async def test_a_key_belongs_to_one_body(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"idempotency-key": "k1"}
    await client.post("/v1/queries", json=JOIN, headers=headers)
    problem(await client.post("/v1/queries", json=WINDOWS, headers=headers), 422, "idempotency_key_reused")


async def test_a_key_belongs_to_the_one_who_sent_it(client: httpx.AsyncClient, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO slackwater.idempotency (principal, key, request_digest, status, body, headers, expires_at) "
            "VALUES ('somebody', 'k1', 'x', 201, '{}', '{}', now() + interval '1 day')"
        )
    response = await client.post("/v1/queries", json=JOIN, headers={"idempotency-key": "k1"})
    assert (response.status_code, response.json()["name"]) == (201, "joined")


async def test_a_refused_creation_leaves_its_key_free(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"idempotency-key": "k1"}
    problem(await client.post("/v1/queries", json={**JOIN, "tasks": 0}, headers=headers), 422, "invalid_value")
    assert (await client.post("/v1/queries", json=JOIN, headers=headers)).status_code == 201


async def test_twins_at_the_same_time_create_one_query(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/v1/queries", json=JOIN, headers={"idempotency-key": "k1"}) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1


async def test_a_twin_that_waits_too_long_may_try_again(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    digest = digest_of(["POST", "/v1/queries"], json.dumps(JOIN).encode())
    async with await LinkedAsyncConnection.connect(dsn) as first:
        await first.execute(
            "INSERT INTO slackwater.idempotency (principal, key, request_digest, expires_at) VALUES ('api', 'k1', %s, now() + '1 day')",
            (digest,),
        )
        refused = await client.post("/v1/queries", json=JOIN, headers={"idempotency-key": "k1"})
        await first.rollback()
    assert problem(refused, 409, "idempotency_in_progress")["retryable"] is True
    assert (await client.post("/v1/queries", json=JOIN, headers={"idempotency-key": "k1"})).status_code == 201


async def test_keys_end_after_their_day_and_are_removed(client: httpx.AsyncClient, dsn: str) -> None:
    headers = {"idempotency-key": "k1"}
    await client.post("/v1/queries", json=JOIN, headers=headers)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE slackwater.idempotency SET expires_at = now() - interval '1 second'")
        assert (await client.post("/v1/queries", json=WINDOWS, headers=headers)).json()["name"] == "delays"
        connection.execute("UPDATE slackwater.idempotency SET expires_at = now() - interval '1 second'")
        trim_once(dsn, RetentionLimits(10**12))
        assert connection.execute("SELECT count(*) FROM slackwater.idempotency").fetchone() == (0,)

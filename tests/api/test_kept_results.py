"""Results that outlive their query."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")
READER: dict[str, Any] = {"name": "reader", "from": {"stream": "joined"}, "into": {"stream": "reader_out"}}


async def with_a_row(client: httpx.AsyncClient, dsn: str) -> None:
    """Play the driver: the query `delays` ran, committed a row and runs on."""
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            """SELECT id, checkpoint_id, 3, 0, now(), '{"log:departures": {"0": 5}}', 7000, '{}' FROM slackwater.query"""
        )
        connection.execute("INSERT INTO views.delays VALUES ('JFK', 'epoch', timestamptz 'epoch' + interval '1 hour', 2, 1.5, 9)")
        connection.execute(
            "UPDATE slackwater.query_status SET state = 'running', epoch = 3, lease_expires_at = now() + interval '1 minute'"
        )


async def test_a_kept_table_is_read_as_it_was(client: httpx.AsyncClient, dsn: str) -> None:
    await with_a_row(client, dsn)
    before = (await client.get("/v1/tables/delays/rows")).json()
    response = await client.delete("/v1/queries/delays", params={"state": "keep"})
    assert response.status_code == 202, "its driver is still stopping it"
    after = (await client.get("/v1/tables/delays/rows")).json()
    assert (before["stale"], after["stale"]) == (False, True)
    assert after == {**before, "stale": True}
    assert after["rows"][0]["flights"] == 2
    relation = await client.get("/v1/tables/delays")
    assert (relation.json()["origin"], relation.json()["produced_by"], relation.headers["etag"]) == ("derived", None, '"2"')


async def test_a_launch_that_still_runs_commits_nothing_to_a_kept_table(client: httpx.AsyncClient, dsn: str) -> None:
    await with_a_row(client, dsn)
    await client.delete("/v1/queries/delays", params={"state": "keep"})
    with psycopg.connect(dsn) as connection:
        fence = connection.execute(
            "SELECT c.checkpoint_id = q.checkpoint_id FROM log.commit c JOIN slackwater.query q ON q.id = c.query_id"
        ).fetchone()
    assert fence == (False,)


async def test_a_kept_name_is_taken_until_the_table_is_deleted(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await with_a_row(client, dsn)
    await client.delete("/v1/queries/delays", params={"state": "keep"})
    body = problem(await client.post("/v1/queries", json=WINDOWS), 409, "name_taken")
    assert "DELETE /v1/tables/delays" in body["detail"]
    problem(await client.put("/v1/tables/delays", json=TABLE), 409, "name_taken")
    problem(await client.post("/v1/tables/delays/records", json=RECORD), 409, "not_appendable")
    assert (await client.post("/v1/queries", json={**WINDOWS, "into": {"table": "delays_2"}})).status_code == 201
    assert (await client.delete("/v1/tables/delays")).status_code == 204
    problem(await client.get("/v1/tables/delays"), 404, "relation_not_found")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('views.delays') IS NULL").fetchone() == (True,)
        assert connection.execute("SELECT count(*) FROM log.feed WHERE name = 'changes:delays'").fetchone() == (0,)
    assert (await client.post("/v1/queries", json={**WINDOWS, "name": "again"})).status_code == 201


async def test_a_kept_stream_goes_on_serving_its_readers(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.post("/v1/queries", json=JOIN)
    assert (await client.post("/v1/queries", json=READER)).status_code == 201
    problem(await client.delete("/v1/queries/joined"), 409, "relation_in_use")
    assert (await client.delete("/v1/queries/joined", params={"state": "keep"})).status_code == 204
    assert (await client.get("/v1/streams/joined/records")).json()["stale"] is True
    problem(await client.delete("/v1/streams/joined"), 409, "relation_in_use")
    edited = await client.put("/v1/queries/reader", params={"state": "discard"}, json={**READER, "start": "latest"})
    assert edited.status_code == 200, edited.text
    assert (await client.delete("/v1/queries/reader")).status_code == 204
    assert (await client.delete("/v1/streams/joined")).status_code == 204


async def test_a_purged_query_leaves_its_kept_result(client: httpx.AsyncClient, dsn: str) -> None:
    await with_a_row(client, dsn)
    await client.delete("/v1/queries/delays", params={"state": "keep"})
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM slackwater.query WHERE deleted_at IS NOT NULL")
        connection.execute("DELETE FROM log.commit")
    body = (await client.get("/v1/tables/delays/rows")).json()
    assert (len(body["rows"]), body["stream_time_ms"], body["position"]) == (1, 7000, {"log:departures": {"0": 5}})


async def test_discard_is_the_default(client: httpx.AsyncClient, problem: Problem) -> None:
    for params in ({}, {"state": "discard"}):
        await client.post("/v1/queries", json=WINDOWS)
        assert (await client.delete("/v1/queries/delays", params=params)).status_code == 204
        problem(await client.get("/v1/tables/delays"), 404, "relation_not_found")
    problem(await client.delete("/v1/queries/delays", params={"state": "burn"}), 400, "bad_parameter")


async def test_a_source_that_is_read_cannot_be_deleted(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.post("/v1/queries", json=JOIN)
    problem(await client.delete("/v1/streams/departures"), 409, "relation_in_use")
    problem(await client.delete("/v1/tables/weather"), 409, "relation_in_use")
    assert (await client.put("/v1/streams/spare", json=STREAM)).status_code == 201
    assert (await client.delete("/v1/streams/spare")).status_code == 204

"""Creating, replacing, changing the desired state and deleting queries. No driver runs: only desired states are written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest

from app.driver.launches.launching import FencedLauncher
from app.driver.launches.ports import LaunchOrder
from engine.errors import EpochFenced
from tests.api.conftest import JOIN, STREAM, WINDOWS, Problem
from tests.integration.test_launching import Idle

pytestmark = pytest.mark.usefixtures("sources")


def facts(dsn: str, state: str, generation: int = 1, nonce: int = 0) -> None:
    """Play the driver: write a state."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.query_status SET state = %s, observed_generation = %s, observed_restart_nonce = %s",
            (state, generation, nonce),
        )


async def test_a_created_query_spells_out_every_default(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/queries", json=WINDOWS)
    assert response.status_code == 201, response.text
    body = response.json()
    assert response.headers["location"] == "/v1/queries/delays"
    assert response.headers["etag"] == '"1"'
    assert body["definition"]["window"] | {"retention": "7d", "grace": "30m"} == body["definition"]["window"]
    assert body["definition"]["tasks"] == 2
    assert body["definition"]["late_records"] == {"max_rows": 100_000, "retention": "7d"}
    assert (body["state"], body["desired_state"], body["generation"]) == ("stopped", "running", 1)
    read = (await client.get("/v1/queries/delays")).json()
    assert read.pop("sql").startswith('CREATE TABLE "DELAYS"')
    assert read.pop("statement") is None
    assert body == {**read, "warnings": []}


async def test_a_created_query_makes_its_relation_and_nothing_else(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    await client.post("/v1/queries", json=JOIN)
    with psycopg.connect(dsn) as connection:
        feeds = {row[0] for row in connection.execute("SELECT name FROM log.feed")}
        assert feeds == {"departures", "weather", "changes:delays", "joined"}
        assert connection.execute("SELECT count(*) FROM views.delays").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM slackwater.query_read").fetchone() == (3,)


async def test_a_refused_query_leaves_nothing_behind(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    problem(await client.post("/v1/queries", json={**WINDOWS, "into": {"table": "weather"}}), 409, "name_taken")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.query").fetchone() == (0,)


async def test_put_creates_and_an_equal_put_changes_nothing(client: httpx.AsyncClient) -> None:
    first = await client.put("/v1/queries/delays", json=WINDOWS)
    second = await client.put("/v1/queries/delays", json=WINDOWS)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["etag"] == second.headers["etag"]
    assert first.json() == second.json()


async def test_put_takes_the_name_from_the_path(client: httpx.AsyncClient) -> None:
    body = {name: value for name, value in JOIN.items() if name != "name"}
    assert (await client.put("/v1/queries/other", json=body)).json()["name"] == "other"


async def test_grace_of_a_join_changes_in_place(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    before = checkpoint(dsn)
    edited = {**JOIN, "joins": [{**JOIN["joins"][0], "grace": "2h", "late": "drop"}]}
    response = await client.put("/v1/queries/joined", json=edited)
    assert response.status_code == 200, response.text
    assert (response.json()["generation"], response.json()["version"]) == (2, 2)
    assert checkpoint(dsn) == before


async def test_an_edit_that_needs_new_state_must_be_meant(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await client.put("/v1/queries/delays", json=WINDOWS)
    before = checkpoint(dsn)
    edited = {**WINDOWS, "window": {**WINDOWS["window"], "size": "2h"}, "aggregate": {"flights": "count(*)"}}
    body = problem(await client.put("/v1/queries/delays", json=edited), 409, "state_incompatible", "/window/size")
    assert "/aggregate/mean_delay" in [fault["pointer"] for fault in body["errors"]]
    response = await client.put("/v1/queries/delays", params={"state": "discard"}, json=edited)
    assert response.status_code == 200, response.text
    assert checkpoint(dsn) != before
    assert list((await client.get("/v1/tables/delays")).json()["columns"]) == ["origin", "window_start", "window_end", "flights"]


async def test_discarding_state_fences_the_launch_that_runs(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/queries/delays", json=WINDOWS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch) SELECT id, checkpoint_id, 7 FROM slackwater.query"
        )
    await client.put("/v1/queries/delays", params={"state": "discard"}, json={**WINDOWS, "start": "latest"})
    with psycopg.connect(dsn) as connection:
        fence = connection.execute(
            "SELECT c.epoch, c.batch_id, c.checkpoint_id = q.checkpoint_id FROM log.commit c JOIN slackwater.query q ON q.id = c.query_id"
        ).fetchone()
    assert fence == (7, None, False), "the running sink is refused, and so is every launch up to it"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_launch_that_has_no_fence_yet_takes_none_behind_a_new_beginning_or_a_deletion(
    client: httpx.AsyncClient, dsn: str, tmp_path: Path, method: str
) -> None:
    await client.put("/v1/queries/delays", json=WINDOWS)
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT id, checkpoint_id FROM slackwater.query").fetchone()
    assert row is not None
    ordered = LaunchOrder(row[0], "delays", WINDOWS, row[1], 1, 1, lambda _phase: None)
    anew = {**WINDOWS, "start": "latest"}
    discard = {"params": {"state": "discard"}, "json": anew} if method == "PUT" else {}
    assert (await client.request(method, "/v1/queries/delays", **discard)).is_success
    assert (await client.put("/v1/queries/delays", json=anew)).is_success, "its result has the same name"
    with closing(FencedLauncher(dsn, tmp_path, Idle())) as launcher, pytest.raises(EpochFenced):
        launcher(ordered)


async def test_what_another_query_reads_cannot_begin_anew_or_go(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    reader = {"name": "reader", "from": {"stream": "joined"}, "into": {"stream": "reader_out"}}
    assert (await client.post("/v1/queries", json=reader)).status_code == 201
    edited = {**JOIN, "start": "latest"}
    problem(await client.put("/v1/queries/joined", params={"state": "discard"}, json=edited), 409, "relation_in_use")
    problem(await client.delete("/v1/queries/joined"), 409, "relation_in_use")
    assert (await client.delete("/v1/queries/reader")).status_code == 204
    assert (await client.delete("/v1/queries/joined")).status_code == 204


async def test_an_edit_keeps_the_wish_unless_it_names_one(client: httpx.AsyncClient) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    await client.put("/v1/queries/joined/desired-state", json={"state": "paused"})
    edited = {**JOIN, "late_records": {"max_rows": 5}}
    assert (await client.put("/v1/queries/joined", json=edited)).json()["desired_state"] == "paused"
    edited = {**edited, "desired_state": "running"}
    body = (await client.put("/v1/queries/joined", json=edited)).json()
    assert body["desired_state"] == body["definition"]["desired_state"] == "running"


async def test_if_match_is_honoured(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    edited = {**JOIN, "late_records": {"max_rows": 5}}
    stale = await client.put("/v1/queries/joined", json=edited, headers={"if-match": '"7"'})
    problem(stale, 412, "version_mismatch")
    assert stale.headers["etag"] == '"1"'
    assert (await client.put("/v1/queries/joined", json=edited, headers={"if-match": '"1"'})).status_code == 200
    for method, path in (("PUT", "/desired-state"), ("POST", "/restart"), ("DELETE", "")):
        response = await client.request(
            method, f"/v1/queries/joined{path}", json={"state": "paused"}, headers={"if-match": '"1"'}
        )
        problem(response, 412, "version_mismatch")


async def test_if_none_match_only_creates(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"if-none-match": "*"}
    assert (await client.put("/v1/queries/joined", json=JOIN, headers=headers)).status_code == 201
    problem(await client.put("/v1/queries/joined", json=JOIN, headers=headers), 412, "version_mismatch")


async def test_a_wish_is_noted_once(client: httpx.AsyncClient) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    first = await client.put("/v1/queries/joined/desired-state", json={"state": "stopped"})
    second = await client.put("/v1/queries/joined/desired-state", json={"state": "stopped"})
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["status"] == "/v1/queries/joined/status?wait_for=stopped"
    assert first.headers["etag"] == second.headers["etag"] == '"2"'


async def test_a_restart_raises_the_nonce(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    assert (await client.post("/v1/queries/joined/restart")).status_code == 202
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT restart_nonce, generation FROM slackwater.query").fetchone() == (1, 1)
    await client.put("/v1/queries/joined/desired-state", json={"state": "stopped"})
    problem(await client.post("/v1/queries/joined/restart"), 409, "query_not_wanted")


async def test_a_table_that_folds_is_launched_anew_with_its_first_reader_and_no_other(
    client: httpx.AsyncClient, dsn: str
) -> None:
    """P11: what a query reads of a table has every change."""
    counted = {"name": "counted", "from": {"stream": "departures"}, "group_by": ["origin"], "aggregate": {"n": "count(*)"}}
    by_count = {"from": {"table": "counted"}, "group_by": ["n"], "aggregate": {"origins": "count(*)"}}
    assert (await client.post("/v1/queries", json={**counted, "into": {"table": "counted"}})).status_code == 201
    for name, expected in (("first", 1), ("second", 1)):
        body = {"name": name, **by_count, "into": {"table": name}}
        assert (await client.post("/v1/queries", json=body)).status_code == 201
        with psycopg.connect(dsn) as connection:
            rows = connection.execute("SELECT restart_nonce FROM slackwater.query ORDER BY name").fetchall()
        assert sum(row[0] for row in rows) == rows[0][0] == expected, name


async def test_a_reader_that_begins_anew_leaves_its_producer_alone_and_a_failed_one_stays_failed(
    client: httpx.AsyncClient, dsn: str
) -> None:
    """P11."""

    def relaunches() -> int:
        with psycopg.connect(dsn) as connection:
            row = connection.execute("SELECT restart_nonce FROM slackwater.query WHERE name = 'counted'").fetchone()
        assert row is not None
        return int(row[0])

    counted = {"name": "counted", "from": {"stream": "departures"}, "group_by": ["origin"], "aggregate": {"n": "count(*)"}}
    reader = {"name": "first", "from": {"table": "counted"}, "group_by": ["n"], "aggregate": {"origins": "count(*)"}}
    assert (await client.post("/v1/queries", json={**counted, "into": {"table": "counted"}})).status_code == 201
    facts(dsn, "failed")
    assert (await client.post("/v1/queries", json={**reader, "into": {"table": "first"}})).status_code == 201
    assert relaunches() == 0
    facts(dsn, "stopped")
    anew = await client.put(
        "/v1/queries/first", params={"state": "discard", "from": "earliest"}, json={**reader, "into": {"table": "first"}}
    )
    assert anew.status_code == 200, anew.text
    assert relaunches() == 0


async def test_a_deleted_query_takes_its_relation_along(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await client.put("/v1/queries/delays", json=WINDOWS)
    assert (await client.delete("/v1/queries/delays")).status_code == 204
    problem(await client.get("/v1/queries/delays"), 404, "query_not_found")
    problem(await client.get("/v1/tables/delays"), 404, "relation_not_found")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('views.delays')").fetchone() == (None,)
        assert connection.execute("SELECT desired_state, deleted_at IS NOT NULL FROM slackwater.query").fetchone() == (
            "stopped",
            True,
        )
    assert (await client.put("/v1/queries/delays", json=WINDOWS)).status_code == 201


async def test_deleting_a_running_query_is_accepted_and_goes_on(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/queries/delays", json=WINDOWS)
    facts(dsn, "running")
    assert (await client.delete("/v1/queries/delays")).status_code == 202


async def test_everything_the_user_does_is_an_event(client: httpx.AsyncClient) -> None:
    await client.put("/v1/queries/joined", json=JOIN)
    await client.put("/v1/queries/joined", json={**JOIN, "late_records": {"max_rows": 5}})
    await client.put("/v1/queries/joined/desired-state", json={"state": "paused"})
    page = (await client.get("/v1/queries/joined/events", params={"limit": 2})).json()
    rest = (await client.get("/v1/queries/joined/events", params={"cursor": page["next"]})).json()
    kinds = [event["kind"] for event in (*page["items"], *rest["items"])]
    assert kinds == ["query_created", "query_replaced", "desired_state_changed"]
    assert page["items"][1]["detail"] == {"edit": "in_place", "changed": ["/late_records/max_rows"]}


async def test_queries_are_listed_by_name(client: httpx.AsyncClient) -> None:
    for definition in (WINDOWS, JOIN):
        await client.post("/v1/queries", json=definition)
    first = (await client.get("/v1/queries", params={"limit": 1})).json()
    second = (await client.get("/v1/queries", params={"limit": 1, "cursor": first["next"]})).json()
    assert [item["name"] for item in (*first["items"], *second["items"])] == ["delays", "joined"]


async def test_a_query_can_read_a_result(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json=JOIN)
    counts = {
        **WINDOWS,
        "name": "counts",
        "from": {"stream": "joined"},
        "aggregate": {"n": "count(*)"},
        "into": {"table": "counts"},
    }
    assert (await client.post("/v1/queries", json=counts)).status_code == 201
    assert (await client.get("/v1/streams/joined")).json()["read_by"] == ["counts"]


async def test_validation_answers_200_with_the_plan_and_stores_nothing(client: httpx.AsyncClient) -> None:
    body = (await client.post("/v1/validations", json=JOIN)).json()
    assert (body["valid"], body["problems"]) == (True, [])
    assert body["definition"]["joins"][0]["late"] == "join"
    assert body["output"]["columns"] == {"origin": "string", "flight": "bigint", "temp": "double"}
    (stage,) = body["plan"]["stages"]
    assert [(each["operator"], each["waits_ms"]) for each in stage["operators"]] == [
        ("StreamTableJoin", 3_600_000),
        ("Projection", 0),
    ]
    assert (await client.get("/v1/queries")).json()["items"] == []


@pytest.mark.parametrize("body", [{}, [], "x", 0, {"name": "q"}, {**JOIN, "joins": [{"table": "nowhere"}]}])
async def test_validation_answers_200_to_any_json(client: httpx.AsyncClient, body: object) -> None:
    response = await client.post("/v1/validations", json=body)
    assert response.status_code == 200
    assert response.json()["valid"] is False
    assert response.json()["problems"]


async def test_a_changed_source_is_planned_anew(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    more = {**STREAM, "columns": {**STREAM["columns"], "more": "int"}}
    assert (await client.put("/v1/streams/departures", json=more)).status_code == 200
    edited = {**WINDOWS, "window": {**WINDOWS["window"], "retention": "8d"}}
    assert (await client.put("/v1/queries/delays", json=edited)).status_code == 200


def checkpoint(dsn: str) -> object:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT checkpoint_id FROM slackwater.query").fetchone()

"""Rewinding over HTTP: which commits one can go back to, what that undoes, and what is refused. The test plays the driver."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from app.main.main import create_app
from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from engine.commit.task_states import load_committed_state, load_states
from engine.postgres.postgres import connect
from tests.api.committed import commit, emitted, retained
from tests.api.conftest import WINDOWS, Problem
from tests.api.test_forks import COUNTS, FEED, SEGMENT, begin, counted, ids_of, rows
from tests.api.test_statement_edits import statement_of, write_in_sql
from tests.late_frames import late_frame

pytestmark = pytest.mark.usefixtures("sources")
URL = "/v1/queries/counts"
LATE = late_frame([("w", "late", 1_000, 1_009, 0, '{"origin":"JFK"}')])


def says(dsn: str, state: str, name: str = "counts") -> None:
    """Play the driver: the query is in this state."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE slackwater.query_status SET state = %s WHERE query_id = %s", (state, ids_of(dsn, name)[0]))


def commits(dsn: str, *counts: tuple[str, int], late: bool = False) -> None:
    """Commit these counts, retained: batch n has read n + 1 records."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT coalesce(batch_id, -1) FROM log.commit WHERE query_id = %s", (ids_of(dsn, "counts")[0],)
        ).fetchone()
    batch = 0 if row is None else row[0] + 1
    frame = rows(*((origin, flights, 1_000 * batch) for origin, flights in counts))
    commit(dsn, "counts", [(0, 0, emitted({}, late=LATE if late else None, changes=frame))], {FEED: {0: batch + 1}})
    retained(dsn, "counts")


async def running(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    """A query that has committed three times, and is stopped."""
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    begin(settings, dsn, "counts")
    commits(dsn, ("JFK", 1), ("LGA", 1), late=True)
    commits(dsn, ("JFK", 2))
    commits(dsn, ("JFK", 3), ("EWR", 1), late=True)
    await client.post("/v1/streams/departures/records", json=[record(n) for n in range(6)])


def record(n: int) -> dict[str, Any]:
    return {"origin": "JFK", "flight": n, "delay": 1.0, "departed_at": "2013-01-01T10:44:00Z"}


async def rewind(client: httpx.AsyncClient, batch_id: int, **body: Any) -> dict[str, Any]:
    response = await client.post(f"{URL}/rewind", json={"batch_id": batch_id, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def changes(client: httpx.AsyncClient) -> list[Any]:
    answer = (await client.get("/v1/tables/counts/changes?from=earliest")).json()
    return [(each["sequence"], each["key"]["origin"], (each["row"] or {}).get("flights")) for each in answer["changes"]]


async def test_a_query_goes_back_with_result_changes_state_and_position(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    await running(client, settings, dsn)
    tokens = {state.token for state in states(dsn)}
    answer = await rewind(client, 1)
    assert (answer["before"]["batch_id"], answer["after"]["batch_id"]) == (2, 1)
    assert answer["after"]["position"] == {FEED: {"0": 2, "1": 0}} or answer["after"]["position"][FEED]["0"] == 2
    assert (answer["removed_rows"], answer["changes"], answer["dry_run"]) == (2, [], False)
    assert (answer["generation"], answer["version"]) == (2, 2)
    assert await counted(client, "counts") == {"JFK": 2, "LGA": 1}
    assert await changes(client) == [(0, "JFK", 1), (1, "LGA", 1), (2, "JFK", 2)]
    assert len((await client.get(f"{URL}/late-records")).json()["items"]) == 1
    status = (await client.get(f"{URL}/status")).json()
    assert (status["batch_id"], status["committed_at"]) == (1, answer["after"]["committed_at"])
    assert tokens.isdisjoint({state.token for state in states(dsn)})
    with connect(dsn, "test") as connection:
        assert load_committed_state(connection, *ids_of(dsn, "counts")).batch_id == 1
    commits(dsn, ("JFK", 9))
    assert await counted(client, "counts") == {"JFK": 9, "LGA": 1}
    assert (await changes(client))[-1] == (3, "JFK", 9)


def states(dsn: str) -> list[Any]:
    with connect(dsn, "test") as connection:
        return list(load_states(connection, ids_of(dsn, "counts")[0]).values())


async def test_commits_are_listed_with_what_is_in_the_way(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    await running(client, settings, dsn)
    listed = (await client.get(f"{URL}/restore-points")).json()
    assert [each["batch_id"] for each in listed["items"]] == [2, 1, 0]
    assert all(each["can_rewind"] and each["of_launch"] for each in listed["items"])
    assert (listed["newest"]["batch_id"], listed["obstacle"]) == (2, None)
    says(dsn, "running")
    assert "is running" in (await client.get(f"{URL}/restore-points")).json()["obstacle"]


async def test_a_query_without_commits_lists_none(client: httpx.AsyncClient, problem: Problem) -> None:
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    assert (await client.get(f"{URL}/restore-points")).json() == {"items": [], "newest": None, "obstacle": None}
    problem(await client.get("/v1/queries/none/restore-points"), 404, "query_not_found")


async def test_a_dry_run_says_what_it_would_do_and_changes_nothing(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    await running(client, settings, dsn)
    before = (await client.get(f"{URL}/status")).json(), await changes(client), await counted(client, "counts")
    headers = {"idempotency-key": "dry"}
    response = await client.post(f"{URL}/rewind?dry_run=true", json={"batch_id": 0}, headers=headers)
    assert response.status_code == 200, response.text
    assert (response.json()["dry_run"], response.json()["removed_rows"]) == (True, 3)
    assert ((await client.get(f"{URL}/status")).json(), await changes(client), await counted(client, "counts")) == before
    assert (await client.get(URL)).json()["generation"] == 1
    assert [each["batch_id"] for each in (await client.get(f"{URL}/restore-points")).json()["items"]] == [2, 1, 0]


@pytest.mark.parametrize("state", ["starting", "running", "stopping", "backoff"])
async def test_what_runs_is_not_rewound(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem, state: str
) -> None:
    await running(client, settings, dsn)
    says(dsn, state)
    problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "query_not_at_rest")
    assert await counted(client, "counts") == {"JFK": 3, "LGA": 1, "EWR": 1}


@pytest.mark.parametrize("state", ["stopped", "paused", "failed"])
async def test_what_is_at_rest_is_and_no_launch_that_was_decided_on_before_begins(
    client: httpx.AsyncClient, settings: Settings, dsn: str, state: str
) -> None:
    await running(client, settings, dsn)
    says(dsn, state)
    select = "SELECT version FROM slackwater.query_status"
    with psycopg.connect(dsn, autocommit=True) as connection:
        before = connection.execute(select).fetchone()
        await rewind(client, 1)
        assert before is not None
        assert connection.execute(select).fetchone() == (before[0] + 1,)


async def test_readers_are_named_and_in_the_way(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    reader = {"name": "reader", "from": {"table": "counts"}, "select": {"origin": "origin"}, "into": {"table": "read"}}
    assert (await client.post("/v1/queries", json=reader)).status_code == 201
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "relation_in_use")
    assert "reader" in body["detail"]
    assert "reader" in (await client.get(f"{URL}/restore-points")).json()["obstacle"]
    assert (await client.delete("/v1/queries/reader")).status_code == 204
    await rewind(client, 1)


async def test_forks_of_later_commits_are_in_the_way(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    assert (await client.post(f"{URL}/fork", json={"name": "tried"})).status_code == 201
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "rewind_not_possible", "/batch_id")
    assert "tried" in body["detail"]
    listed = (await client.get(f"{URL}/restore-points")).json()["items"]
    assert [each["can_rewind"] for each in listed] == [True, False, False]
    assert (await client.delete("/v1/queries/tried")).status_code in (202, 204)
    await rewind(client, 1)


async def test_a_commit_that_is_not_retained_is_refused(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("DELETE FROM log.retained_commit WHERE batch_id = 1")
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "commit_not_retained", "/batch_id")
    assert "2, 0" in body["detail"]
    await rewind(client, 0)
    problem(await client.post(f"{URL}/rewind", json={"batch_id": 2}), 409, "commit_not_retained")


async def test_records_that_retention_removed_cannot_be_read_again(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    with psycopg.connect(dsn) as connection:
        for batch in range(3):
            cursor = json.dumps({"format": 1, "feeds": {FEED: {"0": batch, "1": 0}}})
            connection.execute("UPDATE log.retained_commit SET cursor = %s WHERE batch_id = %s", (cursor, batch))
        connection.execute(
            "UPDATE log.head SET start_offset = 2, next_offset = 6 FROM log.feed f "
            "WHERE f.id = feed_id AND partition = 0 AND f.name = 'departures'"
        )
    listed = (await client.get(f"{URL}/restore-points")).json()["items"]
    assert [each["can_rewind"] for each in listed] == [True, False, False]
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "rewind_not_possible")
    assert "records of log:departures from 1 to 2 in partition 0 were removed" in body["detail"]
    await rewind(client, 2)


async def test_state_whose_segments_are_gone_is_refused(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    folder = begin(settings, dsn, "counts")
    for n in range(3):
        commits(dsn, ("JFK", n))
    (folder / f"{SEGMENT}.arrow").unlink()
    listed = (await client.get(f"{URL}/restore-points")).json()["items"]
    assert SEGMENT in listed[0]["obstacle"]
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "rewind_not_possible")
    assert SEGMENT in body["detail"]


async def test_late_records_that_did_not_fit_since_are_in_the_way(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    with psycopg.connect(dsn) as connection:
        add = "INSERT INTO log.counter (owner, input, reason, count) VALUES (%s, 'late_records', 'late_records_overflow', 1)"
        connection.execute(add, (ids_of(dsn, "counts")[0],))
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "rewind_not_possible")
    assert "late_records.max_rows" in body["detail"]


async def test_rows_that_the_change_log_has_no_more_are_refused(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "DELETE FROM log.batch USING log.feed f WHERE f.id = feed_id AND f.name = 'changes:counts' AND sequence < 2"
        )
        connection.execute("UPDATE log.feed SET start_sequence = 2 WHERE name = 'changes:counts'")
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "rewind_not_possible")
    assert "1 keys were changed since" in body["detail"]
    assert await counted(client, "counts") == {"JFK": 3, "LGA": 1, "EWR": 1}


async def test_open_windows_cannot_be_put_back(client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem) -> None:
    shown = {**WINDOWS, "name": "counts", "into": {"table": "delays", "materialize_open": True}, "tasks": 1}
    assert (await client.post("/v1/queries", json=shown)).status_code == 201
    begin(settings, dsn, "counts")
    commit(dsn, "counts", [], {FEED: {0: 1}})
    retained(dsn, "counts")
    body = problem(await client.post(f"{URL}/rewind", json={"batch_id": 0}), 409, "rewind_not_possible")
    assert "materialize_open" in body["detail"]
    assert "materialize_open" in (await client.get(f"{URL}/restore-points")).json()["obstacle"]


async def test_a_log_beyond_the_limit_is_not_read(
    settings: Settings, dsn: str, client: httpx.AsyncClient, problem: Problem
) -> None:
    await running(client, settings, dsn)
    narrow = settings.model_copy(update={"limits": LimitSettings(rewind_bytes=10), "database_url": SecretStr(dsn)})
    built = create_app(narrow)
    async with (
        built.router.lifespan_context(built),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=built), base_url="http://localhost") as other,
    ):
        problem(await other.post(f"{URL}/rewind", json={"batch_id": 1}), 409, "rewind_too_large")


async def test_an_edit_in_place_comes_with_it_and_another_is_refused(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    stored = await write_in_sql(client, "counts")
    await rewind(client, 2)
    assert await statement_of(client, "counts") is not None
    edited = {**stored, "select": {"origin": "origin", "flights": "flights", "twice": "flights * 2"}}
    answer = await rewind(client, 1, definition=edited, desired_state="paused")
    assert await statement_of(client, "counts") is None
    assert [change["pointer"] for change in answer["changes"]] == ["/select"]
    assert answer["desired_state"] == "paused"
    found = (await client.get("/v1/tables/counts/rows")).json()["rows"]
    assert [(row["origin"], row["flights"], row["twice"]) for row in found] == [("JFK", 2, None), ("LGA", 1, None)]
    body = {"batch_id": 1, "definition": {**COUNTS, "where": "delay > 0"}}
    problem(await client.post(f"{URL}/rewind", json=body), 409, "state_incompatible", "/definition/where")
    events = (await client.get(f"{URL}/events")).json()["items"]
    assert {"query_rewound", "desired_state_changed"} <= {each["kind"] for each in events}


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({}, 422, None, "/batch_id"),
        ({"batch_id": -1}, 422, None, "/batch_id"),
        ({"batch_id": 1, "more": 1}, 422, "unknown_field", "/more"),
        ({"batch_id": 1, "definition": {**COUNTS, "name": "y"}}, 422, "name_mismatch", "/definition/name"),
        ({"batch_id": 1, "definition": {**COUNTS, "where": "nothing > 1"}}, 422, None, "/definition/where"),
    ],
)
async def test_what_is_malformed_is_refused_with_its_place(
    client: httpx.AsyncClient, body: dict[str, Any], status: int, code: str | None, pointer: str
) -> None:
    assert (await client.post("/v1/queries", json=COUNTS)).status_code == 201
    response = await client.post(f"{URL}/rewind", json=body)
    assert response.status_code == status, response.text
    assert code in (None, response.json()["code"])
    assert pointer in [fault["pointer"] for fault in response.json()["errors"]]


async def test_a_repeated_request_goes_back_once(
    client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem
) -> None:
    await running(client, settings, dsn)
    headers = {"idempotency-key": "once"}
    first = await client.post(f"{URL}/rewind", json={"batch_id": 1}, headers=headers)
    commits(dsn, ("JFK", 9))
    again = await client.post(f"{URL}/rewind", json={"batch_id": 1}, headers=headers)
    assert (first.status_code, first.json(), first.headers["etag"]) == (200, again.json(), again.headers["etag"])
    assert await counted(client, "counts") == {"JFK": 9, "LGA": 1}
    problem(await client.post(f"{URL}/rewind", json={"batch_id": 0}, headers={"if-match": '"9"'}), 412, "version_mismatch")
    problem(await client.post("/v1/queries/none/rewind", json={"batch_id": 0}), 404, "query_not_found")


async def test_followers_begin_anew(client: httpx.AsyncClient, settings: Settings, dsn: str, problem: Problem) -> None:
    await running(client, settings, dsn)
    cursor = (await client.get("/v1/tables/counts/changes?from=earliest")).json()["next"]
    await rewind(client, 1)
    for n in range(4):
        commits(dsn, ("JFK", 20 + n))
    problem(await client.get("/v1/tables/counts/changes", params={"cursor": cursor}), 410, "cursor_expired")


async def test_a_query_that_begins_anew_or_is_deleted_has_no_commit_to_go_back_to(
    client: httpx.AsyncClient, settings: Settings, dsn: str
) -> None:
    await running(client, settings, dsn)
    other = {**COUNTS, "where": "delay > 0"}
    assert (await client.put(f"{URL}?state=discard", json=other)).status_code == 200
    assert (await client.get(f"{URL}/restore-points")).json()["items"] == []
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM log.retained_commit").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM log.retained_state").fetchone() == (0,)


async def test_the_audit_log_says_from_which_commit_to_which(client: httpx.AsyncClient, settings: Settings, dsn: str) -> None:
    await running(client, settings, dsn)
    await rewind(client, 0)
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT before -> 'commit' ->> 'batch_id', after -> 'commit' ->> 'batch_id' FROM slackwater.audit WHERE action = 'rewind'"
        ).fetchone()
    assert row == ("2", "0")

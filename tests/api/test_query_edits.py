"""Edits over HTTP: reasons, previews, new beginnings, releases. The test plays the driver."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from engine.errors import CURED_BY_NEW_STATE
from tests.api.conftest import JOIN, TABLE, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")
HOUR = 3_600_000
LIMITED = {
    **WINDOWS,
    "suppress": {"mode": "until_time_limit", "limit": "2h", "buffer": {"max_rows": 100, "when_full": "emit_early"}},
}
VERSIONED: dict[str, Any] = {
    "name": "temps",
    "from": {"table": "weather"},
    "where": "temp > 0",
    "into": {"table": "temps", "versioned": {"history_retention": "2d"}},
}


def committed(dsn: str, detail: dict[str, Any], stream_time_ms: int = 10 * HOUR) -> None:
    """Play the driver: the query made a commit."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "SELECT id, checkpoint_id, 1, 0, now(), '{}', %s, %s FROM slackwater.query",
            (stream_time_ms, Jsonb(detail)),
        )


async def preview(client: httpx.AsyncClient, definition: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/validations", json=definition)
    assert response.status_code == 200, response.text
    assert response.json()["valid"], response.json()["problems"]
    edit: dict[str, Any] = response.json()["edit"]
    return edit


def joined(**options: object) -> dict[str, Any]:
    return {**JOIN, "joins": [{**JOIN["joins"][0], **options}]}


async def test_a_new_name_is_no_edit(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/validations", json=JOIN)).json()["edit"] is None


async def test_a_preview_classifies_and_stores_nothing(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json=JOIN)
    assert (await preview(client, JOIN))["kind"] == "no_op"
    edit = await preview(client, joined(grace="2h", type="inner"))
    assert (edit["kind"], edit["generation"], edit["committed_at"], edit["effects"]) == ("needs_new_state", 1, None, [])
    assert {change["pointer"]: change["kind"] for change in edit["changes"]} == {
        "/joins/0/grace": "in_place",
        "/joins/0/type": "needs_new_state",
    }
    assert all(change["reason"] for change in edit["changes"])
    assert (await client.get("/v1/queries/joined")).json()["version"] == 1


async def test_a_shorter_grace_tells_how_many_records_it_lets_go(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=JOIN)
    now = 10 * HOUR
    waiting = {"0": [[now - HOUR, now - HOUR + 5, 7, 7], [now - 1000, now, 3, 3]], "1": [[now - HOUR, now - 10, 20, 20]]}
    committed(dsn, {"clocks": {"w": now}, "waiting": {"w": waiting, "w.hold": {}}})
    edit = await preview(client, joined(grace="30m"))
    assert edit["kind"] == "in_place"
    assert edit["effects"] == [
        {
            "pointer": "/joins/0/grace",
            "effect": "records_let_go",
            "operator": "w",
            "at_least": 8,
            "at_most": 27,
            "from_ms": now - HOUR,
            "to_ms": now - HOUR // 2,
        }
    ]
    assert edit["committed_at"] is not None
    (longer,) = (await preview(client, joined(grace="2h")))["effects"]
    assert (longer["at_least"], longer["at_most"], longer["from_ms"]) == (0, 0, None)


async def test_a_shorter_grace_of_windows_tells_which_would_close(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    now = 10 * HOUR + 60_000
    committed(
        dsn,
        {
            "clocks": {"window": now},
            "waiting": {"window": {"0": [[10 * HOUR, 10 * HOUR, 1, 1], [11 * HOUR, 11 * HOUR, 1, 1]]}},
        },
    )
    (effect,) = (await preview(client, {**WINDOWS, "window": {**WINDOWS["window"], "grace": "0s"}}))["effects"]
    assert (effect["effect"], effect["at_least"], effect["at_most"]) == ("windows_closed", 1, 1)
    assert (effect["from_ms"], effect["to_ms"]) == (10 * HOUR, 10 * HOUR)


async def test_limits_of_suppression_tell_what_they_let_go(client: httpx.AsyncClient, dsn: str) -> None:
    assert (await client.post("/v1/queries", json=LIMITED)).status_code == 201
    now = 10 * HOUR
    committed(
        dsn,
        {
            "clocks": {"suppress": now},
            "waiting": {"suppress": {"0": [[now - HOUR, now - HOUR, 4, 4], [now, now, 50, 50]]}},
        },
    )
    suppress = {**LIMITED["suppress"], "limit": "1h", "buffer": {"max_rows": 10, "when_full": "emit_early"}}
    effects = (await preview(client, {**LIMITED, "suppress": suppress}))["effects"]
    assert [(e["pointer"], e["effect"], e["at_least"], e["at_most"]) for e in effects] == [
        ("/suppress/limit", "updates_let_go", 4, 4),
        ("/suppress/buffer", "updates_let_go", 44, 44),
    ]
    suppress["buffer"] = {"max_rows": 10, "when_full": "stop"}
    assert (await preview(client, {**LIMITED, "suppress": suppress}))["effects"][1]["effect"] == "buffer_overrun"


async def test_a_shorter_retention_of_windows_counts_the_rows_that_go(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    committed(dsn, {}, stream_time_ms=100 * HOUR)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for hour in (1, 2, 90):
            connection.execute(
                "INSERT INTO views.delays VALUES ('JFK', timestamptz 'epoch' + %s * interval '1 hour', "
                "timestamptz 'epoch' + %s * interval '1 hour', 2, 1.5, 9)",
                (hour - 1, hour),
            )
    (effect,) = (await preview(client, {**WINDOWS, "window": {**WINDOWS["window"], "retention": "1d"}}))["effects"]
    assert (effect["effect"], effect["at_least"], effect["at_most"]) == ("rows_removed", 2, 2)
    assert (effect["from_ms"], effect["to_ms"]) == (HOUR, 2 * HOUR)


async def test_a_shorter_history_counts_the_versions_that_can_no_longer_be_read(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/tables/weather", json={**TABLE, "versioned": {"history_retention": "2h"}})
    assert (await client.post("/v1/queries", json=VERSIONED)).status_code == 201
    committed(dsn, {}, stream_time_ms=100 * HOUR)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for ts in (80, 85, 99):
            connection.execute("INSERT INTO history.temps VALUES ('JFK', 1.5, 'epoch', %s, false)", (ts * HOUR,))
    shorter = {**VERSIONED, "into": {"table": "temps", "versioned": {"history_retention": "12h"}}}
    edit = await preview(client, shorter)
    assert [(e["effect"], e["at_least"], e["at_most"]) for e in edit["effects"]] == [("versions_unreadable", 1, 1)]
    before = (await client.get("/v1/tables/temps")).json()["version"]
    assert (await client.put("/v1/queries/temps", json=shorter)).status_code == 200
    assert (await client.get("/v1/tables/temps")).json()["version"] == before + 1
    assert (await preview(client, VERSIONED))["changes"][0]["kind"] == "needs_new_state", "what is gone cannot be promised again"


async def test_a_history_that_others_were_planned_with_stays(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/tables/weather", json={**TABLE, "versioned": {"history_retention": "2h"}})
    await client.post("/v1/queries", json=VERSIONED)
    reader = {"name": "reader", "from": {"table": "temps"}, "into": {"table": "reader_out"}}
    assert (await client.post("/v1/queries", json=reader)).status_code == 201
    shorter = {**VERSIONED, "into": {"table": "temps", "versioned": {"history_retention": "12h"}}}
    problem(await client.put("/v1/queries/temps", json=shorter), 409, "relation_in_use")


async def test_fewer_late_records_are_counted(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=JOIN)
    committed(dsn, {})
    with psycopg.connect(dsn, autocommit=True) as connection:
        for age, reason in ((1, "late_dropped"), (2, "late_dropped"), (100, "late_diverted")):
            connection.execute(
                "INSERT INTO log.late_record (query_id, input, reason, event_time_ms, record, at) "
                "SELECT id, 'w', %s, 5, '{}', now() - %s * interval '1 hour' FROM slackwater.query",
                (reason, age),
            )
    effects = (await preview(client, {**JOIN, "late_records": {"max_rows": 1, "retention": "2d"}}))["effects"]
    assert [(e["pointer"], e["at_most"]) for e in effects] == [("/late_records/retention", 1), ("/late_records/max_rows", 1)]


async def test_the_refusal_gives_a_reason_per_field(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    edited = {**WINDOWS, "tasks": 2, "window": {**WINDOWS["window"], "size": "9h", "grace": "1h"}}
    body = problem(await client.put("/v1/queries/delays", json=edited), 409, "state_incompatible")
    assert [(fault["pointer"], fault["code"]) for fault in body["errors"]] == [("/window/size", "needs_new_state")]


async def test_another_number_of_tasks_keeps_the_state(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    before = stored(dsn)
    edited = {**WINDOWS, "tasks": 7}
    edit = await preview(client, edited)
    assert (edit["kind"], [(change["pointer"], change["kind"]) for change in edit["changes"]]) == (
        "repartition",
        [("/tasks", "repartition")],
    )
    response = await client.put("/v1/queries/delays", json=edited)
    assert (response.status_code, response.json()["definition"]["tasks"], response.json()["generation"]) == (200, 7, 2)
    assert stored(dsn)[0] == before[0], "the checkpoint is the same"


def stored(dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT checkpoint_id, release_nonce, restart_nonce FROM slackwater.query").fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("start", ["earliest", "latest", "2013-01-01T00:00:00Z"])
async def test_a_query_begins_anew_where_it_is_told(client: httpx.AsyncClient, dsn: str, start: str) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    before = stored(dsn)
    response = await client.put("/v1/queries/delays", params={"state": "discard", "from": start}, json=WINDOWS)
    assert response.status_code == 200, response.text
    wanted = start if start in ("earliest", "latest") else {"at": start}
    assert (response.json()["definition"]["start"], response.json()["generation"]) == (wanted, 2)
    assert stored(dsn)[0] != before[0]
    events = (await client.get("/v1/queries/delays/events")).json()["items"]
    assert events[-1]["detail"]["edit"] == "needs_new_state"


async def test_discard_alone_is_a_permission_and_begins_nothing_anew(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    before = stored(dsn)
    await client.put("/v1/queries/delays", params={"state": "discard"}, json=WINDOWS)
    assert stored(dsn) == before


@pytest.mark.parametrize(
    "params",
    [
        {"from": "earliest"},
        {"from": "yesterday", "state": "discard"},
        {"state": "keep"},
        {"flush": "later"},
        {"state": "discard", "from": ""},
    ],
)
async def test_bad_ways_to_edit_are_refused(client: httpx.AsyncClient, problem: Problem, params: dict[str, str]) -> None:
    problem(await client.put("/v1/queries/delays", params=params, json=WINDOWS), 400, "bad_parameter")


async def test_a_release_is_a_request_to_the_next_launch(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=JOIN)
    response = await client.put("/v1/queries/joined", params={"flush": "now"}, json=joined(grace="10m"))
    assert response.status_code == 200, response.text
    assert (response.json()["generation"], stored(dsn)[1:]) == (2, (1, 1))
    await client.put("/v1/queries/joined", json=joined(grace="5m"))
    assert stored(dsn)[1:] == (1, 1), "the rest goes with the next record"
    unchanged = await client.put("/v1/queries/joined", params={"flush": "now"}, json=joined(grace="5m"))
    assert (unchanged.json()["generation"], stored(dsn)[1:]) == (3, (2, 2)), "or is asked for later"
    kinds = [event["kind"] for event in (await client.get("/v1/queries/joined/events")).json()["items"]]
    assert kinds.count("release_requested") == 2


async def test_a_new_beginning_has_nothing_to_release(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post("/v1/queries", json=JOIN)
    params = {"flush": "now", "state": "discard"}
    await client.put("/v1/queries/joined", params=params, json={**JOIN, "start": "latest"})
    assert stored(dsn)[1:] == (0, 0)


async def test_the_log_of_a_stream_keeps_what_its_retention_says(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    def retention() -> Any:
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT retention_ms FROM log.feed WHERE name = 'joined'").fetchone()

    await client.post("/v1/queries", json={**JOIN, "into": {"stream": "joined", "retention": "2d"}})
    before = stored(dsn)
    assert retention() == (2 * 86_400_000,)
    for kept, retention_ms in (("1d", 86_400_000), (None, None)):
        edited = {**JOIN, "into": {"stream": "joined", "retention": kept}}
        assert (await preview(client, edited))["changes"][0]["kind"] == "in_place"
        assert (await client.put("/v1/queries/joined", json=edited)).status_code == 200
        assert (retention(), stored(dsn)[0]) == ((retention_ms,), before[0])
    table = {**WINDOWS, "into": {"table": "delays", "retention": "2d"}}
    body = problem(await client.post("/v1/queries", json=table), 422, "invalid_value")
    assert "window.retention" in body["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("code", "is_anew"), [*((code, True) for code in sorted(CURED_BY_NEW_STATE)), ("source_unavailable", False)]
)
async def test_the_request_that_messages_of_failed_queries_name_starts_from_scratch(
    client: httpx.AsyncClient, dsn: str, code: str, is_anew: bool
) -> None:
    await client.put("/v1/queries/delays", json=WINDOWS)

    def checkpoint() -> object:
        with psycopg.connect(dsn, autocommit=True) as connection:
            return connection.execute("SELECT checkpoint_id FROM slackwater.query WHERE name = 'delays'").fetchone()

    before = checkpoint()
    assert (await client.put("/v1/queries/delays?state=discard", json=WINDOWS)).status_code == 200
    assert checkpoint() == before, "a query that is well keeps its state"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.query_status SET state = 'failed', error = jsonb_build_object('code', %s::text)", (code,)
        )
    assert (await client.put("/v1/queries/delays?state=discard", json=WINDOWS)).status_code == 200
    assert (checkpoint() != before) == is_anew

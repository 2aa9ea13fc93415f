"""Where results are delivered to, over HTTP: checked, begun, changed, ended, and told of in the status."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import STREAM, Problem
from tests.api.test_forks import COUNTS, begin
from tests.api.test_rewinds import commits, record

FILES = {"type": "files", "path": "out/delays", "format": "ndjson"}
QUERY: dict[str, Any] = {
    "name": "copies",
    "from": {"stream": "departures"},
    "select": {"flight": "flight", "origin": "origin"},
    "into": {"stream": "copies", "connector": FILES},
}


@pytest.fixture(scope="module")
def settings(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("lake")
    return Settings(database_url=dsn, data_dir=tmp_path_factory.mktemp("data"), delivery_root=root)  # type: ignore[arg-type]


def into(connector: dict[str, Any] | None, **parts: Any) -> dict[str, Any]:
    return {**QUERY, **parts, "into": {**QUERY["into"], "connector": connector}}


async def delivery(client: httpx.AsyncClient, name: str = "copies") -> dict[str, Any]:
    answer = await client.get(f"/v1/queries/{name}/status")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["delivery"]
    return found


async def events(client: httpx.AsyncClient, name: str = "copies") -> list[str]:
    items = (await client.get(f"/v1/queries/{name}/events")).json()["items"]
    return [each["kind"] for each in items if each["kind"].startswith("delivery")]


def write(dsn: str, rows: int, name: str = "copies") -> None:
    with ChangeWriter(dsn, name) as writer:
        writer.commit([("upsert", {"flight": number, "origin": "JFK"}, 1_000 * number) for number in range(rows)])


def brought(dsn: str, upto: int) -> None:
    """Note what the process notes that delivers."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE slackwater.delivery SET position = %s, planned = %s, delivered_rows = %s, event_time_ms = 5, delivered_at = now(),"
            " lease_expires_at = now() + interval '1 hour'",
            (upto, upto, upto),
        )


@pytest.fixture
async def stored(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/streams/departures", json=STREAM)).status_code == 201
    answer = await client.post("/v1/queries", json=QUERY)
    assert answer.status_code == 201, answer.text
    assert answer.json()["definition"]["into"]["connector"] == {
        **FILES,
        "start": "earliest",
        "every": "10s",
        "partition_by": None,
    }


async def test_the_status_tells_how_far_results_are_delivered(client: httpx.AsyncClient, stored: None, dsn: str) -> None:
    found = await delivery(client)
    assert (found["state"], found["reason"]["code"], found["lag_rows"]) == ("waiting", "no_driver", 0)
    write(dsn, 8)
    brought(dsn, 6)
    found = await delivery(client)
    assert (found["state"], found["reason"], found["position"], found["end_position"]) == ("delivering", None, 6, 8)
    assert (found["lag_rows"], found["delivered_rows"], found["type"]) == (2, 6, "files")
    metrics = (await client.get("/metrics")).text
    assert 'slackwater_delivery_lag_rows{query="copies"} 2.0' in metrics
    assert 'slackwater_delivered_rows_total{query="copies"} 6.0' in metrics
    assert 'slackwater_delivery_state{query="copies",state="delivering"} 1.0' in metrics


async def test_the_overview_tells_of_deliveries_what_the_status_tells(client: httpx.AsyncClient, stored: None, dsn: str) -> None:
    async def shown() -> Any:
        (found,) = (await client.get("/v1/overview")).json()["queries"]
        return found["delivery"]

    for rows, upto in ((0, None), (8, 6)):
        write(dsn, rows)
        if upto is not None:
            brought(dsn, upto)
        status = await delivery(client)
        assert await shown() == {part: status[part] for part in ("state", "reason", "lag_rows")}
    assert (await client.put("/v1/queries/copies", json=into(None))).status_code == 200
    assert await shown() is None


async def test_a_query_without_an_output_has_no_delivery(client: httpx.AsyncClient, stored: None) -> None:
    assert (await client.put("/v1/queries/copies", json=into(None))).status_code == 200
    assert await delivery(client) is None
    assert await events(client) == ["delivery_begun", "delivery_ended"]


async def test_a_target_that_cannot_be_written_is_refused_before_anything_is_stored(
    client: httpx.AsyncClient, stored: None, problem: Problem, settings: Settings
) -> None:
    wrong = {**into({**FILES, "path": "/elsewhere"}), "name": "others"}
    wrong["into"] = {**wrong["into"], "stream": "others"}
    for answer in (await client.post("/v1/queries", json=wrong), await client.put("/v1/queries/others", json=wrong)):
        problem(answer, 422, "path_not_allowed", "/into/connector/path")
    assert (await client.get("/v1/queries/others")).status_code == 404
    checked = (await client.post("/v1/validations", json=wrong)).json()
    assert (checked["valid"], [each["pointer"] for each in checked["problems"]]) == (False, ["/into/connector/path"])
    statement = (
        """CREATE STREAM others WITH (INTO_CONNECTOR='{"type": "files", "path": "/elsewhere"}') AS SELECT * FROM departures"""
    )
    problem(await client.post("/v1/statements", json={"sql": statement}), 422, "path_not_allowed")


async def test_a_broker_that_is_away_is_told_of_at_once(client: httpx.AsyncClient, stored: None, problem: Problem) -> None:
    missing = {"type": "kafka", "connection": "nobody", "topic": "t"}
    problem(await client.put("/v1/queries/copies", json=into(missing)), 422, "connection_missing", "/into/connector/connection")
    away = {"type": "kafka", "bootstrap": "127.0.0.1:1"}
    assert (await client.put("/v1/connections/away", json=away)).status_code == 201
    named = {"type": "kafka", "connection": "away", "topic": "t"}
    problem(await client.put("/v1/queries/copies", json=into(named)), 503, "target_unavailable")
    checked = (await client.post("/v1/validations", json=into(named))).json()
    assert [(each["pointer"], each["code"]) for each in checked["problems"]] == [("/into/connector", "target_unavailable")]


async def test_a_connection_to_something_else_is_refused_where_it_is_named(
    client: httpx.AsyncClient, stored: None, problem: Problem
) -> None:
    for body in ({"type": "kafka", "bootstrap": "127.0.0.1:1"}, {"type": "registry", "urls": ["http://127.0.0.1:1"]}):
        assert (await client.put(f"/v1/connections/some_{body['type']}", json=body)).status_code == 201
    registered = {"format": "avro", "registry": "some_kafka"}
    for pointer, more in (
        ("connection", {"connection": "some_registry"}),
        ("value/registry", {"value": registered}),
        ("key/registry", {"key": registered, "value": {"format": "json", "has_key": False}}),
    ):
        named = {"type": "kafka", "connection": "some_kafka", "topic": "t", **more}
        answer = await client.put("/v1/queries/copies", json=into(named))
        problem(answer, 422, "connection_of_another_type", f"/into/connector/{pointer}")


@pytest.mark.parametrize(
    ("connector", "is_new"),
    [({**FILES, "every": "1s"}, False), ({**FILES, "path": "elsewhere"}, True), ({**FILES, "start": "latest"}, True)],
)
async def test_an_edit_of_the_output_is_in_place_and_begins_a_new_delivery_where_the_target_is_another(
    client: httpx.AsyncClient, stored: None, dsn: str, connector: dict[str, Any], is_new: bool
) -> None:
    write(dsn, 4)
    brought(dsn, 3)
    before = await delivery(client)
    preview = (await client.post("/v1/validations", json=into(connector))).json()["edit"]
    assert preview["kind"] == "in_place"
    assert "a new delivery begins" in preview["changes"][0]["reason"]
    answer = await client.put("/v1/queries/copies", json=into(connector))
    assert answer.status_code == 200, answer.text
    after = await delivery(client)
    assert (after["id"] != before["id"]) == is_new
    start = {"earliest": 0, "latest": 4}[connector.get("start", "earliest")]
    assert after["position"] == (start if is_new else 3)


async def test_a_result_that_begins_anew_is_delivered_anew(client: httpx.AsyncClient, stored: None, dsn: str) -> None:
    write(dsn, 4)
    brought(dsn, 4)
    before = await delivery(client)
    edited = into(FILES, where="flight > 1")
    assert (await client.put("/v1/queries/copies", json=edited, params={"state": "discard"})).status_code == 200
    after = await delivery(client)
    assert after["id"] != before["id"]
    assert (after["position"], after["end_position"]) == (0, 0)


async def test_a_delivery_ends_with_its_query(client: httpx.AsyncClient, stored: None, dsn: str) -> None:
    assert (await client.delete("/v1/queries/copies", params={"state": "keep"})).status_code in (202, 204)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.delivery").fetchone() == (0,)


def counts(path: str | None, **parts: Any) -> dict[str, Any]:
    connector = None if path is None else {**FILES, "path": path}
    return {**COUNTS, **parts, "into": {"table": parts.get("name", "counts"), "connector": connector}}


@pytest.fixture
async def counting(client: httpx.AsyncClient, sources: None, settings: Settings, dsn: str) -> None:
    """A query that delivers, has committed three times, of which each commit is retained, and is stopped."""
    assert (await client.post("/v1/queries", json=counts("counts"))).status_code == 201
    begin(settings, dsn, "counts")
    commits(dsn, ("JFK", 1), ("LGA", 1))
    commits(dsn, ("JFK", 2))
    commits(dsn, ("JFK", 3), ("EWR", 1))
    await client.post("/v1/streams/departures/records", json=[record(n) for n in range(6)])


async def test_a_fork_delivers_nothing_to_where_its_original_delivers(
    client: httpx.AsyncClient, counting: None, dsn: str, problem: Problem
) -> None:
    forked = await client.post("/v1/queries/counts/fork", json={"name": "second"})
    assert forked.status_code == 201, forked.text
    assert forked.json()["definition"]["into"]["connector"] is None
    assert "/into/connector" in [each["pointer"] for each in forked.json()["changes"]]
    assert await delivery(client, "second") is None

    own = counts("third", name="third")
    wrong = {**own, "into": {**own["into"], "connector": {**FILES, "path": "/elsewhere"}}}
    refused = await client.post("/v1/queries/counts/fork", json={"name": "third", "definition": wrong})
    problem(refused, 422, "path_not_allowed", "/definition/into/connector/path")
    forked = await client.post("/v1/queries/counts/fork", json={"name": "third", "definition": own})
    assert forked.status_code == 201, forked.text
    moved = await delivery(client, "third")
    assert moved["lag_rows"] == 5

    taking = {"from_fork": "third"}
    problem(await client.put("/v1/queries/counts", params=taking), 409, "fork_not_possible", "?from_fork")
    assert (await client.put("/v1/queries/counts", json=counts(None))).status_code == 200
    answer = await client.put("/v1/queries/counts", params=taking)
    assert answer.status_code == 200, answer.text
    assert (await delivery(client, "counts"))["id"] == moved["id"]


async def test_what_was_delivered_is_not_taken_back_by_a_rewind(
    client: httpx.AsyncClient, counting: None, dsn: str, problem: Problem
) -> None:
    brought(dsn, 3)
    obstacles = {
        each["batch_id"]: each["obstacle"] for each in (await client.get("/v1/queries/counts/restore-points")).json()["items"]
    }
    assert (obstacles[2], obstacles[1]) == (None, None)
    assert "1 results after it were delivered" in obstacles[0]
    refused = await client.post("/v1/queries/counts/rewind", json={"batch_id": 0})
    problem(refused, 409, "rewind_not_possible", "/batch_id")
    before = await delivery(client, "counts")
    kept = await client.post("/v1/queries/counts/rewind", json={"batch_id": 1})
    assert kept.status_code == 200, kept.text
    assert (await delivery(client, "counts"))["id"] == before["id"]
    other = {"batch_id": 0, "definition": counts("other")}
    begun = await client.post("/v1/queries/counts/rewind", json=other)
    assert begun.status_code == 200, begun.text
    after = await delivery(client, "counts")
    assert after["id"] != before["id"]
    assert (after["position"], after["end_position"]) == (0, 2)


async def test_a_restart_tries_a_stopped_delivery_again(client: httpx.AsyncClient, stored: None, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """UPDATE slackwater.delivery SET is_stopped = true, error = '{"code": "delivery_refused", "detail": "no"}'"""
        )
    found = await delivery(client)
    assert (found["state"], found["reason"]["code"]) == ("stopped", "delivery_refused")
    assert "restart" in found["reason"]["cure"]
    assert (await client.post("/v1/queries/copies/restart")).status_code == 202
    assert (await delivery(client))["reason"]["code"] == "no_driver"


async def test_a_stopped_query_delivers_nothing(client: httpx.AsyncClient, stored: None) -> None:
    assert (await client.put("/v1/queries/copies/desired-state", json={"state": "stopped"})).status_code == 202
    found = await delivery(client)
    assert (found["state"], found["reason"]["code"]) == ("stopped", "query_stopped")


async def test_a_connection_that_results_go_through_is_in_use(
    client: httpx.AsyncClient, stored: None, dsn: str, problem: Problem
) -> None:
    broker = {"type": "kafka", "bootstrap": "127.0.0.1:1"}
    assert (await client.put("/v1/connections/broker", json=broker)).status_code == 201
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            """UPDATE slackwater.query SET definition = jsonb_set(definition::jsonb, '{into,connector}',
                '{"type": "kafka", "connection": "broker", "topic": "t"}')"""
        )
    problem(await client.delete("/v1/connections/broker"), 409, "connection_in_use")


async def test_sql_says_where_results_are_delivered(client: httpx.AsyncClient, stored: None) -> None:
    shown = (await client.get("/v1/queries/copies")).json()["sql"]
    assert """INTO_CONNECTOR='{"type": "files", "path": "out/delays", "format": "ndjson"}'""" in shown.replace(" = ", "=")
    statement = 'CREATE STREAM more WITH (INTO_CONNECTOR=\'{"type": "delta", "path": "more"}\') AS SELECT * FROM departures'
    answer = await client.post("/v1/statements", json={"sql": statement})
    assert answer.status_code == 200, answer.text
    assert (await delivery(client, "more"))["type"] == "delta"

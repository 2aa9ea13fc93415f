"""Registering, changing, listing and deleting sources."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Json

from app.upkeep.retention import RetentionLimits, trim_once
from tests.api.conftest import RECORD, STREAM, TABLE, WINDOWS, Problem


async def test_a_stream_is_registered_with_every_default(client: httpx.AsyncClient) -> None:
    response = await client.put("/v1/streams/departures", json=STREAM)
    assert response.status_code == 201
    assert response.headers["location"] == "/v1/streams/departures"
    assert response.headers["etag"] == '"1"'
    body = response.json()
    assert (
        body["definition"] | {"max_future_skew": "1d", "on_bad_record": "reject", "event_time_format": None} == body["definition"]
    )
    assert body["definition"]["connector"] == {"type": "log", "partitions": 2, "feed": None, "where": None, "retention": None}
    assert [part["next_offset"] for part in body["partitions"]] == [0, 0]
    assert (body["origin"], body["read_by"], body["produced_by"]) == ("source", [], None)
    assert body == {**(await client.get("/v1/streams/departures")).json(), "warnings": [], "sql": body["sql"]}


async def test_the_statement_of_a_source_means_its_definition(client: httpx.AsyncClient) -> None:
    for kind, name, definition in (("streams", "departures", STREAM), ("tables", "weather", {**TABLE, "materialize": True})):
        body = (await client.put(f"/v1/{kind}/{name}", json=definition)).json()
        assert (await client.delete(f"/v1/{kind}/{name}")).status_code == 204
        answer = await client.post("/v1/statements", json={"sql": body["sql"]})
        assert answer.status_code == 200, answer.text
        assert (await client.get(f"/v1/{kind}/{name}")).json()["definition"] == body["definition"]


async def test_what_is_only_validated_is_answered_as_it_would_be_and_leaves_nothing(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    table = {**TABLE, "materialize": True}
    judged = await client.put("/v1/tables/weather", params={"validate": True}, json=table)
    assert judged.status_code == 200, judged.text
    assert "etag" not in judged.headers
    problem(await client.get("/v1/tables/weather"), 404, "relation_not_found")
    assert (await client.get("/v1/queries")).json()["items"] == []
    made = await client.put("/v1/tables/weather", json=table)
    assert made.status_code == 201
    differing = {"created_at", "updated_at"}
    assert {k: v for k, v in judged.json().items() if k not in differing} == {
        k: v for k, v in made.json().items() if k not in differing
    }
    assert (await client.get("/v1/audit")).json()["items"][1:] == [], "what was only validated was no change"
    there = {"if-none-match": "*"}
    problem(await client.put("/v1/tables/weather?validate=true", json=table, headers=there), 412, "version_mismatch")
    problem(await client.put("/v1/streams/weather?validate=true", json=STREAM), 409, "name_taken")
    narrower = {**STREAM, "columns": {"origin": "strin"}, "key": ["flight"], "event_time": None}
    problem(await client.put("/v1/streams/departures?validate=true", json=narrower), 422, "invalid_value", "/columns/origin")


async def test_columns_keep_their_order(client: httpx.AsyncClient) -> None:
    columns = {"zulu": "string", "alpha": "int", "mike": "double"}
    await client.put("/v1/streams/ordered", json={"columns": columns})
    body = (await client.get("/v1/streams/ordered")).json()
    assert list(body["columns"]) == list(body["definition"]["columns"]) == list(columns)


async def test_an_equal_definition_changes_nothing(client: httpx.AsyncClient) -> None:
    first = await client.put("/v1/tables/weather", json=TABLE)
    second = await client.put("/v1/tables/weather", json=first.json()["definition"])
    assert second.status_code == 200
    assert second.json() == first.json()


async def test_limits_change_in_place_and_raise_the_version(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    await client.post("/v1/streams/departures/records", json=RECORD)
    changed = {**STREAM, "max_future_skew": None, "connector": {"type": "log", "partitions": 2, "retention": "3d"}}
    response = await client.put("/v1/streams/departures", json=changed)
    assert (response.status_code, response.json()["version"]) == (200, 2)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT retention_ms FROM log.feed WHERE name = 'departures'").fetchone() == (3 * 86_400_000,)


async def test_an_empty_relation_can_change_altogether(client: httpx.AsyncClient) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    changed = {"columns": {"a": "int"}, "connector": {"partitions": 3}}
    response = await client.put("/v1/streams/departures", json=changed)
    assert response.status_code == 200, response.text
    assert len(response.json()["partitions"]) == 3


async def test_a_change_that_breaks_a_reader_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    await client.post("/v1/queries", json=WINDOWS)
    changed = {**STREAM, "columns": {name: kind for name, kind in STREAM["columns"].items() if name != "delay"}}
    problem(await client.put("/v1/streams/departures", json=changed), 409, "relation_in_use")


async def test_a_change_in_place_restarts_the_readers(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    await client.post("/v1/queries", json=WINDOWS)
    assert (await client.put("/v1/streams/departures", json={**STREAM, "on_bad_record": "stop"})).status_code == 200
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT restart_nonce FROM slackwater.query").fetchone() == (1,)


async def test_streams_and_tables_share_their_names(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    problem(await client.put("/v1/tables/departures", json=TABLE), 409, "name_taken")
    problem(await client.get("/v1/tables/departures"), 404, "relation_not_found")


async def test_lists_go_page_by_page(client: httpx.AsyncClient) -> None:
    for name in ("a", "b", "c"):
        await client.put(f"/v1/streams/{name}", json={"columns": {"x": "int"}})
    first = (await client.get("/v1/streams", params={"limit": 2})).json()
    second = (await client.get("/v1/streams", params={"limit": 2, "cursor": first["next"]})).json()
    assert [item["name"] for item in (*first["items"], *second["items"])] == ["a", "b", "c"]
    assert second["next"] is None
    assert (await client.get("/v1/tables")).json() == {"items": [], "next": None}


async def test_a_deleted_source_takes_its_feed_and_rejects_along(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    await client.post("/v1/streams/departures/records", json=[RECORD, {}])
    assert (await client.delete("/v1/streams/departures")).status_code == 204
    assert (await client.get("/v1/streams/departures")).status_code == 404
    trim_once(dsn, RetentionLimits(changes_ms=60_000))
    with psycopg.connect(dsn) as connection:
        for table in ("log.feed", "log.head", "log.batch", "log.reject"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_a_shared_feed_stays_until_its_last_relation_goes(client: httpx.AsyncClient, dsn: str) -> None:
    for name in ("one", "two"):
        await client.put(f"/v1/streams/{name}", json={"columns": {"x": "int"}, "connector": {"feed": "events"}})
    await client.delete("/v1/streams/one")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(DISTINCT feed_id) FROM log.head").fetchone() == (1,)
    await client.delete("/v1/streams/two")
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM log.head").fetchone() == (0,)


async def test_relations_that_share_a_feed_have_its_partitions(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/one", json={"columns": {"x": "int"}, "connector": {"feed": "events", "partitions": 2}})
    response = await client.put(
        "/v1/streams/two", json={"columns": {"x": "int"}, "connector": {"feed": "events", "partitions": 3}}
    )
    problem(response, 409, "partitions_differ", "/connector/partitions")


async def test_a_result_is_a_relation_of_its_query(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    await client.post("/v1/queries", json=WINDOWS)
    body = (await client.get("/v1/tables/delays")).json()
    assert (body["origin"], body["produced_by"], body["definition"]) == ("derived", "delays", None)
    assert body["key"] == ["origin", "window_start", "window_end"]
    assert (await client.get("/v1/streams/departures")).json()["read_by"] == ["delays"]
    problem(await client.put("/v1/tables/delays", json=TABLE), 409, "relation_is_derived")
    problem(await client.delete("/v1/tables/delays"), 409, "relation_is_derived")
    problem(await client.post("/v1/tables/delays/records", json={}), 409, "not_appendable")


async def test_a_source_cannot_read_the_feed_of_a_result(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/departures", json=STREAM)
    await client.post("/v1/queries", json={**WINDOWS, "into": {"stream": "delays"}})
    response = await client.put("/v1/streams/sneaky", json={"columns": {"x": "int"}, "connector": {"feed": "delays"}})
    problem(response, 409, "feed_taken")


async def test_records_cannot_be_posted_to_files(client: httpx.AsyncClient, problem: Problem) -> None:
    connector = {"type": "files", "path": "/nowhere", "format": "csv"}
    assert (await client.put("/v1/streams/filed", json={"columns": {"x": "int"}, "connector": connector})).status_code == 201
    problem(await client.post("/v1/streams/filed/records", json={"x": 1}), 409, "not_appendable")
    problem(await client.get("/v1/streams/filed/records"), 409, "not_readable")


COUNTED: dict[str, Any] = {"columns": {"t": "bigint", "i": "int", "at": "timestamp", "s": "string"}, "event_time": "t"}


@pytest.mark.parametrize(
    ("parts", "code", "pointer"),
    [
        ({"event_time_unit": "minutes"}, "unknown_value", "/event_time_unit"),
        ({"event_time": None, "event_time_unit": "s"}, "unknown_field", "/event_time_unit"),
        ({"event_time": "at", "event_time_unit": "ms"}, "type_mismatch", "/event_time_unit"),
        ({"event_time": "s", "event_time_unit": "s", "event_time_format": "%s"}, "type_mismatch", "/event_time_unit"),
        ({"event_time": "i"}, "type_mismatch", "/event_time"),
        ({"event_time": "i", "event_time_unit": "ms"}, "type_mismatch", "/event_time_unit"),
    ],
)
async def test_a_unit_belongs_to_an_event_time_of_whole_numbers(
    client: httpx.AsyncClient, problem: Problem, parts: dict[str, Any], code: str, pointer: str
) -> None:
    problem(await client.put("/v1/streams/counted", json={**COUNTED, **parts}), 422, code, pointer)


async def test_the_unit_of_event_times_is_spelled_out_and_cannot_change_while_there_are_records(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    assert (await client.put("/v1/streams/counted", json=COUNTED)).json()["definition"]["event_time_unit"] == "ms"
    changed = await client.put("/v1/streams/counted", json={**COUNTED, "event_time_unit": "s"})
    assert (changed.status_code, changed.json()["definition"]["event_time_unit"]) == (200, "s")
    await client.post("/v1/streams/counted/records", json={"t": 1_748_772_000})
    problem(await client.put("/v1/streams/counted", json=COUNTED), 409, "relation_not_empty", "/event_time_unit")


async def test_a_definition_stored_before_there_were_units_means_milliseconds(
    client: httpx.AsyncClient, dsn: str, problem: Problem
) -> None:
    await client.put("/v1/streams/counted", json=COUNTED)
    with psycopg.connect(dsn, autocommit=True) as connection:
        [(stored,)] = connection.execute("SELECT definition FROM slackwater.relation").fetchall()
        del stored["event_time_unit"]
        connection.execute("UPDATE slackwater.relation SET definition = %s", (Json(stored),))
    answer = await client.post("/v1/streams/counted/records", json={"t": 1_748_772_000_000})
    assert (answer.json()["appended"], answer.json()["warnings"]) == (1, [])
    same = await client.put("/v1/streams/counted", json=COUNTED)
    assert (same.status_code, same.json()["version"]) == (200, 1)
    seconds = {**COUNTED, "event_time_unit": "s"}
    problem(await client.put("/v1/streams/counted", json=seconds), 409, "relation_not_empty", "/event_time_unit")

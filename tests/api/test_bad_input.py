"""The issue's list of bad input, each over HTTP: a 4xx with code and pointer, or a reject that never stops a query."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import psycopg
import pytest

from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")
RECORDS = "/v1/streams/departures/records"
TWO = 2**53


def join(**changes: Any) -> dict[str, Any]:
    return {**JOIN, "joins": [{**JOIN["joins"][0], **changes}]}


def window(**changes: Any) -> dict[str, Any]:
    return {**WINDOWS, "window": {**WINDOWS["window"], **changes}}


# -- bodies --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{", b"", b"{'a': 1}", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000, b'{"a": 1} x'])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/queries"),
        ("PUT", "/v1/queries/q"),
        ("PUT", "/v1/streams/s"),
        ("POST", "/v1/validations"),
        ("PUT", "/v1/queries/q/desired-state"),
    ],
)
async def test_malformed_json_is_refused(
    client: httpx.AsyncClient, problem: Problem, method: str, path: str, body: bytes
) -> None:
    problem(
        await client.request(method, path, content=body, headers={"content-type": "application/json"}), 400, "malformed_json", ""
    )


@pytest.mark.parametrize("body", [b"{", b"", b"1", b'"x"', b"\xff", b"[" * 100_000])
async def test_malformed_records_are_refused(client: httpx.AsyncClient, problem: Problem, body: bytes) -> None:
    problem(await client.post(RECORDS, content=body, headers={"content-type": "application/json"}), 400, "malformed_json", "")


async def test_a_malformed_arrow_stream_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    problem(await client.post(RECORDS, content=b"ARROW1", headers=headers), 400, "malformed_arrow", "")


async def test_another_media_type_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    response = await client.post("/v1/queries", content=b"a=b", headers={"content-type": "application/x-www-form-urlencoded"})
    problem(response, 415, "unsupported_media_type")


@pytest.mark.parametrize("path", ["/v1/queries", RECORDS])
async def test_a_compressed_body_is_refused(client: httpx.AsyncClient, problem: Problem, path: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    problem(await client.post(path, content=b"{}", headers=headers), 415, "unsupported_encoding")


@pytest.mark.parametrize(("method", "path"), [("POST", RECORDS), ("POST", "/v1/queries"), ("PUT", "/v1/streams/s")])
@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_body_over_the_limit_is_refused(
    client: httpx.AsyncClient, problem: Problem, method: str, path: str, is_declared: bool
) -> None:
    async def chunks() -> Any:
        for _ in range(65):
            yield b" " * 1024 * 1024

    headers = {"content-type": "application/json"} | ({"content-length": str(65 * 1024 * 1024)} if is_declared else {})
    problem(await client.request(method, path, content=chunks(), headers=headers), 413, "body_too_large")


# -- definitions ---------------------------------------------------------------------------------------------------------------------

BAD_QUERIES: list[tuple[dict[str, Any], str, str]] = [
    ({**JOIN, "tasks": "many"}, "invalid_value", "/tasks"),
    ({**JOIN, "joins": "weather"}, "invalid_value", "/joins"),
    ({**JOIN, "surprise": 1}, "unknown_field", "/surprise"),
    ({name: value for name, value in JOIN.items() if name != "into"}, "field_missing", "/into"),
    (join(grace="soon"), "duration_malformed", "/joins/0/grace"),
    ({**JOIN, "name": "Robert'); DROP TABLE students; --"}, "malformed_name", "/name"),
    ({**JOIN, "into": {"stream": 'x"; DROP SCHEMA log; --'}}, "malformed_name", "/into/stream"),
    ({**JOIN, "select": {'a"; --': "departures.origin"}}, "malformed_name", None),
    ({**JOIN, "where": "departures.nowhere = 1"}, "unknown_column", "/where"),
    ({**JOIN, "select": {"a": "pg_sleep(10)"}}, "unknown_function", "/select/a"),
    ({**JOIN, "select": {"a": "query_to_xml('select 1', true, false, '')"}}, "unknown_function", "/select/a"),
    ({**JOIN, "where": "1 = 1; DROP TABLE slackwater.query"}, None, "/where"),
    ({**JOIN, "where": "departures.origin = (SELECT usename FROM pg_user)"}, None, "/where"),
    ({**JOIN, "where": "departures.flight + 'x' = 1"}, "type_mismatch", "/where"),
    ({**JOIN, "where": "departures.flight"}, "type_mismatch", "/where"),
    (join(grace="3d"), "grace_exceeds_history_retention", "/joins/0/grace"),
    (window(retention="1h"), "retention_below_size_plus_grace", "/window/retention"),
    (window(type="hopping", advance="2h"), "advance_exceeds_size", "/window/advance"),
    ({**JOIN, "from": {"stream": "nowhere"}}, "unknown_relation", "/from/stream"),
    (join(table="nowhere"), "unknown_relation", "/joins/0/table"),
    ({**WINDOWS, "into": {"table": "delays"}, "select": {"flights": "flights"}}, "key_missing_in_select", "/select"),
    ({**JOIN, "suppress": {"mode": "until_window_closes"}}, "final_without_window", "/suppress/mode"),
    ({**JOIN, "idle": {"after": "0s"}}, "invalid_value", "/idle/after"),
    ({**JOIN, "into": {"stream": "out", "materialize_open": True}}, "unsupported_option", "/into/materialize_open"),
    ({**WINDOWS, "name": "x" * 64}, "malformed_name", "/name"),
]


@pytest.mark.parametrize(("definition", "code", "pointer"), BAD_QUERIES)
async def test_a_bad_query_is_refused_with_a_pointer_and_leaves_nothing(
    client: httpx.AsyncClient, dsn: str, definition: dict[str, Any], code: str | None, pointer: str | None
) -> None:
    response = await client.post("/v1/queries", json=definition)
    assert response.status_code == 422, response.text
    body = response.json()
    assert body["detail"]
    assert all(fault["detail"] and fault["code"] for fault in body["errors"])
    if pointer is not None:
        assert pointer in [fault["pointer"] for fault in body["errors"]], body
    if code is not None:
        assert code in [fault["code"] for fault in body["errors"]], body
    checked = await client.post("/v1/validations", json=definition)
    assert [fault["pointer"] for fault in checked.json()["problems"]] == [fault["pointer"] for fault in body["errors"]]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.query").fetchone() == (0,)


async def test_all_faults_are_reported_at_once(client: httpx.AsyncClient, problem: Problem) -> None:
    definition = {**join(grace="3d"), "where": "departures.nowhere = 1"}
    body = problem(await client.post("/v1/queries", json=definition), 422, "definition_invalid")
    assert {fault["pointer"] for fault in body["errors"]} == {"/joins/0/grace", "/where"}


async def test_grace_on_an_unversioned_table_is_refused_with_the_ways_out(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/tables/plain", json={**TABLE, "versioned": None})
    definition = join(table="plain", on="departures.origin = w.origin")
    body = problem(await client.post("/v1/queries", json=definition), 422, "grace_needs_versioned_table", "/joins/0/grace")
    assert "unversioned_ok" in body["detail"]


async def test_a_taken_name_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.post("/v1/queries", json=JOIN)
    problem(await client.post("/v1/queries", json=JOIN), 409, "name_taken")
    problem(await client.post("/v1/queries", json={**JOIN, "name": "other"}), 409, "name_taken")
    problem(await client.put("/v1/tables/departures", json=TABLE), 409, "name_taken")


async def test_deleting_a_relation_that_a_query_reads_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.post("/v1/queries", json=JOIN)
    body = problem(await client.delete("/v1/tables/weather"), 409, "relation_in_use")
    assert "joined" in body["detail"]


async def test_the_name_in_the_body_must_be_that_of_the_path(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.put("/v1/queries/other", json=JOIN), 422, "name_mismatch", "/name")


BAD_SOURCES: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("streams", {**STREAM, "columns": {"a": "varchar"}}, None, "/columns/a"),
    ("streams", {**STREAM, "columns": {}}, None, "/columns"),
    ("streams", {**STREAM, "key": ["nowhere"]}, "unknown_column", "/key/0"),
    ("streams", {**STREAM, "event_time": "nowhere"}, "unknown_column", "/event_time"),
    ("streams", {**STREAM, "event_time": "delay"}, "type_mismatch", "/event_time"),
    ("streams", {**STREAM, "columns": {**STREAM["columns"], "_ts": "bigint"}}, None, "/columns/_ts"),
    ("streams", {**STREAM, "connector": {"type": "log", "where": "nowhere = 1"}}, "unknown_column", "/connector/where"),
    ("streams", {**STREAM, "connector": {"type": "log", "partitions": 0}}, None, "/connector/partitions"),
    ("streams", {**STREAM, "connector": {"type": "carrier pigeon"}}, "unknown_value", "/connector/type"),
    ("streams", {**STREAM, "versioned": {"history_retention": "1d"}}, "unknown_field", "/versioned"),
    ("tables", {**TABLE, "versioned": {}}, "field_missing", "/versioned/history_retention"),
    ("tables", {name: value for name, value in TABLE.items() if name != "key"}, "field_missing", "/key"),
    ("tables", [], None, ""),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("kind", "definition", "code", "pointer"), BAD_SOURCES)
async def test_a_bad_source_is_refused_with_a_pointer(
    client: httpx.AsyncClient, kind: str, definition: dict[str, Any], code: str | None, pointer: str
) -> None:
    response = await client.put(f"/v1/{kind}/fresh", json=definition)
    assert response.status_code == 422, response.text
    faults = {fault["pointer"]: fault["code"] for fault in response.json()["errors"]}
    assert pointer in faults, response.text
    assert code in (None, faults[pointer])
    assert (await client.get(f"/v1/{kind}/fresh")).status_code == 404


@pytest.mark.parametrize("name", ["Departures", "1st", "a-b", "x" * 64, "drop table", 'a"b', "é", "views.x"])
async def test_a_bad_name_is_refused(client: httpx.AsyncClient, problem: Problem, name: str) -> None:
    problem(await client.put(f"/v1/streams/{name}", json=STREAM), 422, "malformed_name")


async def test_a_name_with_a_nul_character_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get("/v1/streams/a%00b"), 400, "bad_parameter")


# -- records -------------------------------------------------------------------------------------------------------------------------

SOON = int(time.time() * 1000) + 3 * 86_400_000
BAD_RECORDS: list[tuple[str, str]] = [
    ('{"origin": 5}', "wrong_type"),
    ('{"flight": "many"}', "wrong_type"),
    ('{"flight": 1.5}', "wrong_type"),
    ('{"flight": 9223372036854775808}', "wrong_type"),
    ('{"delay": "soon"}', "wrong_type"),
    ('{"delay": NaN}', "not_finite"),
    ('{"delay": 1e999}', "not_finite"),
    ('{"departed_at": null}', "event_time_missing"),
    ('{"departed_at": ""}', "wrong_type"),
    ('{"departed_at": "yesterday"}', "wrong_type"),
    ('{"departed_at": "1969-12-31T23:59:59Z"}', "event_time_out_of_range"),
    ('{"departed_at": -1}', "event_time_out_of_range"),
    ('{"departed_at": 253402300800000}', "event_time_out_of_range"),
    pytest.param(f'{{"departed_at": {SOON}}}', "future_event_time", id="in_three_days"),
    ('{"surprise": 1}', "unknown_column"),
    ('{"origin": "a\\u0000b"}', "invalid_string"),
    ('{"origin": "' + "x" * 1025 + '"}', "key_too_large"),
    ('{"$op": "explode"}', "wrong_type"),
]


@pytest.mark.parametrize(("change", "code"), BAD_RECORDS)
async def test_a_bad_record_is_kept_as_a_reject_and_holds_nothing_up(client: httpx.AsyncClient, change: str, code: str) -> None:
    bad = json.dumps(RECORD)[:-1] + "," + change[1:]
    answer = await client.post(RECORDS, content=f"[{bad},{json.dumps(RECORD)}]", headers={"content-type": "application/json"})
    if code == "not_finite" and answer.status_code == 400:  # NaN is no JSON; a parser may refuse the body for it
        assert answer.json()["code"] == "malformed_json"
        return
    assert answer.status_code == 200, answer.text
    assert answer.json()["appended"] == 1
    assert [(record["index"], record["code"]) for record in answer.json()["rejected"]] == [(0, code)]
    [reject] = (await client.get("/v1/streams/departures/rejects")).json()["items"]
    assert (reject["reason"], len(reject["excerpt"]) <= 1024) == (code, True)


async def test_nulls_and_empty_strings_are_values(client: httpx.AsyncClient) -> None:
    record = {"origin": "", "flight": None, "delay": None, "departed_at": RECORD["departed_at"]}
    answer = (await client.post(RECORDS, json=[record, {"departed_at": RECORD["departed_at"]}])).json()
    assert answer["appended"] == 2, answer


async def test_numbers_beyond_two_to_the_53_keep_every_digit(client: httpx.AsyncClient) -> None:
    lines = "\n".join(json.dumps({**RECORD, "flight": flight}) for flight in (TWO + 1, str(TWO + 3), -(2**63), 2**63 - 1))
    answer = await client.post(RECORDS, content=lines, headers={"content-type": "application/x-ndjson"})
    partition = answer.json()["offsets"][0]["partition"]
    page = (await client.get(RECORDS, params={"partition": partition, "bigints": "string"})).json()
    assert [record["flight"] for record in page["records"]] == [str(TWO + 1), str(TWO + 3), str(-(2**63)), str(2**63 - 1)]


async def test_a_ten_megabyte_string_is_a_value_but_no_key(client: httpx.AsyncClient, problem: Problem) -> None:
    await client.put("/v1/streams/texts", json={"key": ["id"], "columns": {"id": "string", "text": "string"}})
    large = "x" * 10_000_000
    assert (await client.post("/v1/streams/texts/records", json={"id": "a", "text": large})).json()["appended"] == 1
    body = problem(await client.post("/v1/streams/texts/records", json={"id": large}), 422, "records_rejected")
    assert body["errors"][0]["code"] == "key_too_large"
    assert len(json.dumps(body)) < 10_000
    [reject] = (await client.get("/v1/streams/texts/rejects")).json()["items"]
    assert len(reject["excerpt"]) <= 1024


@pytest.mark.parametrize("line", ["not json", "[1, 2]", "5", '"x"', '{"origin": '])
async def test_a_line_that_is_no_record_is_refused_alone(client: httpx.AsyncClient, line: str) -> None:
    body = f"{json.dumps(RECORD)}\n{line}\n{json.dumps(RECORD)}\n"
    answer = (await client.post(RECORDS, content=body, headers={"content-type": "application/x-ndjson"})).json()
    assert (answer["appended"], [record["index"] for record in answer["rejected"]]) == (2, [1])


@pytest.mark.parametrize("path", ["/v1/streams/nowhere/records", "/v1/tables/departures/records"])
async def test_records_for_an_unknown_relation_are_refused(client: httpx.AsyncClient, problem: Problem, path: str) -> None:
    problem(await client.post(path, json=RECORD), 404, "relation_not_found")


async def test_an_idempotency_key_has_a_length(client: httpx.AsyncClient, problem: Problem) -> None:
    for key in ("", "k" * 256):
        problem(await client.post(RECORDS, json=RECORD, headers={"idempotency-key": key}), 400, "bad_parameter")


# -- paths and methods ---------------------------------------------------------------------------------------------------------------


async def test_an_unknown_path_is_not_found(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get("/v1/nothing"), 404, "not_found")


async def test_another_method_is_refused_and_the_right_one_named(client: httpx.AsyncClient, problem: Problem) -> None:
    response = await client.patch("/v1/queries/q")
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "DELETE, GET, PUT"
    assert "DELETE, GET, PUT" in response.json()["detail"]
    assert (await client.post("/openapi.json")).headers["allow"]


async def test_no_message_speaks_of_python(client: httpx.AsyncClient) -> None:
    for path in ("/v1/queries", RECORDS):
        found = await client.post(path, content=b"[" * 100_000, headers={"content-type": "application/json"})
        assert "nested too deeply" in found.json()["detail"]
    found = await client.post("/v1/validations", json=[])
    problem = {"pointer": "", "code": "invalid_value", "detail": "Must be a JSON object", "type": "/v1/errors/invalid_value"}
    assert found.json()["problems"] == [problem]
    found = await client.post("/v1/validations", json={"name": "q", "into": {"stream": "x"}, "frm": {}})
    assert [(each["pointer"], each["detail"]) for each in found.json()["problems"]] == [
        ("/from", "Is required"), ("/frm", "There is no field `frm` here; did you mean from?"),
    ]  # fmt: skip
    half = {"name": "q", "from": {"stream": "departures"}, "where": "flight + ", "into": {"stream": "x"}}
    found = await client.post("/v1/validations", json=half)
    assert found.json()["problems"][0]["detail"] == '"flight + " is not complete: it ends where a value is needed'


async def test_a_time_whose_plus_became_a_space_says_so(client: httpx.AsyncClient, problem: Problem) -> None:
    path = "/v1/tables/weather/rows?as_of=2013-01-01T12:00:00"
    assert "%2B" in problem(await client.get(f"{path}+02:00"), 400, "bad_parameter", "?as_of")["detail"]
    assert "%2B" not in problem(await client.get(path), 400, "bad_parameter", "?as_of")["detail"]


async def test_a_filter_without_its_prefix_is_told_of_it(client: httpx.AsyncClient, problem: Problem) -> None:
    found = problem(await client.get("/v1/tables/weather/rows", params={"origin": "JFK"}), 400, "unknown_parameter", "?origin")
    assert "key.<column>" in found["detail"]
    assert "where.<column>" in found["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/queries", "/v1/streams", "/v1/tables", "/v1/streams/departures/rejects", "/healthz", "/v1/version"]
)
async def test_an_unknown_parameter_is_refused(client: httpx.AsyncClient, problem: Problem, path: str) -> None:
    problem(await client.get(path, params={"limt": 1}), 400, "unknown_parameter", "?limt")


@pytest.mark.parametrize("path", ["/v1/queries", "/v1/streams", "/v1/streams/departures/rejects"])
async def test_a_bad_cursor_is_refused(client: httpx.AsyncClient, problem: Problem, path: str) -> None:
    for cursor in ("x", "e30", "W10", "WzEsMl0", "WzEuNV0", "WyJhXHUwMDAwIl0", "WzE4NDQ2NzQ0MDczNzA5NTUxNjE2XQ"):
        problem(await client.get(path, params={"cursor": cursor}), 400, "bad_cursor", "?cursor")


async def test_a_fault_of_ours_shows_nothing_but_the_request_id(client: httpx.AsyncClient, dsn: str) -> None:
    transport = httpx.ASGITransport(client._transport.app, raise_app_exceptions=False)  # type: ignore[attr-defined]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE slackwater.relation RENAME COLUMN definition TO mislaid")
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                response = await http.get("/v1/tables/weather", headers={"x-request-id": "my-id"})
        finally:
            connection.execute("ALTER TABLE slackwater.relation RENAME COLUMN mislaid TO definition")
    assert response.status_code == 500, response.text
    body = response.json()
    assert (body["code"], body["request_id"], response.headers["x-request-id"]) == ("internal_error", "my-id", "my-id")
    assert "definition" not in response.text

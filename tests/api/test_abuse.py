"""Requests that want to break out or wear down: injection in every place that takes text, depth, size and number in every operation."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest

from tests.api.conftest import JOIN, MAX_BODY_BYTES, RECORD, STREAM, WINDOWS, Problem
from tests.api_document import api_document

pytestmark = pytest.mark.usefixtures("sources")
DEPTH = 100_000

# What is executed anywhere leaves a table `pwned` or the large object 4711 behind.
PAYLOADS = [
    "'; CREATE TABLE pwned(); --",
    '"; CREATE TABLE pwned(); --',
    "') ; CREATE TABLE pwned(); --",
    "x'); CREATE TABLE pwned(); --",
    '") ; CREATE TABLE pwned(); --',
    "$$; CREATE TABLE pwned(); $$",
    "\\'; CREATE TABLE pwned(); --",
    "lo_create(4711)",
    "lo_create(4711) = 4711",
    "(SELECT lo_create(4711))",
    "1 OR lo_create(4711) > 0",
    "origin || lo_create(4711)",
    "query_to_xml('CREATE TABLE pwned()', true, false, '')",
    "java_method('java.lang.Runtime', 'getRuntime')",
    "reflect('java.lang.System', 'exit', 1)",
    "* FROM pg_authid; --",
    'U&"\\0022; CREATE TABLE pwned(); --"',
    "%s",
    "%(name)s",
    ":name",
    "{0.__class__}",
    "{x!r}",
    "${jndi:ldap://localhost/x}",
    "../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "\r\nX-Injected: yes",
    "\u02bc; CREATE TABLE pwned(); --",
    "\u202e\u0000",
]


OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, item in api_document()["paths"].items()
    for method, operation in item.items()
]
WITH_BODY = [name for name, operation in OPERATIONS if "requestBody" in operation]
WITH_LIMIT = [name for name, operation in OPERATIONS if "limit" in [each["name"] for each in operation.get("parameters", ())]]


def filled(operation: str, **values: str) -> tuple[str, str]:
    """Return method and path of an operation on what there is."""
    method, path = operation.split(" ")
    kind = "weather" if "/tables/" in path else "delays" if "/queries/" in path else "departures"
    known = {"name": kind, "key": "JFK", "code": "query_not_found"} | values
    return method, path.format(**{key: quote(value, safe="") for key, value in known.items()})


@pytest.fixture
async def target(client: httpx.AsyncClient, dsn: str) -> AsyncIterator[httpx.AsyncClient]:
    """A service with something in it, whose database must be the same but for what was asked for properly."""
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    assert (await client.post("/v1/streams/departures/records", json=RECORD)).status_code == 200
    yield client
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname = 'pwned'").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM pg_largeobject_metadata").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM slackwater.query").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM slackwater.api_key").fetchone() == (0,)


def check(response: httpx.Response) -> None:
    """Refuse a fault of ours, and an error without its code, its words, or with lines of a traceback or of SQL."""
    assert response.status_code < 500, response.text
    assert "x-injected" not in response.headers
    if response.status_code >= 400:
        body = response.json()
        assert body["code"], body
        assert body["detail"], body
        for word in ("Traceback", "psycopg", "sqlalchemy", "SyntaxError", "LINE 1"):
            assert word not in response.text


# Every operation with every payload are thousands of requests.
@pytest.mark.parametrize(
    "payloads", [PAYLOADS[::7], pytest.param(PAYLOADS, marks=[pytest.mark.slow, pytest.mark.timeout(900)])], ids=["some", "all"]
)
async def test_text_in_paths_and_parameters_is_text(target: httpx.AsyncClient, payloads: list[str]) -> None:
    for payload, (name, operation) in itertools.product(payloads, OPERATIONS):
        if name.startswith("DELETE"):
            continue
        for place in ("name", "key", "code"):
            if f"{{{place}}}" in name:
                method, path = filled(name, **{place: payload})
                check(await target.request(method, path))
        method, path = filled(name)
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query" and parameter["name"] not in ("timeout", "wait"):
                check(await target.request(method, path, params={parameter["name"]: payload, **_brief(operation)}))


def _brief(operation: dict[str, Any]) -> dict[str, str]:
    """Keep long polls short."""
    return {each["name"]: "0" for each in operation.get("parameters", ()) if each["name"] in ("timeout", "wait")}


async def test_text_in_filters_and_keys_of_rows_is_text(target: httpx.AsyncClient) -> None:
    for payload in PAYLOADS:
        rows = "/v1/tables/delays/rows"
        for params in (
            {payload: "1"},
            {"origin": payload},
            {f"origin.{payload}": "x"},
            {f"origin[{payload}]": "x"},
            {"order": payload},
            {"flights": payload},
            {"cursor": base64.urlsafe_b64encode(json.dumps([payload]).encode()).decode()},
        ):
            check(await target.get(rows, params=params))
        check(await target.get(f"{rows}/{quote(payload, safe='')}"))
        check(await target.post(f"{rows}:lookup", json={"keys": [payload, {"origin": payload}, [payload]]}))
        check(await target.get("/v1/queries/delays/explain", params={"key": payload, "at": payload}))


async def test_text_in_definitions_is_refused_or_kept_as_text(target: httpx.AsyncClient) -> None:
    for payload in PAYLOADS:
        join = JOIN["joins"][0]
        queries: list[dict[str, Any]] = [
            {**JOIN, "name": payload},
            {**JOIN, "where": payload},
            {**JOIN, "select": {"a": payload}},
            {**JOIN, "from": {"stream": payload}},
            {**JOIN, "from": {"stream": "departures", "as": payload}},
            {**JOIN, "joins": [{**join, "as": payload}]},
            {**JOIN, "joins": [{**join, "on": payload}]},
            {**JOIN, "joins": [{**join, "table": payload}]},
            {**JOIN, "joins": [{**join, "grace": payload}]},
            {**JOIN, "into": {"stream": payload}},
            {**WINDOWS, "name": "w", "group_by": [payload], "into": {"table": "w"}},
            {**WINDOWS, "name": "w", "aggregate": {"n": payload}, "into": {"table": "w"}},
            {**WINDOWS, "name": "w", "having": payload, "into": {"table": "w"}},
            {**WINDOWS, "name": "w", "into": {"table": payload}},
        ]
        for definition in queries:
            response = await target.post("/v1/validations", json=definition)
            check(response)
            assert response.json()["valid"] is False, definition
            response = await target.post("/v1/queries", json=definition)
            check(response)
            assert response.status_code == 422, definition


async def test_text_as_the_name_of_a_column_is_refused_or_kept_as_text(target: httpx.AsyncClient) -> None:
    for payload in PAYLOADS:
        is_name = (
            "." not in payload and '"' not in payload and len(payload) < 64 and payload[0] not in "_$^" and payload.isprintable()
        )
        for definition in (
            {**JOIN, "select": {payload: "departures.origin"}},
            {**WINDOWS, "name": "w", "aggregate": {payload: "count(*)"}, "into": {"table": "w"}},
        ):
            response = await target.post("/v1/validations", json=definition)
            check(response)
            assert response.json()["valid"] is is_name, definition


async def test_text_in_sources_is_refused_or_kept_as_text(target: httpx.AsyncClient) -> None:
    for number, payload in enumerate(PAYLOADS):
        sources: list[dict[str, Any]] = [
            {**STREAM, "key": [payload]},
            {**STREAM, "columns": {**STREAM["columns"], "x": payload}},
            {**STREAM, "event_time": payload},
            {**STREAM, "connector": {"type": "log", "feed": payload}},
            {**STREAM, "connector": {"type": "log", "where": payload}},
            {**STREAM, "connector": {"type": payload}},
        ]
        for definition in sources:
            response = await target.put(f"/v1/streams/injected_{number}", json=definition)
            check(response)
            assert response.status_code == 422, definition
        # A column may be named almost anything; its name then is a name and nothing else.
        named = await target.put(
            f"/v1/streams/injected_{number}", json={"columns": {payload: "string", "k": "int"}, "connector": {"partitions": 1}}
        )
        check(named)
        if named.status_code == 201:
            check(await target.post(f"/v1/streams/injected_{number}/records", json={payload: payload, "k": 1}))
            page = (await target.get(f"/v1/streams/injected_{number}/records")).json()
            assert [record[payload] for record in page["records"]] == [payload], payload


async def test_text_in_records_is_text(target: httpx.AsyncClient) -> None:
    for payload in PAYLOADS:
        response = await target.post("/v1/streams/departures/records", json=[{**RECORD, "origin": payload}])
        check(response)
        records = [
            record
            for partition in (0, 1)
            for record in (await target.get(f"/v1/streams/departures/records?partition={partition}")).json()["records"]
        ]
        assert payload in [record["origin"] for record in records] or "\0" in payload, payload


async def test_text_in_headers_is_text(target: httpx.AsyncClient) -> None:
    for payload in (each for each in PAYLOADS if each.isprintable() and each.isascii()):
        for header in (
            "idempotency-key",
            "if-match",
            "if-none-match",
            "last-event-id",
            "accept",
            "authorization",
            "x-request-id",
        ):
            check(await target.get("/v1/queries/delays", headers={header: payload}))
            check(await target.post("/v1/queries", headers={header: payload}, json=WINDOWS))


@pytest.mark.parametrize("name", WITH_LIMIT)
async def test_a_limit_has_a_limit(client: httpx.AsyncClient, problem: Problem, name: str) -> None:
    method, path = filled(name)
    for limit in ("1000000000", "-1", "0", "9" * 400, "1e3", "x", ""):
        body = problem(await client.request(method, path, params={"limit": limit}), 400, "bad_parameter")
        assert [fault["pointer"] for fault in body["errors"]] == ["?limit"], limit


@pytest.mark.parametrize("name", WITH_BODY)
async def test_deep_json_is_refused(client: httpx.AsyncClient, problem: Problem, name: str) -> None:
    method, path = filled(name)
    for text in ("[" * DEPTH, "[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "1" + "}" * DEPTH):
        problem(
            await client.request(method, path, content=text, headers={"content-type": "application/json"}), 400, "malformed_json"
        )


async def test_deep_json_in_parameters_is_refused(target: httpx.AsyncClient) -> None:
    for text in ("[" * 5_000, '{"a":' * 2_000 + "1" + "}" * 2_000):
        cursor = base64.urlsafe_b64encode(text.encode()).decode()[:4_000]
        for params in ({"min_position": text}, {"cursor": cursor}):
            response = await target.get("/v1/tables/delays/rows", params=params)
            check(response)
            assert response.status_code == 400, response.text


@pytest.mark.parametrize("name", WITH_BODY)
async def test_a_body_that_says_it_is_too_large_is_refused_unread(client: httpx.AsyncClient, problem: Problem, name: str) -> None:
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b" " * 1024

    method, path = filled(name)
    headers = {"content-type": "application/json", "content-length": str(MAX_BODY_BYTES + 1)}
    problem(await client.request(method, path, content=chunks(), headers=headers), 413, "body_too_large")
    assert read <= 1

"""What a request may cost: definitions, bodies and their checking are bounded, and others do not wait meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.main.main import create_app
from app.settings.limit_settings import LimitSettings
from app.settings.settings import Settings
from tests.api.conftest import JOIN, RECORD, STREAM, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")
MIB = 1024 * 1024
WIDE = {**STREAM, "columns": {**STREAM["columns"], **{f"c{number}": "bigint" for number in range(1_496)}}}


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "pointer"),
    [
        ("PUT", "/v1/streams/wide", {**WIDE, "columns": {**WIDE["columns"], "more": "bigint"}}, "too_many_columns", "/columns"),
        ("PUT", "/v1/tables/wide", {"key": ["c0"], "columns": {f"c{n}": "int" for n in range(50_000)}}, "too_many_columns", "/columns"),
        ("POST", "/v1/queries", {**JOIN, "joins": JOIN["joins"] * 200}, "too_many_joins", "/joins"),
        ("POST", "/v1/queries", {**JOIN, "select": {f"a{n}": "flight" for n in range(1_601)}}, "too_many_columns", "/select"),
        ("POST", "/v1/queries", {**JOIN, "select": {"a": "concat(" + "w.origin," * 800 + "'')"}}, "expression_malformed", "/select/a"),
        ("POST", "/v1/queries", {**WINDOWS, "aggregate": {f"a{n}": "count(*)" for n in range(600)}}, "too_many_aggregates", "/aggregate"),
        ("PUT", "/v1/queries/delays", {**WINDOWS, "group_by": ["origin"] * 140}, "too_many_group_columns", "/group_by"),
    ],
)  # fmt: skip
async def test_too_much_is_refused_by_name(
    client: httpx.AsyncClient, problem: Problem, method: str, path: str, body: dict[str, Any], code: str, pointer: str
) -> None:
    problem(await client.request(method, path, json=body), 422, code, pointer)


@pytest.mark.parametrize(
    "where", ["flight in (" + ",".join(map(str, range(1_900))) + ")", "concat(" + "origin," * 490 + "'') <> ''"]
)
async def test_what_is_within_the_bounds_is_stored(client: httpx.AsyncClient, where: str) -> None:
    assert (
        await client.post("/v1/queries", json={**JOIN, "where": where.replace("origin", "departures.origin")})
    ).status_code == 201


async def test_the_widest_stream_is_selected_as_a_whole(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/streams/wide", json=WIDE)).status_code == 201
    query = {"name": "all", "from": {"stream": "wide"}, "into": {"table": "all"}}
    assert (await client.post("/v1/queries", json=query)).status_code == 201


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/validations"), ("PUT", "/v1/streams/x"), ("POST", "/v1/tables/weather/rows:lookup"), ("POST", "/v1/api-keys")],
)
async def test_a_body_that_is_no_append_has_a_mebibyte(
    client: httpx.AsyncClient, problem: Problem, method: str, path: str
) -> None:
    answer = await client.request(
        method, path, content=b" " * MIB + b"1", headers={"content-type": "application/json", "x-pad": "1"}
    )
    assert "SLACKWATER_MAX_CONTROL_BODY_BYTES" in problem(answer, 413, "body_too_large")["detail"]


async def test_an_append_may_have_more(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/streams/departures/records",
        content=b'{"origin": "JFK", "departed_at": "2013-01-01T10:00:00Z"}' + b" " * 2 * MIB,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 200, answer.text


COSTLY: list[dict[str, Any]] = [
    {**JOIN, "select": {"origin": "departures.origin", **{f"a{n}": f"flight + {n}" for n in range(1_499)}}},
    {**JOIN, "where": " and ".join(["flight <> 1"] * 700), "select": {"origin": "departures.origin"}},
    {**JOIN, "select": {f"a{n}": f"absent_{n}" for n in range(1_500)}},
]


async def test_others_are_answered_while_definitions_are_checked(app: FastAPI, client: httpx.AsyncClient) -> None:
    checks = [asyncio.create_task(client.post("/v1/validations", json=body, timeout=60)) for body in COSTLY * 2]
    waits = []
    while not all(check.done() for check in checks):
        asked = time.perf_counter()
        assert (await client.get("/healthz")).status_code == 200
        waits.append(time.perf_counter() - asked)
        await asyncio.sleep(0.01)
    assert {check.result().status_code for check in checks} == {200}
    # Two are checked at once, whatever is asked for.
    assert app.state.services.settings.limits.planning == 2
    assert sorted(waits)[len(waits) // 2] < 1, waits


async def test_who_waits_too_long_to_be_checked_is_told(settings: Settings, problem: Problem) -> None:
    impatient = settings.model_copy(update={"limits": LimitSettings(planning=1, planning_wait_s=0.05)})
    app = create_app(impatient)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        app.state.services.planning,
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        assert problem(await client.post("/v1/validations", json=WINDOWS), 503, "planning_busy")["retryable"]


async def test_a_broker_that_says_nothing_holds_up_nobody_else(
    settings: Settings, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sources.kafka.brokers.topic_client.ANSWER_S", 3.0)
    narrow = settings.model_copy(update={"limits": LimitSettings(planning=1, planning_wait_s=1.0)})
    app = create_app(narrow)
    transport = httpx.ASGITransport(app)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        bootstrap = f"127.0.0.1:{broker.getsockname()[1]}"
        topic = {"type": "kafka", "bootstrap": bootstrap, "topic": "t", "value": {"format": "json"}}
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            slow = asyncio.create_task(client.put("/v1/streams/far", json={"columns": {"v": "bigint"}, "connector": topic}))
            accepted = await asyncio.to_thread(_first_caller, broker)
            assert (await client.put("/v1/streams/near", json={"columns": {"v": "bigint"}})).status_code == 201
            assert (await client.post("/v1/validations", json=WINDOWS)).status_code == 200
            assert not slow.done()
            problem(await slow, 503, "source_unavailable")
            accepted.close()


def _first_caller(server: socket.socket) -> socket.socket:
    server.settimeout(30)
    return server.accept()[0]


async def test_a_definition_that_is_checked_for_too_long_is_refused(settings: Settings, problem: Problem) -> None:
    hasty = settings.model_copy(update={"limits": LimitSettings(planning_cpu_s=0.001)})
    app = create_app(hasty)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        costly = {**JOIN, "name": "hasty", "where": " and ".join(f"departures.origin <> '{n}'" for n in range(300))}
        refused = problem(await client.post("/v1/queries", json=costly), 422, "definition_too_expensive")
        assert "SLACKWATER_LIMITS__PLANNING_CPU_S" in refused["detail"]
        found = (await client.post("/v1/validations", json=costly)).json()
        assert [each["code"] for each in found["problems"]] == ["definition_too_expensive"]
        assert (await client.get("/v1/queries")).status_code == 200


async def test_stored_queries_are_planned_with_patience(client: httpx.AsyncClient, settings: Settings) -> None:
    """An edit of what they read plans them again: were they hurried, they would be named as what it breaks."""
    names = " or ".join(f"departures.origin = '{n}'" for n in range(300))
    costly = {**JOIN, "name": "patient", "where": names, "into": {"stream": "patient"}}
    assert (await client.post("/v1/queries", json=costly)).status_code == 201
    source = (await client.get("/v1/streams/departures")).json()["definition"]
    hasty = settings.model_copy(update={"limits": LimitSettings(planning_cpu_s=0.001)})
    app = create_app(hasty)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://localhost") as other:
        edited = await other.put("/v1/streams/departures", json={**source, "max_future_skew": "1h"})
        assert edited.status_code == 200, edited.text


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
async def test_a_time_beyond_the_calendar_in_utc_is_a_fault_of_its_field(
    client: httpx.AsyncClient, problem: Problem, at: str
) -> None:
    problem(await client.post("/v1/queries", json={**JOIN, "start": {"at": at}}), 422, "invalid_value", "/start/at")
    where = f"departures.departed_at < '{at}'"
    problem(await client.post("/v1/queries", json={**JOIN, "where": where}), 422, "type_mismatch", "/where")


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF\\uD800"])
async def test_half_a_character_is_no_json(client: httpx.AsyncClient, problem: Problem, half: str) -> None:
    body = json.dumps({"name": "q", "from": {"stream": "half"}, "into": {"stream": "q"}}).replace("half", half)
    for path in ("/v1/validations", "/v1/queries"):
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
        assert "surrogate" in problem(answer, 400, "malformed_json")["detail"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be", "utf-8-sig"])
async def test_json_is_utf_8_alone(client: httpx.AsyncClient, problem: Problem, encoding: str) -> None:
    headers = {"content-type": "application/json"}
    for method, path, body in (("POST", "/v1/queries", JOIN), ("PUT", "/v1/streams/other", STREAM)):
        problem(
            await client.request(method, path, content=json.dumps(body).encode(encoding), headers=headers), 400, "malformed_json"
        )
    for records in ([RECORD], [RECORD] * 2_000):
        answer = await client.post(
            "/v1/streams/departures/records", content=json.dumps(records).encode(encoding), headers=headers
        )
        assert answer.status_code == (200 if encoding == "utf-8-sig" else 400), answer.text

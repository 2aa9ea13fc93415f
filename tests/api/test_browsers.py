"""What a page of another origin cannot have a browser do to a service that asks for no keys."""

from __future__ import annotations

import re

import httpx
import psycopg
import pytest
import structlog
from fastapi import FastAPI

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import STREAM, Problem

OWN = [
    "localhost",
    "localhost:8080",
    "LOCALHOST",
    "127.0.0.1:8080",
    "[::1]:8080",
    "192.168.1.7",
    "data.example",
    "Data.Example:80",
]
FOREIGN = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b", "[::1"]


@pytest.fixture
async def named(settings: Settings) -> FastAPI:
    return create_app(settings.model_copy(update={"allowed_hosts": "data.example, other.example"}))


def asking(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@pytest.mark.parametrize("host", OWN)
async def test_own_names_and_addresses_are_answered(named: FastAPI, host: str) -> None:
    async with asking(named) as http:
        assert (await http.get("/healthz", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/docs", "/openapi.json", "/v1/streams", "/nothing"])
@pytest.mark.parametrize("host", FOREIGN)
async def test_another_name_is_refused_everywhere(named: FastAPI, host: str, path: str, problem: Problem) -> None:
    async with asking(named) as http:
        body = problem(await http.get(path, headers={"host": host}), 421, "host_not_allowed")
        assert "SLACKWATER_ALLOWED_HOSTS" in body["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    ],
)
async def test_what_a_foreign_page_sends_is_refused(client: httpx.AsyncClient, headers: dict[str, str], problem: Problem) -> None:
    problem(await client.put("/v1/streams/departures", json=STREAM, headers=headers), 403, "foreign_origin")
    problem(await client.get("/v1/streams", headers=headers), 403, "foreign_origin")
    assert (await client.get("/v1/streams")).json()["items"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
    ],
)
async def test_programs_and_own_pages_are_answered(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await client.put("/v1/streams/departures", json=STREAM, headers=headers)).status_code == 201


async def test_a_link_from_another_page_opens_the_documentation_and_changes_nothing(
    client: httpx.AsyncClient, problem: Problem
) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await client.get("/docs", headers=link)).status_code == 200
    problem(await client.post("/v1/queries/x/restart", headers=link), 403, "foreign_origin")


async def test_a_service_that_asks_for_keys_leaves_hosts_to_its_proxy(settings: Settings) -> None:
    async with asking(create_app(settings.model_copy(update={"auth": "on"}))) as http:
        headers = {"host": "data.example", "origin": "https://data.example"}
        assert (await http.get("/healthz", headers=headers)).status_code == 200
        assert (await http.get("/v1/streams", headers=headers)).status_code == 401


@pytest.mark.parametrize("path", ["/v1/streams/departures/records", "/v1/queries", "/v1/validations", "/v1/api-keys"])
async def test_every_body_says_what_it_is(client: httpx.AsyncClient, path: str, sources: None, problem: Problem) -> None:
    body = problem(await client.post(path, content=b"{}"), 415, "media_type_missing")
    assert "application/json" in body["detail"]
    problem(await client.post(path, content=b"{}", headers={"content-type": "text/plain"}), 415, "unsupported_media_type")


async def test_a_service_without_keys_makes_none_over_http(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    body = problem(await client.post("/v1/api-keys", json={"name": "mine", "role": "admin"}), 403, "keys_from_command_line")
    assert "slackwater keys create" in body["detail"]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.api_key WHERE name = 'mine'").fetchone() == (0,)


async def test_the_documentation_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert re.findall(r"https?://", page) == []
    assets = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(assets) >= 3
    for asset in assets:
        answer = await client.get(asset)
        assert (answer.status_code, len(answer.content) > 1_000) == (200, True), asset


@pytest.mark.parametrize("path", ["/v1/streams/", "/healthz/", "/docs/"])
async def test_no_redirect_repeats_the_host(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers.get("location")) == (404, None)


@pytest.mark.parametrize(
    "path",
    ["/docs", "/openapi.json", "/healthz", "/v1/queries", "/v1/nowhere", "/console/", "/guide/", "/docs/assets/swagger-ui.css"],
)
async def test_no_answer_is_framed_by_others_or_taken_for_something_else(client: httpx.AsyncClient, path: str) -> None:
    """A page of a stranger could show `/docs` of this machine's service, and have its reader press the buttons."""
    answer = await client.get(path)
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize(
    ("headers", "code"), [({"host": "evil.example"}, "host_not_allowed"), ({"origin": "http://evil.example"}, "foreign_origin")]
)
async def test_what_is_refused_is_logged_with_its_code(named: FastAPI, headers: dict[str, str], code: str) -> None:
    async with asking(named) as http:
        with structlog.testing.capture_logs() as lines:
            await http.post("/v1/streams", headers=headers, json={})
    assert [line["code"] for line in lines if line["event"] == "foreign_request_refused"] == [code]

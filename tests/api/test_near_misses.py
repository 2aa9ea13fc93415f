"""Paths and methods that people try: the refusal names the one that they meant, and that one exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from app.http.answers.suggestions import MISSES, hint_for
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import Problem


@pytest.fixture(scope="module")
def app(settings: Settings) -> FastAPI:
    """One for all: each makes its document, of which the hints are made, at its first refusal. Nothing here asks the database."""
    return create_app(settings)


@pytest.mark.parametrize(
    ("method", "path", "status", "hint"),
    [
        ("GET", "/v1/streams/orders/rows", 404, "GET /v1/streams/orders/records"),
        ("GET", "/v1/streams/orders/rows/tea", 404, "GET /v1/streams/orders/records"),
        ("GET", "/v1/tables/prices/records", 405, "GET /v1/tables/prices/rows"),
        ("POST", "/v1/tables/prices/rows", 405, "POST /v1/tables/prices/records"),
        ("POST", "/v1/tables/prices/lookup", 404, "POST /v1/tables/prices/rows:lookup"),
        ("PUT", "/v1/streams/orders/records", 405, "POST /v1/streams/orders/records"),
        ("POST", "/v1/streams", 405, "PUT /v1/streams/{name}"),
        ("GET", "/v1/streams/orders/late-records", 404, "GET /v1/queries"),
        ("GET", "/v1/queries/q/rows", 404, "GET /v1/queries/q"),
        ("POST", "/v1/queries/q/pause", 404, 'PUT /v1/queries/q/desired-state with {"state": "paused"}'),
        ("GET", "/v1/queries/q/desired-state", 405, "GET /v1/queries/q/status"),
        ("PATCH", "/v1/queries/q", 405, "PUT replaces the whole definition"),
        ("POST", "/v1/queries/q/replay", 404, "POST /v1/queries/q/late-records/replay"),
        ("POST", "/v1/validate", 404, "POST /v1/validations"),
        ("GET", "/health", 404, "GET /healthz"),
        ("GET", "/v1/metrics", 404, "GET /metrics"),
        ("GET", "/v1/relations", 404, "GET /v1/streams, GET /v1/tables"),
        ("GET", "/v1/stream/orders/records", 404, "did you mean /v1/streams/orders/records?"),
        ("GET", "/streams/orders", 404, "did you mean /v1/streams/orders?"),
        ("GET", "/v1/tables/prices/change", 404, "did you mean /v1/tables/prices/changes?"),
        ("GET", "/v1/queries/", 404, "did you mean /v1/queries?"),
        ("GET", "/something/else", 404, "/docs lists every path"),
    ],
)
async def test_a_near_miss_is_told_what_was_meant(
    client: httpx.AsyncClient, problem: Problem, method: str, path: str, status: int, hint: str
) -> None:
    body = problem(await client.request(method, path), status, "not_found" if status == 404 else "method_not_allowed")
    assert hint in body["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/streams/x/" + "e" * 60_000, "/v1/streams/" + "x" * 81 + "/rows", "/v1/queries/q/results" + "/a" * 150]
)
async def test_a_path_longer_than_any_of_ours_gets_no_hint_and_is_compared_with_none(
    client: httpx.AsyncClient, problem: Problem, path: str
) -> None:
    assert problem(await client.get(path), 404, "not_found")["detail"] == "there is no such path: /docs lists every path"
    assert hint_for("GET", path, NotLookedAt()) is None


class NotLookedAt(dict[str, frozenset[str]]):
    """Paths that fail where somebody compares with them: that takes more than a second for 60,000 characters."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("looked at")


def test_every_hint_names_requests_that_there_are(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    named = [pair for miss in MISSES for pair in re.findall(r"(GET|PUT|POST|DELETE) (/[\w{}/:.-]+)", miss.hint)]
    assert named
    for method, path in named:
        shapes = [re.sub(r"\{+kind\}+", kind, path) for kind in ("streams", "tables")]
        shapes = [re.sub(r"\{+(\w+)\}+", r"{\1}", shape) for shape in shapes]
        assert any(method.lower() in paths.get(shape, {}) for shape in shapes), (method, path)

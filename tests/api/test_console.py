"""The console's page: what the service sends, under which policy, and that it needs nothing from elsewhere. What it does is in tests/console."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from app.main.console import BUILT, NONCE_MARK
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.conftest import Problem
from tests.conftest import ROOT

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SOURCE = ROOT / "app" / "console"


def directives(policy: str) -> dict[str, list[str]]:
    return {name: values for name, *values in (part.split() for part in policy.split(";"))}


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/queries/delays", "/console/queries/a%2Fb?tab=late"])
async def test_every_path_below_the_console_is_its_page(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path, headers=BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-store"
    assert '<div id="app">' in answer.text


async def test_a_browser_at_the_root_is_sent_to_the_console(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers=BROWSER)
    assert (answer.status_code, answer.headers["location"]) == (307, "/console/"), "no name of a host in it"


async def test_a_program_at_the_root_is_told_that_there_is_no_such_path(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get("/"), 404, "not_found")


async def test_the_policy_lets_the_page_load_what_the_service_has_and_nothing_else(client: httpx.AsyncClient) -> None:
    answer = await client.get("/console/")
    found = directives(answer.headers["content-security-policy"])
    nonce = re.search(r'name="csp-nonce" content="([^"]+)"', answer.text)
    assert nonce is not None
    assert found.pop("style-src") == ["'self'", f"'nonce-{nonce[1]}'"]
    assert found == {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "img-src": ["'self'"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_each_page_has_a_nonce_of_its_own(client: httpx.AsyncClient) -> None:
    pages = [(await client.get("/console/")).text for _ in range(2)]
    assert pages[0] != pages[1]
    assert NONCE_MARK not in pages[0]


async def test_the_page_names_files_of_the_bundle_alone(client: httpx.AsyncClient) -> None:
    page = (await client.get("/console/")).text
    assert re.search(r"<script(?![^>]*\bsrc=)", page) is None, "nothing is written into the page itself"
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) >= 3
    for file in files:
        answer = await client.get(file)
        assert (answer.status_code, file.startswith("/console/assets/")) == (200, True), file
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    kinds = {Path(file).suffix: (await client.get(file)).headers["content-type"].partition(";")[0] for file in files}
    assert kinds == {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@pytest.mark.parametrize("name", ["nothing.js", "..", "index.html"])
async def test_only_files_of_the_bundle_are_served(client: httpx.AsyncClient, problem: Problem, name: str) -> None:
    problem(await client.get(f"/console/assets/{name}".replace("..", "%2E%2E")), 404, "not_found")


async def test_the_page_is_open_where_keys_are_asked_for(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"auth": "on"}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        assert (await http.get("/console/")).status_code == 200
        assert (await http.get("/v1/overview")).status_code == 401


def test_the_page_and_its_styles_name_no_other_host() -> None:
    """Scripts hold names of XML namespaces and links to the documentation of libraries; the policy keeps them from loading anything."""
    texts = [path.read_text(encoding="utf-8") for path in BUILT.rglob("*") if path.suffix in (".css", ".html")]
    assert len(texts) >= 2
    assert [found for text in texts for found in re.findall(r"https?://|//[a-z]", text)] == []


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((SOURCE / "package-lock.json").read_text(encoding="utf-8"))
    assert len(lock["packages"]) > 10
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []

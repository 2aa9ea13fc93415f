"""The guide at /guide: files of the site, its headers, and what is said where it is not built."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from starlette.applications import Starlette

from app.main.guide import ERRORS_PAGE, error_page, guide_routes


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in (
        ("index.html", "home"),
        ("guides/late-data/index.html", "late"),
        ("assets/a.js", "script()"),
        (f"{ERRORS_PAGE}index.html", "errors"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
async def http(site: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=guide_routes(site))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


async def test_pages_and_files_are_answered_with_a_policy(http: httpx.AsyncClient) -> None:
    for path, text, media_type in (
        ("/guide/", "home", "text/html"),
        ("/guide/guides/late-data/", "late", "text/html"),
        ("/guide/assets/a.js", "script()", "text/javascript"),
    ):
        answer = await http.get(path)
        assert (answer.status_code, answer.text) == (200, text)
        assert answer.headers["content-type"].startswith(media_type)
        assert "script-src 'self';" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_folder_leads_to_itself_with_a_slash_by_a_relative_path(http: httpx.AsyncClient) -> None:
    for path, place in (("/guide", "guide/"), ("/guide/guides/late-data", "late-data/")):
        answer = await http.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, place)
        assert (await http.get(path, follow_redirects=True)).status_code == 200


async def test_what_has_not_changed_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/guide/")
    again = await http.get("/guide/", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "/guide/nothing",
        "/guide/guides/",
        "/guide/..%2f..%2fetc/passwd",
        "/guide/%2e%2e/secret",
        "/guide/%00",
        f"/guide/{'a' * 300}",
    ],
)
async def test_what_is_not_there_is_answered_with_the_way_to_the_first_page(
    path: str, site: Path, http: httpx.AsyncClient
) -> None:
    (site.parent / "secret").write_text("secret")
    answer = await http.get(path)
    assert answer.status_code == 404
    (way,) = re.findall(r'href="(.+?)"', answer.text)
    assert (await http.get(urljoin(path, way))).text == "home"
    assert "content-security-policy" in answer.headers


async def test_where_it_is_not_built_a_page_says_how(tmp_path: Path) -> None:
    app = Starlette(routes=guide_routes(tmp_path / "nothing"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        answer = await http.get("/guide/")
    assert answer.status_code == 404
    assert "make guide" in answer.text
    assert "content-security-policy" in answer.headers


async def test_the_service_has_it_and_refuses_writing_as_everywhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/guide", follow_redirects=True)
    assert answer.status_code in (200, 404)
    assert answer.headers["content-type"].startswith("text/html")
    refused = await client.post("/guide/")
    assert (refused.status_code, refused.json()["code"], refused.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")


def test_a_code_is_explained_by_the_guide_where_there_is_one(site: Path, tmp_path: Path) -> None:
    assert error_page("late_record", site) == "../../guide/reference/errors/#late_record"
    assert error_page("late_record", tmp_path / "nothing") is None


async def test_a_program_that_asks_for_a_code_has_json(client: httpx.AsyncClient) -> None:
    for accept in ("application/json", "*/*"):
        answer = await client.get("/v1/errors/query_not_found", headers={"accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (200, "query_not_found")

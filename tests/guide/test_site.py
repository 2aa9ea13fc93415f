"""The built site: it builds strictly, every link and anchor in it leads somewhere, and it needs nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from app.main.guide import SITE
from tools.guide.building import build

pytestmark = pytest.mark.timeout(300)
OF_THE_SERVICE = ("/docs", "/console", "/openapi.json", "/v1/", "/metrics", "/guide")
"""Where absolute paths may lead: what else the service answers."""

LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """A page of the site: what it links to, what it loads, its anchors, and scripts in its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.inline: list[str] = []
        self._is_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        loads = given.get(LOADING.get(tag, ""))
        if loads and given.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.loads.append(loads)
        self.inline += [f"{name}={value}" for name, value in given.items() if name.startswith("on")]
        self._is_script = tag == "script" and "src" not in given and given.get("type", "module") in ("module", "text/javascript")

    def handle_endtag(self, tag: str) -> None:
        self._is_script = self._is_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_script and data.strip():
            self.inline.append(data[:80])


@pytest.fixture(scope="module")
def pages() -> Mapping[str, Page]:
    build()
    return {str(path.relative_to(SITE)): Page(path.read_text()) for path in SITE.rglob("*.html")}


def target_of(page: str, link: str) -> tuple[str, str] | None:
    """Return the file of the site and the anchor that a link leads to; None where it leaves the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or parts.path.startswith("/"):
        return None
    path = urlsplit(urljoin(f"http://x/{page}", link)).path.removeprefix("/")
    file = f"{path}index.html" if path in ("",) or path.endswith("/") else path
    return unquote(file), unquote(parts.fragment)


def test_every_link_leads_to_a_page_and_every_anchor_is_there(pages: Mapping[str, Page]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links:
            target = target_of(name, link)
            if target is None:
                is_known = urlsplit(link).scheme in ("http", "https", "mailto") or link.startswith(OF_THE_SERVICE)
            else:
                file, anchor = target
                found = pages.get(file)
                is_known = (found is not None and (not anchor or anchor in found.anchors)) or (
                    not anchor and (SITE / file).is_file()
                )
            if not is_known:
                broken.append(f"{name}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere_and_everything_that_is_loaded_is_there(pages: Mapping[str, Page]) -> None:
    missing = []
    for name, page in pages.items():
        for load in page.loads:
            target = target_of(name, load)
            if load.startswith("data:"):
                continue
            if target is None or not (SITE / target[0]).is_file():
                missing.append(f"{name}: {load}")
    assert missing == []
    sheets = "".join(path.read_text() for path in SITE.rglob("*.css"))
    assert not re.findall(r"url\(\s*['\"]?https?:|@import", sheets)


def test_no_page_has_a_script_in_its_text(pages: Mapping[str, Page]) -> None:
    assert {name: page.inline for name, page in pages.items() if page.inline} == {}


def test_every_page_can_be_searched(pages: Mapping[str, Page]) -> None:
    index = (SITE / "search.json") if (SITE / "search.json").exists() else SITE / "search" / "search_index.json"
    text = index.read_text()
    assert len(pages) > 40
    for name in ("tutorial/", "reference/errors/", "inside/engine/"):
        assert name in text
    assert "grace_exceeds_history_retention" in text

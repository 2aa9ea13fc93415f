"""A browser that looks at the console of a service; skipped with a reason where there is none.

Each scenario takes ``look`` and ends with ``look.sound()``: no error in the browser's console, nothing that axe finds, nothing wider than the
window.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import SecretStr

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.live_server import live
from tests.conftest import ROOT
from tests.console.harbour import Harbour, fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

HERE = Path(__file__).parent
AXE = ROOT / "app" / "console" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_MS = 60_000
"""On a machine that other tests share, slow is no news."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder. Those with a browser take minutes together."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.console)
            if "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[browser]'")
    found = os.environ.get("SLACKWATER_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or name one with SLACKWATER_CHROMIUM")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def settings(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Of the service; a module that wants keys overrides it."""
    return Settings(database_url=SecretStr(dsn), data_dir=Path(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def empty_harbour(dsn: str, settings: Settings) -> Iterator[Harbour]:
    """A service in which nothing is."""
    with live(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as http:
        yield Harbour(url, dsn, http)


@pytest.fixture(scope="module")
def harbour(empty_harbour: Harbour) -> Harbour:
    """The service with the queries of ``fill``."""
    fill(empty_harbour)
    return empty_harbour


@dataclass(slots=True)
class Look:
    """A page of the console, and what went wrong in it."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    expected: set[str] = field(default_factory=set)

    def at(self, path: str) -> Page:
        """Open a screen, and wait until it shows its head."""
        self.page.goto(f"{self.url}/console{path}")
        self.page.locator("h1").first.wait_for()
        return self.page

    def row(self, name: str) -> Locator:
        """Return a row of a table by the text of its first cell."""
        return self.page.get_by_role("row").filter(has=self.page.get_by_role("link", name=name, exact=True))

    def expects(self, *parts: str) -> None:
        """Say which errors of the browser's console this scenario causes, such as refused requests."""
        self.expected.update(parts)

    def sound(self) -> None:
        """Check what every screen must be."""
        assert [fault for fault in self.faults if not any(part in fault for part in self.expected)] == []
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{wide} pixels wider than the window"
        assert AXE.exists(), (
            "axe-core is not installed, so nothing says whether everybody can use the page: cd app/console && npm ci"
        )
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        assert [_described(each) for each in found["violations"]] == []


def _described(violation: dict[str, Any]) -> str:
    places = "; ".join(f"{node['html'][:160]} {node['failureSummary'][:200]}" for node in violation["nodes"][:3])
    return f"{violation['id']}: {violation['help']}: {places}"


Opening = Callable[..., Look]


@pytest.fixture
def looking(browser: Browser) -> Iterator[Opening]:
    """Open a page of a service with a width, a colour scheme and other options of a browser's context."""
    contexts = []

    def opened(harbour: Harbour, *, width: int = 1280, **options: Any) -> Look:
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        look = Look(page, harbour.url)

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                look.faults.append(f"{message.type}: {message.text}")

        page.on("console", note)
        page.on("pageerror", lambda error: look.faults.append(f"error: {error}"))
        return look

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def look(looking: Opening, harbour: Harbour) -> Look:
    """A page of the filled service."""
    return looking(harbour)

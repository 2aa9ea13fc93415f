"""Which pages have blocks to be run, and what service they are run against."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.testing.machines.service import Service, service_of
from tests.conftest import ROOT
from tests.guide.blocks import steps

READMES: Final = ("README.md", "client/README.md", "deploy/README.md", "app/testing/README.md")
"""Documents outside of `docs/` that are run as well."""

QUICK: Final = frozenset({"README.md"})
"""What a new user does first: every CI run does it. The other pages are `slow`."""


@dataclass(frozen=True, slots=True)
class Runner:
    """A service for pages.

    Attributes:
        url: where it answers.
        root: below it are the folders of pages; the service may read and write there.
    """

    url: str
    root: Path

    def folder(self, page: str) -> Path:
        """Return the folder of a page."""
        path = self.root / page.removesuffix(".md").replace("/", "-")
        path.mkdir(parents=True, exist_ok=True)
        return path


def all_pages() -> list[str]:
    """Return the pages with blocks, relative to the repository."""
    found = [*READMES, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    return [page for page in found if steps(ROOT / page)]


@contextmanager
def runner() -> Iterator[Runner]:
    """Run a service for pages."""
    with tempfile.TemporaryDirectory(prefix="guide-") as folder:
        settings = {
            "SLACKWATER_FILES_ROOT": folder,
            "SLACKWATER_DELIVERY_ROOT": folder,
            "SLACKWATER_SQL__PYTHON_FUNCTIONS": "true",
        }
        with service_of(Service, settings) as running:
            yield Runner(running.url, Path(folder))

"""Puts the pages of the guide together in one folder: those of `docs/`, those made from the code, and the READMEs of the packages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from tools.guide.markdown import anchor, block, page
from tools.guide.reference import reference

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = ROOT / ".guide" / "pages"
SUFFIXES: Final = (".md", ".svg", ".png", ".css")
READMES: Final[Mapping[str, str]] = {
    "app/README.md": "inside/service.md",
    "engine/README.md": "inside/engine.md",
    "app/console/README.md": "inside/console.md",
    "client/README.md": "inside/client.md",
    "app/testing/README.md": "reference/test-files.md",
    "deploy/README.md": "operations/deploying.md",
    "deploy/prometheus/README.md": "operations/alerts.md",
}
"""Documents that stand beside their code: they are pages as they are."""

EXAMPLES: Final = "app/testing/examples"
EXAMPLES_PAGE: Final = "reference/test-examples.md"
"""One page has every example of `slackwater test`, each below its name."""

_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def gather(pages: Path = PAGES) -> None:
    """Write every page anew."""
    shutil.rmtree(pages, ignore_errors=True)
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in SUFFIXES:
            name = str(path.relative_to(DOCS))
            content = path.read_bytes()
            if path.suffix == ".md":
                content = _with_readmes(barred(content.decode()), name).encode()
            _write(pages / name, content)
    for place, target in READMES.items():
        _write(pages / target, relinked(barred((ROOT / place).read_text()), place, target).encode())
    _write(pages / EXAMPLES_PAGE, examples().encode())
    for name, text in reference().items():
        _write(pages / "reference" / name, text.encode())


def examples() -> str:
    """Return the page of the examples of `slackwater test`."""
    files = sorted((ROOT / EXAMPLES).glob("*.yaml"))
    head = "Every example of [`slackwater test`](test-files.md): each file has tests that run as they stand, and shows what an operator does."
    return page("# Examples of tests", head, *(page(f"## {path.name}", block("yaml", path.read_text())) for path in files))


def relinked(text: str, place: str, target: str) -> str:
    """Return a README with links that work on the site: to other pages of it, and of everything else the name alone."""

    def _there(found: re.Match[str]) -> str:
        label, address = found[1], found[2]
        if re.match(r"[a-z]+:|#|/", address):
            return found[0]
        path, _, fragment = address.partition("#")
        joined = _joined(place, path)
        if joined.startswith(EXAMPLES):
            wanted: str | None = EXAMPLES_PAGE
            fragment = anchor(PurePosixPath(path).name) if path.endswith(".yaml") else ""
        else:
            wanted = _page_of(joined)
        if wanted is None:
            return label
        return f"[{label}]({_relative(wanted, target)}{'#' if fragment else ''}{fragment})"

    return _LINK.sub(_there, text)


def _with_readmes(text: str, target: str) -> str:
    """Return a page of `docs/` whose links to packages' READMEs lead to their pages; its other links work as they are."""

    def _there(found: re.Match[str]) -> str:
        readme = READMES.get(_joined(f"docs/{target}", found[2])) if ".." in found[2] else None
        return found[0] if readme is None else f"[{found[1]}]({_relative(readme, target)})"

    return _LINK.sub(_there, text)


def barred(text: str) -> str:
    """Return a text whose bars in code font within tables have no backslash: other readers of Markdown need it there, MkDocs shows it."""
    return re.sub(r"(?m)^\|.*$", lambda row: _CODE.sub(lambda found: found[0].replace("\\|", "|"), row[0]), text)


def _page_of(path: str) -> str | None:
    """Return the page of the site that a file of the repository becomes, if it becomes one."""
    if path in READMES:
        return READMES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") and path.endswith(".md") else None


def _joined(place: str, path: str) -> str:
    parts: list[str] = []
    for part in (*PurePosixPath(place).parent.parts, *PurePosixPath(path).parts):
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _relative(wanted: str, target: str) -> str:
    return "/".join([".."] * (len(PurePosixPath(target).parts) - 1) + [wanted])


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)

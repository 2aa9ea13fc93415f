"""The guide at `/guide`: files of the site that `make guide` builds (``tools.guide``), or a page that says how to build it."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

PATH: Final = "/guide"
SITE: Final = Path(__file__).resolve().parents[1] / "guide" / "site"
"""Directory of the built site; it is in the wheel, not in git."""

ERRORS_PAGE: Final = "reference/errors/"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # revalidated each time, and answered 304: the next version may be built at any moment
}
_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ font-family: system-ui, sans-serif; max-width: 40rem; margin: 4rem auto;
padding: 0 1rem; line-height: 1.5 }}</style>
</head><body><h1>{title}</h1>{text}</body></html>"""
_ABSENT: Final = """<p>In a checkout of the source code, run <code>make guide</code> and load this page again. The package from a wheel
has it built in.</p>
<p>Until then, <a href="{top}../docs">every request is described here</a>, and the texts are in <code>docs/</code> of the source code.</p>"""
_LOST: Final = """<p>The guide has no page here. <a href="{top}">Its first page</a> has a search.</p>"""


class Guide:
    """ASGI application below ``/guide``. It needs no key, because it shows no data of the service.

    Args:
        site: the folder of the site; without ``index.html`` in it, the guide is not built.
    """

    def __init__(self, site: Path = SITE) -> None:
        self._files = StaticFiles(directory=site, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await anyio.to_thread.run_sync(self._answer, scope)
        response.headers.update(_HEADERS)
        await response(scope, receive, send)

    def _look_up(self, path: str) -> tuple[str, os.stat_result | None]:
        """Look a file up; a path that is not a valid file name finds none."""
        try:
            return self._files.lookup_path(path)
        except (OSError, ValueError):  # too long, or with a NUL
            return "", None

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        path = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        place, status = self._look_up(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            if path and not path.endswith("/"):
                # A relative path, because an absolute one would repeat the name in Host.
                return RedirectResponse(f"{PurePosixPath(path).name}/", status_code=307)
            place, status = self._files.lookup_path(f"{path}index.html")
        if status is not None and stat.S_ISREG(status.st_mode):
            return self._files.file_response(place, status, scope)
        # Use the raw path: an escaped slash separates nothing.
        depth = scope.get("raw_path", scope["path"].encode()).count(b"/") - scope.get("root_path", "").count("/") - 1
        top = "../" * depth or "./"
        _, home = self._files.lookup_path("index.html")
        title, text = ("There is no such page", _LOST) if home is not None else ("The guide is not built", _ABSENT)
        return HTMLResponse(_PAGE.format(title=title, text=text.format(top=top)), status_code=404)


def guide_routes(site: Path = SITE) -> list[BaseRoute]:
    return [Route(PATH, _with_slash, include_in_schema=False), Mount(PATH, Guide(site))]


def error_page(code: str, site: Path = SITE) -> str | None:
    """Return the URL of a code in the guide, relative to `/v1/errors/{code}`; None without a guide."""
    return f"../..{PATH}/{ERRORS_PAGE}#{code}" if (site / ERRORS_PAGE / "index.html").is_file() else None


async def _with_slash(_: Request) -> Response:
    return RedirectResponse(f"{PATH.removeprefix('/')}/", status_code=307)

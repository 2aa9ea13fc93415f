"""The console's page and files at `/console`, from the bundle that `make console` builds.

The page loads nothing from other sites; its Content-Security-Policy enforces this. Everybody may load it, as `/docs`: it reads data with the
key of its user. This module knows nothing of queries; `app/console` does.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

BUILT: Final = Path(__file__).resolve().parent.parent / "console" / "built"
NONCE_MARK: Final = "%CSP_NONCE%"
"""Place of the answer's nonce in the page; the editor adds styles with it."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The names of assets have a digest of their contents.
_ASSET_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "public, max-age=31536000, immutable"}


class _Bundle:
    """The built bundle, read at the first request: the OpenAPI document, from which it is built, is made before it exists."""

    def __init__(self, built: Path) -> None:
        self._built = built

    @cached_property
    def page(self) -> str:
        return (self._built / "index.html").read_text(encoding="utf-8")

    @cached_property
    def assets(self) -> Mapping[str, Path]:
        return {path.name: path for path in (self._built / "assets").iterdir()}


def console_routes(built: Path = BUILT) -> list[BaseRoute]:
    bundle = _Bundle(built)
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def to_console(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(404)  # a program with a wrong path needs an error
        return RedirectResponse("/console/")

    @router.get("/console/assets/{name}")
    async def get_asset(name: str) -> Response:
        return _asset(bundle.assets, name)

    @router.get("/console")
    @router.get("/console/{path:path}")
    async def get_page() -> Response:
        return _page(bundle.page)

    return list(router.routes)


def _page(text: str) -> Response:
    """Answer the page for any path below it: the page itself reads the path."""
    nonce = secrets.token_urlsafe(16)
    headers = {**_HEADERS, "Content-Security-Policy": _POLICY.format(nonce=nonce)}
    return HTMLResponse(text.replace(NONCE_MARK, nonce), headers=headers)


def _asset(assets: Mapping[str, Path], name: str) -> Response:
    path = assets.get(name)
    if path is None:
        raise HTTPException(404)
    return FileResponse(path, headers=_ASSET_HEADERS)

"""Keep web pages of other sites from using a service without keys through the browser of their reader.

A service without keys trusts every client that reaches it. A browser on the same machine reaches it, and runs the scripts of every page. So the
name in ``Host`` must be one of the service's own (otherwise DNS rebinding would give the page's origin access), and a request caused by a page
of another origin is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from app.errors.app_errors import AppError, Forbidden, Misdirected
from app.http.answers.problems import problem_response
from app.http.guards.request_middleware import READING
from app.telemetry.line_limit import LineLimit

log = structlog.stdlib.get_logger(__name__)

OWN_SITES: Final = frozenset({"", "same-origin", "none"})
"""Values of ``Sec-Fetch-Site``: no browser, a page of the service, the address bar."""


class BrowserGuard:
    """ASGI middleware around a service without keys.

    Args:
        names: host names under which the service may be asked for, beside localhost and addresses.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: frozenset[str],
        limit: LineLimit,
        refused: Callable[[Request, AppError], Response] = problem_response,
    ) -> None:
        self._app = app
        self._limit = limit
        self._refused = refused
        self._names = frozenset(name.lower() for name in names) | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            refusal = self._refusal(headers, scope.get("method", ""))
            if refusal is not None and self._limit.admits("foreign_request_refused", refusal.code):
                log.warning(
                    "foreign_request_refused",
                    code=refusal.code,
                    host=headers.get("host", "")[:100],
                    origin=headers.get("origin", "")[:100],
                )
            if refusal is not None and scope["type"] == "websocket":
                await WebSocketClose(reason=refusal.code)(scope, receive, send)
                return
            if refusal is not None:
                await self._refused(Request(scope), refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, method: str) -> AppError | None:
        host = headers.get("host", "")
        name = _name_of(host)
        if name is None or not (name in self._names or _is_address(name)):
            return Misdirected(
                "host_not_allowed",
                f"this service asks for no keys, so it answers to localhost, to addresses and to the names in SLACKWATER_ALLOWED_HOSTS "
                f"only, not to {host[:100]!r}",
            )
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin")
        is_link = method in READING and headers.get("sec-fetch-mode") == "navigate"
        is_foreign = origin is not None and _authority_of(origin) != host.lower()
        if is_foreign or (site not in OWN_SITES and not is_link):
            return Forbidden(
                "foreign_origin",
                "this service asks for no keys, so it refuses what pages of other origins send through a browser; call it from a program, "
                "or ask for keys (SLACKWATER_AUTH=on) and put a proxy of the page's own origin before it",
            )
        return None


def _name_of(host: str) -> str | None:
    """Return the name in a Host header without its port, lower case; None if there is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address: a page cannot bind an address to another machine."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _authority_of(origin: str) -> str | None:
    """Return host and port of an origin; None if it is not an origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None

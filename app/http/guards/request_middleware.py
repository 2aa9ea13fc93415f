"""The outermost layer of a request: its id, its log context, its metrics, its span, and the limit of its body."""

from __future__ import annotations

import logging
import random
import re
import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.request_id import REQUEST_ID, SCOPE_KEY, request_id_of
from app.telemetry.line_limit import LineLimit
from app.telemetry.setup import Metrics
from app.telemetry.tracing import Done, Tracing

log = structlog.stdlib.get_logger(__name__)
_REQUEST_ID = b"x-request-id"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READING | {"PUT", "POST", "DELETE", "PATCH"}
KEY_NAME = "slackwater.key_name"
"""Key of a request's scope under which the guard stores the name of its API key."""

_GUARDING = ((b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"frame-ancestors 'none'"))
"""Headers of every answer that does not set them itself: a browser does not guess other media types, and does not show a page such as ``/docs``
inside a page of another site, which could make the reader press its buttons."""

_ENABLED = logging.getLogger(__name__).isEnabledFor  # building a line that is not logged would cost time on the hot path
# A caller's own id is used if it is safe in a log line.
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of body sizes.

    Attributes:
        append_bytes: of appends. Their records are parsed in threads, with admission control.
        control_bytes: of all other requests.
    """

    append_bytes: int
    control_bytes: int

    def of(self, scope: Scope) -> tuple[int, str]:
        """Return the limit of a request, and its setting."""
        if scope["method"] == "POST" and scope["path"].endswith("/records"):
            return self.append_bytes, "SLACKWATER_MAX_BODY_BYTES"
        return min(self.control_bytes, self.append_bytes), "SLACKWATER_MAX_CONTROL_BODY_BYTES"


class RequestMiddleware:
    """ASGI middleware around the whole application.

    A body over its limit raises ``HTTPException(413)`` where it is read, so that none of it stays in memory; the error handlers
    then answer ``body_too_large``.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, limits: BodyLimits, limit: LineLimit, tracing: Tracing | None = None
    ) -> None:
        self._app = app
        self._line_limit = limit
        self._metrics = metrics
        self._tracing = tracing
        self._limits = limits
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        offered = headers.get(_REQUEST_ID, b"").decode("latin-1")
        # Ids must be unique, but may be guessable.
        request_id = offered if _ACCEPTABLE_ID.fullmatch(offered) else str(uuid.UUID(int=random.getrandbits(128), version=4))
        scope[SCOPE_KEY] = request_id
        REQUEST_ID.set(request_id)
        started = time.perf_counter()
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _set_headers(message, request_id)
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, self._limited(scope, headers.get(b"content-length", b""), receive), send_with_id)
            finally:
                self._observe(scope, status, time.perf_counter() - started)

    def _limited(self, scope: Scope, declared: bytes, receive: Receive) -> Receive:
        limit, setting = self._limits.of(scope)
        is_declared_too_large = declared.isdigit() and int(declared) > limit
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            if is_declared_too_large:
                raise _too_large(limit, setting)
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit, setting)
            return message

        return receive_limited

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request and log it: writes and failures at INFO; reads, appends and refusals for overload at DEBUG.

        The path is not logged: it may have keys of rows.
        """
        route = getattr(scope.get("route"), "path", "unmatched")
        # The method is a text of the client; only known methods become labels.
        method = scope["method"] if scope["method"] in METHODS else "other"
        labels = method, route, status
        series = self._series.get(labels)
        if series is None:
            metrics = self._metrics
            series = self._series[labels] = metrics.requests.labels(*labels), metrics.request_seconds.labels(method, route)
        series[0].inc()
        series[1].observe(seconds)
        if self._tracing is not None:
            self._tracing.record(_span(scope, method, route, status, seconds))
        # A refusal for overload is counted; a log line for each would add load.
        is_frequent = method in READING or (method == "POST" and route.endswith("/records"))
        is_quiet = status == HTTPStatus.TOO_MANY_REQUESTS or (status < HTTPStatus.BAD_REQUEST and is_frequent)
        level = logging.DEBUG if is_quiet else logging.INFO
        if _ENABLED(level) and self._has_line(scope, status):
            log.log(
                level,
                "request_answered",
                method=method,
                route=route,
                status=status,
                ms=round(seconds * 1000, 1),
                api_key=scope.get(KEY_NAME),
            )

    def _has_line(self, scope: Scope, status: int) -> bool:
        """Whether a request is logged: refusals of those who have shown no key are bounded, for anybody can cause them."""
        is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        is_strange = is_refusal and scope.get(KEY_NAME) is None
        return not is_strange or self._line_limit.admits("request_answered", str(status))


def _span(scope: Scope, method: str, route: str, status: int, seconds: float) -> Done:
    """Return the span of the answered request; without its path, as in the log."""
    headers = dict(scope["headers"])
    caller = {
        name: headers[name.encode()].decode("latin-1") for name in ("traceparent", "tracestate") if name.encode() in headers
    }
    ended_ns = time.time_ns()
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "http.route": route,
        "http.response.status_code": status,
        "slackwater.request_id": request_id_of(scope),
    }
    is_failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Done(f"{method} {route}", ended_ns - round(seconds * 1e9), ended_ns, attributes, is_failed, caller)


def _set_headers(message: Message, request_id: str) -> None:
    headers = [
        header for header in message["headers"] if header[0].lower() != _REQUEST_ID
    ]  # answers with errors set it themselves
    names = [name for name, _ in headers]
    headers += [header for header in _GUARDING if header[0] not in names]
    message["headers"] = [*headers, (_REQUEST_ID, request_id.encode())]


def _too_large(limit: int, setting: str) -> HTTPException:
    return HTTPException(413, f"the body is over the limit of {limit} bytes; send less at a time, or raise {setting}")

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
"""Where in a request's scope the guard notes whose key it carries."""

_GUARDING = ((b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"frame-ancestors 'none'"))
"""Headers of every answer that has none of its own: a browser takes data for nothing else, and shows no page of ours, such as ``/docs``,
inside of a stranger's, who could have the reader press its buttons."""

_ENABLED = logging.getLogger(__name__).isEnabledFor  # a line that nobody wants shall not cost the hot path its making
# A caller's own id is taken over if it can stand in a log line as it is.
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large bodies may be.

    Attributes:
        append_bytes: of appends, whose records are parsed in threads and counted by a gate.
        control_bytes: of everything else.
    """

    append_bytes: int
    control_bytes: int

    def of(self, scope: Scope) -> tuple[int, str]:
        """Return the limit of a request, and the setting that says it."""
        if scope["method"] == "POST" and scope["path"].endswith("/records"):
            return self.append_bytes, "SLACKWATER_MAX_BODY_BYTES"
        return min(self.control_bytes, self.append_bytes), "SLACKWATER_MAX_CONTROL_BODY_BYTES"


class RequestMiddleware:
    """ASGI middleware around the whole application.

    A body over its limit raises ``HTTPException(413)`` where it is read, so that nothing of it is kept; the error handlers
    then answer ``body_too_large``.

    Args:
        app: what is inside.
        metrics: where requests are counted.
        limits: of bodies.
        limit: of log lines.
        tracing: where spans go.
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
        given = dict(scope["headers"])
        offered = given.get(_REQUEST_ID, b"").decode("latin-1")
        # Ids need to differ, not to be hard to guess.
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
                await self._app(scope, self._limited(scope, given.get(b"content-length", b""), receive), send_with_id)
            finally:
                self._observe(scope, status, time.perf_counter() - started)

    def _limited(self, scope: Scope, declared: bytes, receive: Receive) -> Receive:
        limit, setting = self._limits.of(scope)
        is_declared_too_large = declared.isdigit() and int(declared) > limit
        taken = 0

        async def receive_limited() -> Message:
            nonlocal taken
            if is_declared_too_large:
                raise _too_large(limit, setting)
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise _too_large(limit, setting)
            return message

        return receive_limited

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request, and log it: writes and failures at INFO; reads, appends and refusals for overload at DEBUG.

        The path stays out: it can hold keys of rows.
        """
        route = getattr(scope.get("route"), "path", "unmatched")
        # The method is the client's own word; only those that exist become labels.
        method = scope["method"] if scope["method"] in METHODS else "other"
        labels = method, route, status
        kept = self._series.get(labels)
        if kept is None:
            metrics = self._metrics
            kept = self._series[labels] = metrics.requests.labels(*labels), metrics.request_seconds.labels(method, route)
        kept[0].inc()
        kept[1].observe(seconds)
        if self._tracing is not None:
            self._tracing.record(_span(scope, method, route, status, seconds))
        # A refusal for overload is counted; a line for each would be load of its own.
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
    """Describe the request that has just been answered; without its path, as in the log."""
    given = dict(scope["headers"])
    caller = {name: given[name.encode()].decode("latin-1") for name in ("traceparent", "tracestate") if name.encode() in given}
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
    headers = [header for header in message["headers"] if header[0].lower() != _REQUEST_ID]  # errors name it already
    names = [name for name, _ in headers]
    headers += [header for header in _GUARDING if header[0] not in names]
    message["headers"] = [*headers, (_REQUEST_ID, request_id.encode())]


def _too_large(limit: int, setting: str) -> HTTPException:
    return HTTPException(413, f"the body is over the limit of {limit} bytes; send less at a time, or raise {setting}")

"""The outermost layer of a request: its id, its log context, its metrics, and the limit of its body."""

from __future__ import annotations

import logging
import re
import time
import uuid
from http import HTTPStatus

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.telemetry import Metrics

log = structlog.stdlib.get_logger(__name__)
REQUEST_ID_HEADER = "X-Request-Id"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READING | {"PUT", "POST", "DELETE", "PATCH"}
KEY_NAME = "slackwater.key_name"
"""Where in a request's scope the guard notes whose key it carries."""

_ENABLED = logging.getLogger(__name__).isEnabledFor  # a line that nobody wants shall not cost the hot path its making
_SCOPE_KEY = "slackwater.request_id"
# A caller's own id is taken over if it can stand in a log line as it is.
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


def request_id_of(scope: Scope) -> str:
    """Return the id of the request that ``scope`` belongs to."""
    return str(scope.get(_SCOPE_KEY, "-"))


class Edge:
    """ASGI middleware around the whole application.

    A body over ``max_body_bytes`` raises ``HTTPException(413)`` where it is read, so that nothing of it is kept; the error handlers
    then answer ``body_too_large``.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, max_body_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        offered = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = offered if _ACCEPTABLE_ID.fullmatch(offered) else str(uuid.uuid4())
        scope[_SCOPE_KEY] = request_id
        started = time.perf_counter()
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, self._limited(scope, receive), send_with_id)
            finally:
                self._observe(scope, status, time.perf_counter() - started)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        limit = self._max_body_bytes
        too_large = HTTPException(
            413, f"the body is over the limit of {limit} bytes; send less at a time, or raise SLACKWATER_MAX_BODY_BYTES"
        )
        declared = Headers(scope=scope).get("content-length", "")
        is_declared_too_large = declared.isdecimal() and int(declared) > limit
        taken = 0

        async def receive_limited() -> Message:
            nonlocal taken
            if is_declared_too_large:
                raise too_large
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise too_large
            return message

        return receive_limited

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the request, and log it: writes and failures at INFO, reads at DEBUG. The path stays out: it can hold keys of rows."""
        route = getattr(scope.get("route"), "path", "unmatched")
        # The method is the client's own word; only those that exist become labels.
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.request_seconds.labels(method, route).observe(seconds)
        level = logging.DEBUG if status < HTTPStatus.BAD_REQUEST and method in READING else logging.INFO
        if _ENABLED(level):
            log.log(
                level,
                "request_answered",
                method=method,
                route=route,
                status=status,
                ms=round(seconds * 1000, 1),
                api_key=scope.get(KEY_NAME),
            )

"""Build every port of the service here, so that each port has all guards; serve until a signal."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from app.errors.app_errors import AppError
from app.http.answers.problems import problem_response
from app.http.guards.browsers import BrowserGuard
from app.http.guards.request_middleware import BodyLimits, RequestMiddleware
from app.http.requests.stored_texts import StoredTexts
from app.http.servers.bounds import ConnectionBounds, connections_for, raise_file_limit
from app.http.servers.http1 import impatient_protocol
from app.settings.settings import Settings
from app.telemetry.line_limit import LineLimit
from app.telemetry.setup import Metrics
from app.telemetry.tracing import Tracing

KEEP_ALIVE_S: Final = 75
"""Longer than clients keep an idle connection: if the server closes first while the client sends, a request is lost."""

log = structlog.stdlib.get_logger(__name__)


def guard(
    app: FastAPI,
    settings: Settings,
    metrics: Metrics,
    tracing: Tracing | None,
    refused: Callable[[Request, AppError], Response] = problem_response,
    *,
    port: str = "api",
) -> None:
    """Put the guards of every port around an application; no middleware may be added around them."""
    limit = app.state.line_limit = LineLimit(port)
    app.add_middleware(StoredTexts, refused=refused)
    if not settings.is_key_required:
        app.add_middleware(BrowserGuard, names=settings.host_names, limit=limit, refused=refused)
    limits = BodyLimits(settings.max_body_bytes, settings.max_control_body_bytes)
    app.add_middleware(RequestMiddleware, metrics=metrics, limits=limits, limit=limit, tracing=tracing)


def server_config(
    app: FastAPI, settings: Settings, *, graceful_s: int, speaks_http2: bool = False, **more: Any
) -> uvicorn.Config:
    """Return the configuration of a port.

    Args:
        app: with its guards (``guard``).
        settings: of the service.
        graceful_s: time for running answers when the service stops.
        speaks_http2: also serve HTTP/2 without TLS, with prior knowledge.
        more: of ``uvicorn.Config``.
    """
    ports = 1 if settings.ksql_port is None else 2
    raise_file_limit(settings.limits.connections * ports)
    bounds = ConnectionBounds(settings.client_timeout_s, connections_for(settings.limits.connections, ports))
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=graceful_s,
        timeout_keep_alive=KEEP_ALIVE_S,
        http=impatient_protocol(bounds, app.state.line_limit, speaks_http2=speaks_http2),
        ws="none",
        **more,
    )


def open_port(host: str, port: int, setting: str) -> socket.socket:
    """Open a port before its server starts. Clients that connect from then on wait, and no other process can take the port.

    Raises:
        OSError: the port is not available; the message names the setting.
    """
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen()
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"{host}:{port} cannot be had ({error.strerror}): set {setting} to another port") from error
    return opened


async def serve_beside(config: uvicorn.Config, opened: socket.socket, stopping: asyncio.Event) -> None:
    """Serve a second port in the loop of the service until ``stopping`` is set; then close the port."""
    server = _BesideServer(config)
    serving = asyncio.create_task(server.serve([opened]))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.should_exit = True
        await serving


class _BesideServer(uvicorn.Server):
    """Leaves signals to the main server of the service, which ends this one."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


STARTUP_FAILURE = 3
"""Exit code, the same as uvicorn's."""

YOUNG_OBJECTS = 10_000
"""New objects that start a garbage collection, instead of Python's 700: objects of a few requests are freed without one."""


class Server(uvicorn.Server):
    """Ends every event stream and long poll when the service stops; they would not end within the grace period."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See ``uvicorn.Server``. Objects at startup are permanent: no collection visits these 400,000 objects again."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.close_streams()
        await super().shutdown(sockets)


def run(config: uvicorn.Config, app: FastAPI) -> None:
    """Serve until a signal comes; exit the process if the application did not start."""
    server = Server(config, app)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)

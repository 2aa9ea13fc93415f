"""The listener: ksqlDB's protocol over HTTP/1.1 and HTTP/2 without TLS on one port, in the service's own process.

Most clients begin HTTP/2 without asking (prior knowledge), which the service's own server does not speak; Hypercorn does.
"""

from __future__ import annotations

import asyncio
import socket

import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from hypercorn.asyncio import serve
from hypercorn.config import Config, Sockets
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.api.database_errors import DATABASE_ERRORS, from_database
from app.api.deps import Services
from app.api.tokens import Doorkeeper
from app.errors import AppError, BadRequest, Internal
from app.ksqldb import inserts, queries, service, statements
from app.ksqldb.access import guard
from app.ksqldb.errors import NOT_FOUND, error_response
from app.ksqldb.queries import OpenQueries
from engine.errors import EngineError

KEEP_ALIVE_S = 900
"""Push queries may be silent for long."""

log = structlog.stdlib.get_logger(__name__)


def create_listener(services: Services, door: Doorkeeper) -> FastAPI:
    """Build the application of the listener.

    Args:
        services: of the service in whose process it runs.
        door: recognises keys.
    """
    own = guard(door, is_required=services.settings.is_key_required)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(own)])
    app.state.services, app.state.queries = services, OpenQueries()
    for router in (service.router, statements.router, queries.router, inserts.router):
        app.include_router(router)

    @app.exception_handler(AppError)
    async def _app_error(_request: Request, error: AppError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(ClientDisconnect)
    async def _gone(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        # Nobody reads this answer; it is no fault of ours either.
        return error_response(BadRequest("malformed_body", "the connection ended before the body did"))

    @app.exception_handler(EngineError)
    @app.exception_handler(Exception)
    async def _fault(_request: Request, error: Exception) -> JSONResponse:
        log.error("listener_failed", error=str(error), exc_info=error)
        return error_response(Internal("internal_error", "a fault of the service"))

    for kind in DATABASE_ERRORS:

        @app.exception_handler(kind)
        async def _away(_request: Request, error: Exception) -> JSONResponse:
            return error_response(from_database(error, "a request", services.settings.limits.read_timeout_ms))

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> Response:
        body = {
            "@type": "generic_error",
            "error_code": NOT_FOUND if error.status_code == 404 else 40000,
            "message": str(error.detail),
        }
        return JSONResponse(body, error.status_code, error.headers)

    return app


async def listen(app: FastAPI, door: socket.socket, stopping: asyncio.Event) -> None:
    """Serve until ``stopping`` is set.

    Args:
        app: what answers.
        door: as ``opened`` gives it; it is closed in the end.
        stopping: ends it.
    """
    host, port = door.getsockname()[:2]
    config = _Config()
    config.bind = [f"fd://{door.detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.graceful_timeout = 1.0
    config.include_server_header = False
    log.info("ksqldb_listener_started", host=host, port=port)
    await serve(app, config, shutdown_trigger=stopping.wait)  # type: ignore[arg-type]


class _Config(Config):
    """Hypercorn's, which would have every process inherit the port that this one starts: for workers of its own, of which there are none.

    A driver would hold the port when this process is gone: clients would wait at it for ever, and the next service could not have it.
    """

    def create_sockets(self) -> Sockets:
        """See ``Config``."""
        sockets = super().create_sockets()
        for door in sockets.insecure_sockets:
            door.set_inheritable(False)
        return sockets


def opened(host: str, port: int) -> socket.socket:
    """Open the port before anything is started on it: who connects from then on waits, and nobody else can take it.

    Raises:
        OSError: it cannot be had; with the setting that says another one.
    """
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        door.listen()
    except OSError as error:
        door.close()
        raise OSError(
            error.errno, f"{host}:{port} cannot be had ({error.strerror}): set SLACKWATER_KSQL_PORT to another port"
        ) from error
    return door

"""The application of the port for ksqlDB's protocol, over HTTP/1.1 and HTTP/2 without TLS, in the service's own process.

ksqlDB's clients send basic authentication, with the name of an API key and the key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.access.audit.refusals import RefusalLog
from app.access.guard import RECHECK, note_refusal
from app.access.rules import PRINCIPAL, Role, refuse_below
from app.access.tokens.verifying import Authenticator
from app.errors.app_errors import AppError, BadRequest, Forbidden, Internal, Unauthorized
from app.http.answers.database_errors import DATABASE_ERRORS, translate_and_log
from app.http.guards.request_middleware import KEY_NAME
from app.http.parameters import Services
from app.http.servers.ports import guard
from app.ksqldb import inserts, queries, service
from app.ksqldb.queries import OpenQueries
from app.ksqldb.requests import NOT_FOUND, Refused, error_response
from app.telemetry.tracing import Tracing
from engine.errors import EngineError

log = structlog.stdlib.get_logger(__name__)


def create_listener(services: Services, door: Authenticator, refusals: RefusalLog, tracing: Tracing | None) -> FastAPI:
    guard_of_keys = key_guard(door, is_required=services.settings.is_key_required)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(guard_of_keys)])
    app.state.services, app.state.queries, app.state.refusals = services, OpenQueries(), refusals
    guard(app, services.settings, services.metrics, tracing, lambda _request, error: error_response(error), port="ksqldb")
    for router in (service.router, queries.router, inserts.router):
        app.include_router(router)

    @app.exception_handler(AppError)
    async def _app_error(request: Request, error: AppError) -> JSONResponse:
        if isinstance(error, Forbidden):
            await note_refusal(request, error)
        return error_response(error)

    @app.exception_handler(Refused)
    async def _refused(request: Request, refused: Refused) -> JSONResponse:
        if isinstance(refused.error, Forbidden):
            await note_refusal(request, refused.error)
        return refused.response()

    @app.exception_handler(ClientDisconnect)
    async def _gone(_request: Request, _error: ClientDisconnect) -> JSONResponse:
        # No client reads this answer; and it is not an error of the service.
        return error_response(BadRequest("malformed_body", "the connection ended before the body did"))

    @app.exception_handler(EngineError)
    @app.exception_handler(Exception)
    async def _fault(_request: Request, error: Exception) -> JSONResponse:
        log.error("listener_failed", error=str(error), exc_info=error)
        return error_response(Internal("internal_error", "a fault of the service"))

    for kind in DATABASE_ERRORS:

        @app.exception_handler(kind)
        async def _away(request: Request, error: Exception) -> JSONResponse:
            return error_response(translate_and_log(error, request.url.path, services.settings.limits.read_timeout_ms))

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> Response:
        body = {
            "@type": "generic_error",
            "error_code": NOT_FOUND if error.status_code == 404 else 40000,
            "message": str(error.detail),
        }
        return JSONResponse(body, error.status_code, error.headers)

    return app


def key_guard(door: Authenticator, *, is_required: bool) -> Callable[[Request], Awaitable[None]]:
    """Return the first dependency of every route: it authenticates the key. The statement itself checks its role and scope."""

    async def check(request: Request) -> None:
        if is_required:
            text = _presented(request)
            principal = await door.recognise(text)
            request.scope[KEY_NAME] = principal.name
            PRINCIPAL.set(principal)
            refuse_below(Role.READ, "this")
            request.scope[RECHECK] = partial(door.recognise, text)

    return check


def _presented(request: Request) -> str:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(text, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Unauthorized("api_key_invalid", "basic authentication is base64 of name:key") from error
    raise Unauthorized("api_key_missing", "send basic authentication: the name of an API key, and the key", is_missing=True)

"""Errors as RFC 9457 ``application/problem+json``: one form for every failure of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, Literal, Protocol

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from app.errors.app_errors import (
    AppError,
    BadRequest,
    BodyTooLarge,
    Fault,
    Forbidden,
    Internal,
    MethodNotAllowed,
    NotFound,
    Unavailable,
    Unprocessable,
)
from app.errors.error_list import ERRORS, explained_at
from app.http.answers.database_errors import DATABASE_ERRORS, RETRY_AFTER_SECONDS, translate_and_log
from app.http.answers.suggestions import hint_for
from app.http.request_id import REQUEST_ID_HEADER, request_id_of
from engine.errors import DefinitionInvalid, EngineError, ExternalError, UserError

MEDIA_TYPE = "application/problem+json"
log = structlog.stdlib.get_logger(__name__)


class PlaceBody(BaseModel):
    """A place in an SQL text."""

    line: int = Field(description="Counted from 1.", examples=[1])
    column: int = Field(description="Counted from 1.", examples=[8])
    excerpt: str = Field(description="The line, and marks below the part in error.", examples=["SELEKT 1\n^^^^^^"])


class FaultBody(BaseModel):
    """One fault of a request."""

    pointer: str = Field(description="JSON pointer into the body, or `?name` for a parameter.", examples=["/joins/0/grace"])
    code: str = Field(description="Stable code of the fault.", examples=["grace_exceeds_history_retention"])
    detail: str = Field(description="What is wrong and what to do about it.")
    type: str = Field(description="URL of the explanation of the code, relative to the service.")
    place: PlaceBody | None = Field(default=None, description="Place of a fault in an SQL text; absent for other faults.")


class StatementState(BaseModel):
    """The state of one statement of a script that failed half-way."""

    statement: str = Field(description="The statement, with the values of its variables.", examples=["DROP STREAM orders"])
    line: int = Field(description="Its first line in the script, counted from 1.", examples=[1])
    state: Literal["done", "failed", "not_tried"] = Field(
        description="`done`: it was executed, and stays so; `failed`: `errors` says why; `not_tried`: it comes after the failed one."
    )
    message: str | None = Field(default=None, description="For `done`: what was done, in a sentence.")


class ProblemBody(BaseModel):
    """Every error answer (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "/v1/errors/query_not_found",
                    "title": "Not found",
                    "status": 404,
                    "detail": "there is no query 'delays'; GET /v1/queries lists all",
                    "cure": "`GET /v1/queries` lists them.",
                    "instance": "/v1/queries/delays",
                    "code": "query_not_found",
                    "retryable": False,
                    "request_id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11",
                    "errors": [],
                }
            ]
        }
    )

    type: str = Field(
        description="URL of the explanation of the code, relative to the service.", examples=["/v1/errors/query_not_found"]
    )
    title: str = Field(description="Meaning of the status.")
    status: int = Field(description="The HTTP status.", examples=[404])
    detail: str = Field(description="What is wrong and what to do about it.")
    cure: str = Field(description="General cure for this code.", examples=["`GET /v1/queries` lists them."])
    instance: str = Field(description="Path of the request.")
    code: str = Field(description="Stable snake_case code, for programs.")
    retryable: bool = Field(description="Whether the same request can succeed later.")
    request_id: str = Field(description="Also in the X-Request-Id header and in the service's log.")
    errors: list[FaultBody] = Field(description="One entry per fault; empty if there is only one.")
    statements: list[StatementState] | None = Field(
        default=None, description="For a script with several statements: the state of each. Otherwise absent."
    )


class ScriptProgress(Protocol):
    """The progress of a request in a script: ``request.state.script``."""

    def states(self) -> list[StatementState]:
        """Return the state of each statement."""

    def sentence(self) -> str:
        """Return the same as a sentence."""


def problem_response(request: Request, error: AppError) -> JSONResponse:
    """Return the answer for an error; a 500 has no details of the cause."""
    request_id = request_id_of(request.scope)
    body = problem_body(error, request.url.path, request_id)
    progress: ScriptProgress | None = getattr(request.state, "script", None)
    if progress is not None:
        body.detail, body.statements = f"{body.detail}; {progress.sentence()}", progress.states()
    headers = {REQUEST_ID_HEADER: request_id, **error.headers}
    return JSONResponse(body.model_dump(exclude_none=True), error.status, headers, MEDIA_TYPE)


def problem_body(error: AppError, instance: str, request_id: str) -> ProblemBody:
    return ProblemBody(
        type=explained_at(error.code),
        title=error.title,
        status=error.status,
        detail=error.detail,
        cure=ERRORS[error.code].cure if error.code in ERRORS else "",
        instance=instance,
        code=error.code,
        retryable=error.retryable,
        request_id=request_id,
        errors=[_fault_body(fault) for fault in error.faults],
    )


def _fault_body(fault: Fault) -> FaultBody:
    place = (
        None if fault.place is None else PlaceBody(line=fault.place.line, column=fault.place.column, excerpt=fault.place.excerpt)
    )
    return FaultBody(pointer=fault.pointer, code=fault.code, detail=fault.detail, type=explained_at(fault.code), place=place)


def from_engine(error: EngineError) -> AppError:
    """Translate an engine error: caused by the user, by another system, or by us."""
    match error:
        case DefinitionInvalid():
            return definition_invalid([Fault(p.pointer, p.code, p.detail) for p in error.problems])
        case UserError():
            return Unprocessable(error.code, str(error))
        case ExternalError():
            return Unavailable(error.code, str(error), headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
        case _:
            return _internal()


def definition_invalid(faults: Sequence[Fault]) -> Unprocessable:
    """Return the error for an invalid definition. If all faults have one code, the answer has it too."""
    codes = {fault.code for fault in faults}
    code = codes.pop() if len(codes) == 1 else "definition_invalid"
    return Unprocessable(code, "; ".join(f"{f.pointer or '/'}: {f.detail}" for f in faults), faults)


def from_http_exception(error: HTTPException, methods: Set[str] = frozenset(), hint: str | None = None) -> AppError:
    """Translate errors of Starlette: no such route, no such method, an unreadable body.

    Args:
        error: from Starlette. If a path has several routes, its ``Allow`` has the methods of the first one only.
        methods: all methods of the path, if known.
        hint: the likely intention.
    """
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            return NotFound("not_found", f"there is no such path: {hint or '/docs lists every path'}", headers=headers)
        case 405:
            headers["Allow"] = ", ".join(sorted(methods)) or headers.get("Allow", "GET")
            also = "" if hint is None else f"; {hint}"
            return MethodNotAllowed("method_not_allowed", f"this path takes {headers['Allow']} only{also}", headers=headers)
        case 413:
            return BodyTooLarge("body_too_large", str(error.detail), headers=headers)
        case status if status < 500:
            return BadRequest("malformed_body", "the body could not be read: is it UTF-8, and complete?", headers=headers)
        case _:
            return _internal()


def from_request_validation(errors: Sequence[Any]) -> AppError:
    """Translate errors of FastAPI: bad JSON and bad parameters are 400, a body of the wrong shape is 422."""
    for error in errors:
        if error["type"] == "json_invalid":
            reason = error.get("ctx", {}).get("error", "unreadable")
            at = error["loc"][-1]
            return BadRequest(
                "malformed_json", f"the body is not JSON: {reason} at character {at}", [Fault("", "malformed_json", reason)]
            )
    in_body = [error for error in errors if error["loc"][0] == "body"]
    if in_body:
        return definition_invalid([_body_fault(error) for error in in_body])
    faults = [Fault(f"?{error['loc'][-1]}", "bad_parameter", error["msg"]) for error in errors]
    return BadRequest("bad_parameter", "; ".join(f"{f.pointer[1:]}: {f.detail}" for f in faults), faults)


# Error types of pydantic with a code of their own; others are values of the wrong shape.
BODY_CODES = {"missing": "missing_field", "extra_forbidden": "unknown_field"}


def _body_fault(error: Any) -> Fault:
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error["loc"][1:])
    return Fault(pointer, BODY_CODES.get(error["type"], "invalid_value"), error["msg"])


def _no_route(request: Request, error: HTTPException) -> AppError:
    paths = {path: {method.upper() for method in methods} for path, methods in request.app.openapi()["paths"].items()}
    allowed = {
        method for path, methods in paths.items() if compile_path(path)[0].fullmatch(request.url.path) for method in methods
    }
    return from_http_exception(error, allowed, hint_for(request.method, request.url.path, paths))


def _internal() -> Internal:
    return Internal("internal_error", "a fault of the service; please report it with the request id")


def install_error_handlers(
    app: FastAPI, read_timeout_ms: int, on_forbidden: Callable[[Request, Forbidden], Awaitable[None]]
) -> None:
    """Answer every failure of ``app`` with a problem.

    Args:
        app: the application.
        read_timeout_ms: time limit of reads.
        on_forbidden: called with the request and the refusal before the answer.
    """

    @app.exception_handler(AppError)
    async def _app_error(request: Request, error: AppError) -> JSONResponse:
        if isinstance(error, Forbidden):
            await on_forbidden(request, error)
        return problem_response(request, error)

    @app.exception_handler(EngineError)
    async def _engine_error(request: Request, error: EngineError) -> JSONResponse:
        translated = from_engine(error)
        if translated.status == Internal.status:
            log.error("request_failed", error=str(error), code=error.code, exc_info=error)
        return problem_response(request, translated)

    @app.exception_handler(ClientDisconnect)
    async def _gone(request: Request, _error: ClientDisconnect) -> JSONResponse:
        # No client reads this answer; and it is not an error of the service.
        return problem_response(request, BadRequest("malformed_body", "the connection ended before the body did"))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(request, from_request_validation(error.errors()))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        is_lost = error.status_code in (404, 405)
        return problem_response(request, _no_route(request, error) if is_lost else from_http_exception(error))

    async def _database(request: Request, error: Exception) -> JSONResponse:
        return problem_response(request, translate_and_log(error, request.url.path, read_timeout_ms))

    for kind in DATABASE_ERRORS:
        app.add_exception_handler(kind, _database)

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("request_failed", exc_info=error)
        return problem_response(request, _internal())

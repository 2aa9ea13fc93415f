"""Bodies of requests, lines of answers, and errors. All are JSON; clients send different media types for it, and ksqlDB's own client sends none.

Some clients take every frame of an answer for one line, as ksqlDB's server sends them. HTTP/2 joins writes without a pause into one frame. So
few lines are written with pauses; many lines are written at once, for speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse

from app.errors.app_errors import AppError, BadRequest, Fault, UnsupportedMediaType
from app.http.requests.bodies import JSON_TYPE, parse_request, refuse_encoding
from app.sql.scripts import Words

BAD_REQUEST: Final = 40000
BAD_STATEMENT: Final = 40001
QUERY_ENDPOINT: Final = 40002
NOT_FOUND: Final = 40400
SERVER_ERROR: Final = 50000
_OWN_STATUSES: Final = frozenset({401, 403, 413, 415, 421, 429})
_CODES: Final = {401: 40100, 403: 40300, 404: NOT_FOUND, 429: 42900, 503: 50300}


def error_body(error: AppError, statement: str | None = None) -> dict[str, Any]:
    """Return the object for an error; the error of a statement names the statement."""
    code = _CODES.get(error.status, BAD_STATEMENT if statement is not None else BAD_REQUEST)
    code = SERVER_ERROR if error.status == 500 else code
    marks = [fault.place.excerpt for fault in error.faults if fault.place is not None]
    message = "\n".join([error.detail, *marks])
    if statement is None:
        return {"@type": "generic_error", "error_code": code, "message": message}
    return {
        "@type": "statement_error",
        "error_code": code,
        "message": f"{message}\nStatement: {statement}",
        "statementText": statement,
        "entities": [],
    }


def status_of(error: AppError) -> int:
    """Return the HTTP status: this protocol has 400 for every fault of a statement."""
    return error.status if error.status in _OWN_STATUSES or error.status >= 500 else 400


def error_response(error: AppError) -> JSONResponse:
    return JSONResponse(error_body(error), status_of(error), error.headers)


class Refused(Exception):
    """A statement was refused. The answer names it, and the entities of earlier statements.

    Args:
        how_far: added to the message.
    """

    def __init__(self, error: AppError, statement: str, entities: Sequence[dict[str, Any]] = (), how_far: str = "") -> None:
        super().__init__(error.detail)
        self.error = error
        body = error_body(error, statement)
        self._body = {**body, "message": f"{body['message']}{how_far}", "entities": list(entities)}

    def response(self) -> JSONResponse:
        return JSONResponse(self._body, status_of(self.error), self.error.headers)


_KINDS = frozenset({JSON_TYPE, "application/vnd.ksqlapi.delimited.v1"})


@dataclass(frozen=True, slots=True)
class StatementRequest:
    """The statements of a request.

    Attributes:
        variables: values of ``${name}``.
    """

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> Words:
        """Return the settings and variables as those of a session."""
        return Words(dict(self.settings), dict(self.variables))


async def body_of(request: Request) -> bytes:
    """Read a body that is declared as JSON, or that no browser sent; ``RequestMiddleware`` limits it.

    Raises:
        UnsupportedMediaType: a media type that a page of another site can send without a preflight.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    is_of_browser = "origin" in request.headers or "sec-fetch-site" in request.headers
    if not kind and is_of_browser:
        raise UnsupportedMediaType("media_type_missing", f"say what the body is: Content-Type: {JSON_TYPE}")
    if kind and kind not in _KINDS and not kind.endswith("+json"):
        raise UnsupportedMediaType("unsupported_media_type", f"send {JSON_TYPE}, not {kind}")
    refuse_encoding(request)
    return await request.body()


async def statement_request(request: Request, *names: str) -> StatementRequest:
    """Read a request with statements.

    Args:
        request: its body is a JSON object.
        names: possible names of the member with the statements.
    """
    value = parse_request(await body_of(request))
    if not isinstance(value, dict):
        raise _bad("the body is a JSON object")
    text = next((value[name] for name in names if name in value), None)
    if not isinstance(text, str):
        raise _bad(f"`{names[0]}` is missing: the text of the statements")
    properties = value.get("streamsProperties") or value.get("properties") or {}
    variables = value.get("sessionVariables") or {}
    if not isinstance(properties, dict) or not isinstance(variables, dict):
        raise _bad("properties and sessionVariables are JSON objects")
    return StatementRequest(
        text,
        {str(name): _text(each) for name, each in properties.items()},
        {str(name): str(each) for name, each in variables.items()},
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bad(detail: str) -> BadRequest:
    return BadRequest("malformed_body", detail, [Fault("", "malformed_body", detail)])


PAUSE_S: Final = 0.01
FEW_LINES: Final = 10


async def in_pieces(lines: Sequence[bytes]) -> AsyncGenerator[bytes]:
    """Yield lines one by one with a pause after each, or all at once if they are many."""
    if len(lines) > FEW_LINES:
        yield b"".join(lines)
        return
    for line in lines:
        yield line
        await asyncio.sleep(PAUSE_S)

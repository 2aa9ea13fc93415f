"""Errors in the form of ksqlDB's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi.responses import JSONResponse

from app.errors.app_errors import AppError

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

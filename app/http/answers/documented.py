"""OpenAPI documentation of errors and examples, in one place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.errors.app_errors import (
    AppError,
    BadRequest,
    BodyTooLarge,
    Conflict,
    Forbidden,
    Gone,
    Internal,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    NotInTime,
    PreconditionFailed,
    TooExpensive,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unprocessable,
    UnsupportedMediaType,
)
from app.errors.error_list import ERRORS, explained_at
from app.http.answers.problems import MEDIA_TYPE

_MEANING: dict[int, tuple[type[AppError], str, str]] = {
    400: (BadRequest, "unknown_parameter", "unknown parameter limt (did you mean limit?); this path takes cursor, limit"),
    401: (Unauthorized, "api_key_missing", "send an API key or a token: Authorization: Bearer …"),
    403: (Forbidden, "role_too_low", "this needs a key with the role write; the key 'dashboard' has the role read"),
    404: (NotFound, "query_not_found", "there is no query 'delays'; GET /v1/queries lists all"),
    405: (MethodNotAllowed, "method_not_allowed", "this path takes GET only"),
    406: (NotAcceptable, "not_acceptable", "this path answers application/json and text/event-stream, not image/png"),
    409: (Conflict, "name_taken", "the name 'weather' is taken by a table"),
    410: (Gone, "offset_expired", "records before 9000 were removed by the retention; the oldest is 9000"),
    412: (
        PreconditionFailed,
        "version_mismatch",
        'query \'delays\' is at version "3", not "2"; read it again and repeat the edit',
    ),
    413: (BodyTooLarge, "body_too_large", "the body is over the limit of 67108864 bytes; send less at a time"),
    415: (UnsupportedMediaType, "unsupported_media_type", "send application/json, application/x-ndjson or Arrow"),
    422: (
        Unprocessable,
        "grace_exceeds_history_retention",
        "/joins/0/grace: 3d is more than the history retention 2d of weather",
    ),
    429: (TooManyRequests, "too_many_requests", "48 reads of rows are under way; try again"),
    500: (Internal, "internal_error", "a fault of the service; please report it with the request id"),
    504: (
        NotInTime,
        "position_not_reached",
        'after 30 s the table includes {"log:departures":{"0":17}}, not yet what was asked for',
    ),
    503: (Unavailable, "database_unavailable", "the database did not answer; try again in a moment"),
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of an endpoint that can fail with these statuses; 500 and 503 are always included."""
    return {status: _problem(status) for status in sorted({*statuses, 500, 503})}


def _problem(status: int) -> dict[str, Any]:
    return _documented(status, *_MEANING[status])


def _documented(status: int, kind: type[AppError], code: str, detail: str) -> dict[str, Any]:
    value = {
        "type": explained_at(code),
        "title": kind.title,
        "status": status,
        "detail": detail,
        "cure": ERRORS[code].cure,
        "instance": "/v1/queries/delays",
        "code": code,
        "retryable": kind.retryable,
        "request_id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11",
        "errors": [{"pointer": "/joins/0/grace", "code": code, "detail": detail, "type": explained_at(code)}]
        if status == 422
        else [],
    }
    return {
        "description": kind.title,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}, "example": value}},
    }


TOO_EXPENSIVE = _documented(
    504,
    TooExpensive,
    "read_too_expensive",
    "/v1/streams/departures/records: the database did not finish within 10000 ms. Ask for less: a narrower time, fewer with `limit`; or raise "
    "SLACKWATER_LIMITS__READ_TIMEOUT_MS",
)
"""The answer to a read that the database did not finish."""


def answered(value: Any, description: str = "Done.", headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a response's documentation with an example of its body."""
    documented: dict[str, Any] = {"description": description, "content": {"application/json": {"example": packed(value)}}}
    if headers is not None:
        documented["headers"] = {name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()}
    return documented


_PACKED = "packed-example:"


def packed(value: Any) -> str:
    """Return an example as text. FastAPI removes every null from the document, also from examples; ``unpacked`` restores them."""
    return _PACKED + json.dumps(value)


def unpacked(value: Any) -> Any:
    """Return a part of the document with its packed examples unpacked."""
    if isinstance(value, dict):
        return {name: unpacked(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [unpacked(inner) for inner in value]
    return json.loads(value.removeprefix(_PACKED)) if isinstance(value, str) and value.startswith(_PACKED) else value


def body_examples(**examples: tuple[str, Any]) -> dict[str, Any]:
    """Return named examples of a request body: name = (summary, value)."""
    return {name: {"summary": summary, "value": packed(value)} for name, (summary, value) in examples.items()}

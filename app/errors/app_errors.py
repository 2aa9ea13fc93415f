"""All errors that the service answers with on purpose; the only place that knows HTTP numbers.

Codes below are examples: ``app.errors.error_list`` has them all.

AppError
├── BadRequest               400  unreadable: malformed_json, unknown_parameter, bad_parameter, bad_cursor
├── Unauthorized             401  api_key_missing, api_key_invalid, api_key_expired, token_invalid, token_expired
├── Forbidden                403  role_too_low, out_of_scope, token_without_role, token_without_scope, foreign_origin, keys_from_command_line
├── NotFound                 404  relation_not_found, query_not_found, api_key_not_found, connection_not_found, row_not_found, not_found, ...
├── MethodNotAllowed         405  method_not_allowed
├── NotAcceptable            406  not_acceptable
├── Conflict                 409  name_taken, relation_in_use, state_incompatible, table_not_materialised, table_not_versioned, ...
│   └── InProgress           409  idempotency_in_progress (retryable)
├── Gone                     410  offset_expired, history_expired
├── PreconditionFailed       412  version_mismatch
├── BodyTooLarge             413  body_too_large
├── UnsupportedMediaType     415  unsupported_media_type, media_type_missing
├── Misdirected              421  host_not_allowed
├── Unprocessable            422  definition_invalid, unknown_relation, records_rejected, idempotency_key_reused, bad_scope, not_supported_yet
├── TooManyRequests          429  too_many_streams, too_many_requests
├── ClientGone               499  client_gone
├── HeadTooLarge             431  head_too_large
├── Unavailable              503  not_ready, driver_not_ready, issuer_unavailable, database_unavailable, database_busy, database_full, ...
├── NotInTime                504  position_not_reached
├── TooExpensive             504  read_too_expensive
└── Internal                 500  internal_error (the body carries the request id only)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

_UNQUOTABLE: Final = re.compile(r'[^\x20-\x7e]|["\\]')


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """A place in a text.

    Attributes:
        line: counted from 1.
        column: counted from 1.
        excerpt: the line, and below it marks under the wrong part.
    """

    line: int
    column: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request.

    Attributes:
        pointer: RFC 6901 JSON pointer into the body, or ``?name`` for a parameter.
        code: stable snake_case code.
        detail: the fault and its cure.
        place: in a text of several lines; None: the pointer names the place.
    """

    pointer: str
    code: str
    detail: str
    place: FaultPlace | None = None


class AppError(Exception):
    """Root of the tree. A class has the HTTP meaning; ``code`` says which case of it.

    Attributes:
        code: stable snake_case code.
        detail: the fault and its cure.
        faults: one entry per fault where there can be several.
        headers: further response headers, such as Retry-After.
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False

    def __init__(self, code: str, detail: str, faults: Sequence[Fault] = (), headers: dict[str, str] | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.faults = tuple(faults)
        self.headers = {} if headers is None else headers


class BadRequest(AppError):
    """The request cannot be read."""

    status = 400
    title = "The request cannot be read"


class Unauthorized(AppError):
    """The request has no API key and no token, or an invalid one; WWW-Authenticate says so."""

    status = 401
    title = "No valid API key or token"

    def __init__(self, code: str, detail: str, *, is_missing: bool = False) -> None:
        # RFC 6750: the answer to a request without credentials names no error.
        described = _UNQUOTABLE.sub("'", detail)[:300]
        error = "" if is_missing else f', error="invalid_token", error_description="{described}"'
        super().__init__(code, detail, headers={"WWW-Authenticate": f'Bearer realm="slackwater"{error}'})


class Forbidden(AppError):
    """The API key or the token may not do this."""

    status = 403
    title = "Not allowed"


class NotFound(AppError):
    """There is no resource of that name."""

    status = 404
    title = "Not found"


class MethodNotAllowed(AppError):
    """The path exists, the method does not."""

    status = 405
    title = "Method not allowed"


class NotAcceptable(AppError):
    """The path has no answer of a type that the client accepts."""

    status = 406
    title = "No acceptable form"


class Conflict(AppError):
    """The request is well formed, but does not fit the present state."""

    status = 409
    title = "Conflict with the present state"


class InProgress(Conflict):
    """An equal request is in progress; try again."""

    retryable = True


class Gone(AppError):
    """The resource existed once; retention removed it."""

    status = 410
    title = "Gone"


class PreconditionFailed(AppError):
    """If-Match or If-None-Match does not hold."""

    status = 412
    title = "Precondition failed"


class BodyTooLarge(AppError):
    """The body is over the limit."""

    status = 413
    title = "Body too large"


class UnsupportedMediaType(AppError):
    """The path does not read this Content-Type."""

    status = 415
    title = "Unsupported media type"


class Misdirected(AppError):
    """The request is for another host than this service."""

    status = 421
    title = "Not this host"


class Unprocessable(AppError):
    """The request is readable, but wrong."""

    status = 422
    title = "The request is wrong"


class TooManyRequests(AppError):
    """More requests at once than the limit; try again later."""

    status = 429
    title = "Too many at once"
    retryable = True


class ClientGone(AppError):
    """The client closed the connection before its answer. Nobody reads this error; it is for the log and the metrics."""

    status = 499
    title = "The client left"

    def __init__(self) -> None:
        super().__init__("client_gone", "the client closed the connection before its answer")


class HeadTooLarge(AppError):
    """The request's line and headers are over the limit."""

    status = 431
    title = "Head too large"


class Unavailable(AppError):
    """A part that the service needs is not available now; try again."""

    status = 503
    title = "Not available now"
    retryable = True


class NotInTime(AppError):
    """The awaited event did not happen within the request's timeout."""

    status = 504
    title = "Not reached in time"
    retryable = True


class TooExpensive(AppError):
    """The database did not finish a read within its limit; the same read would exceed it again."""

    status = 504
    title = "Not finished in time"


class Internal(AppError):
    """A bug of the service. The body has only the request id; the log has the rest."""

    status = 500
    title = "Internal error"
    retryable = True

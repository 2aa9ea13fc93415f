"""Exceptions of this package.

SlackwaterError
├── Unreachable         no answer after all attempts
├── ForeignAnswer       another program than the service answers: a proxy, a login page
├── ServiceError            the service answered with a problem (RFC 9457); ``code`` says which
│   ├── BadRequest              400
│   ├── Unauthorized            401
│   ├── Forbidden               403
│   ├── NotFound                404
│   │   ├── RowNotFound             row_not_found
│   │   └── RowDeleted              row_deleted
│   ├── Conflict                409
│   │   ├── StateIncompatible       state_incompatible, needs_new_state
│   │   ├── RelationInUse           relation_in_use
│   │   └── NameTaken               name_taken
│   ├── Gone                    410
│   │   ├── HistoryExpired          history_expired
│   │   └── CursorExpired           cursor_expired
│   ├── PreconditionFailed      412
│   ├── Unprocessable           422
│   │   └── RecordsRejected         records_rejected
│   ├── TooManyRequests         429
│   ├── Unavailable             502, 503
│   ├── NotInTime               504
│   └── InternalError           500
├── ChangesReset        changes that were followed cannot be continued
├── PushFailed          a push query ended with an error
├── QueryFailed         a query failed while a caller waited for it
├── NotReached          a query did not reach the expected state in time; also a TimeoutError
└── ExtraMissing            an optional library is not installed; also an ImportError
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import httpx

Json = dict[str, Any]

MOST_CHARACTERS: Final = 1_000
"""Limit of characters in ``detail`` for an answer that is not a problem, such as the page of a proxy."""


class SlackwaterError(Exception):
    """Root of everything that this package raises on purpose."""


class Unreachable(SlackwaterError):
    """No answer, or a broken connection, after all attempts or for a request that is not safe to repeat.

    Attributes:
        is_sent: the request may have been executed; False: it certainly was not.
    """

    def __init__(self, request: str, error: httpx.TransportError, *, is_sent: bool) -> None:
        outcome = "; whether it was carried out is not known" if is_sent else ""
        super().__init__(f"{request}: {type(error).__name__}: {error}{outcome}")
        self.is_sent = is_sent


class ForeignAnswer(SlackwaterError):
    """The answer is not from the service: from a proxy, a login page, or another program. Redirects are not followed."""

    def __init__(self, request: str, detail: str) -> None:
        super().__init__(f"{request}: {detail}")
        self.request, self.detail = request, detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.request, self.detail)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request.

    Attributes:
        pointer: RFC 6901 pointer into the body, or ``?name`` for a parameter.
        place: ``line``, ``column`` and ``excerpt`` of a fault in an SQL text.
    """

    pointer: str
    code: str
    detail: str
    place: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StatementState:
    """The state of one statement of a script that failed half-way.

    Attributes:
        line: its first line in the script, from 1.
        state: ``done``, ``failed`` or ``not_tried``.
        message: for ``done``: what was done.
    """

    line: int
    statement: str
    state: str
    message: str | None = None


class ServiceError(SlackwaterError):
    """The service answered with a problem. The subclass is the kind, ``code`` the case.

    Attributes:
        status: HTTP status.
        code: stable snake_case code; ``client.errors.get(code)`` explains it.
        detail: what is wrong and what to do about it.
        cure: general cure for this code; empty if the service sends none.
        errors: one entry per fault, with a pointer to the part of the request.
        statements: for a script with several statements, the state of each; empty for other requests.
        retryable: whether the same request can succeed later.
        request_id: id of the request in the service's log.
        retry_after_s: wait before a retry, if the service asks for one; otherwise None.
        problem: the body as received; ``{"detail": text}`` if the answer was not a problem.
    """

    status: int
    codes: ClassVar[Sequence[str]] = ()

    def __init__(self, status: int, problem: Json, request: str, retry_after_s: float | None = None) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code", f"http_{status}"))
        self.detail = str(problem.get("detail", ""))
        self.cure = str(problem.get("cure", ""))
        self.errors = tuple(_faults(problem.get("errors")))
        self.statements = tuple(_statements(problem.get("statements")))
        self.retryable = bool(problem.get("retryable", False))
        self.request_id = problem.get("request_id")
        self.retry_after_s = retry_after_s
        super().__init__(f"{request}: {status} {self.code}: {self.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        request = str(self).partition(": ")[0]
        return type(self), (self.status, self.problem, request, self.retry_after_s)


class BadRequest(ServiceError):
    """The request cannot be read."""

    status = 400


class Unauthorized(ServiceError):
    """There is no API key or token, or it is not valid."""

    status = 401


class Forbidden(ServiceError):
    """The key may not do this."""

    status = 403


class NotFound(ServiceError):
    """The resource does not exist."""

    status = 404


class RowNotFound(NotFound):
    """The key has no row; ``client.query(...).explain(key, at)`` says why there is none yet."""

    codes = ("row_not_found",)


class RowDeleted(NotFound):
    """The key had a row, and it was deleted."""

    codes = ("row_deleted",)


class Conflict(ServiceError):
    """The request does not fit the current state."""

    status = 409


class StateIncompatible(Conflict):
    """The stored state does not fit the new definition; ``edit(..., discard_state=True)`` starts from scratch."""

    codes = ("state_incompatible", "needs_new_state")


class RelationInUse(Conflict):
    """A query reads the relation."""

    codes = ("relation_in_use",)


class NameTaken(Conflict):
    """A relation or query has that name."""

    codes = ("name_taken",)


class Gone(ServiceError):
    """Retention removed it."""

    status = 410


class HistoryExpired(Gone):
    """The requested time is before the retained history."""

    codes = ("history_expired",)


class CursorExpired(Gone):
    """The changes behind the cursor were removed."""

    codes = ("cursor_expired",)


class PreconditionFailed(ServiceError):
    """The resource has changed: ``if_match`` does not match."""

    status = 412


class Unprocessable(ServiceError):
    """The request is readable but invalid; ``errors`` points at each fault."""

    status = 422


class RecordsRejected(Unprocessable):
    """All records were rejected.

    Attributes:
        appended: the result of ``append``: every rejected record with its index and reason; None for other requests.
    """

    codes = ("records_rejected",)
    appended: Any = None


class TooManyRequests(ServiceError):
    """The service is overloaded, after all attempts."""

    status = 429


class InternalError(ServiceError):
    """A fault of the service; report it with ``request_id``."""

    status = 500


class Unavailable(ServiceError):
    """A dependency of the service is not available, after all attempts."""

    status = 503


class NotInTime(ServiceError):
    """The request waited in vain, or the read was too expensive."""

    status = 504


class ChangesReset(SlackwaterError):
    """The changes cannot be continued: drop the folded rows and start from scratch.

    Attributes:
        code: such as ``cursor_expired``.
        detail: why.
    """

    def __init__(self, data: Json) -> None:
        super().__init__(data["detail"])
        self.code: str = data["code"]
        self.detail: str = data["detail"]


class PushFailed(SlackwaterError):
    """A push query ended with an error, after the rows that it sent."""

    def __init__(self, data: Json) -> None:
        super().__init__(f"{data['code']}: {data['detail']}")
        self.code: str = data["code"]
        self.detail: str = data["detail"]


class QueryFailed(SlackwaterError):
    """A query failed while a caller waited for it."""

    def __init__(self, query: str, error: Mapping[str, Any] | None) -> None:
        self.query = query
        self.code = str((error or {}).get("code", "unknown"))
        self.detail = str((error or {}).get("detail", ""))
        super().__init__(f"{query} failed: {self.code}: {self.detail}")


class NotReached(SlackwaterError, TimeoutError):
    """A query did not reach the expected state in time."""


class ExtraMissing(SlackwaterError, ImportError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"this needs {library}: pip install 'slackwater-client[{extra}]'")


def _faults(errors: Any) -> Iterator[Fault]:
    """Yield the faults of a problem. Answers of other programs may have another kind of ``errors``."""
    for each in errors if isinstance(errors, list) else ():
        if isinstance(each, dict) and {"pointer", "code", "detail"} <= each.keys():
            place = each.get("place")
            yield Fault(
                str(each["pointer"]), str(each["code"]), str(each["detail"]), place if isinstance(place, Mapping) else None
            )


def _statements(statements: Any) -> Iterator[StatementState]:
    """Yield the states of a script's statements. Answers of other programs may have another kind of ``statements``."""
    for each in statements if isinstance(statements, list) else ():
        if isinstance(each, dict) and isinstance(each.get("line"), int) and {"statement", "state"} <= each.keys():
            message = each.get("message")
            yield StatementState(
                each["line"], str(each["statement"]), str(each["state"]), None if message is None else str(message)
            )


def _classes(root: type[ServiceError]) -> list[type[ServiceError]]:
    return [root, *(each for child in root.__subclasses__() for each in _classes(child))]


_BY_CODE = {code: kind for kind in _classes(ServiceError) for code in kind.codes}
_BY_STATUS = {kind.status: kind for kind in ServiceError.__subclasses__()}


def error_of(response: httpx.Response) -> ServiceError:
    """Return the exception for an answer with an error status; its body is already read."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    is_problem = isinstance(body, dict) and isinstance(body.get("code"), str)
    problem: Json = body if is_problem else {"detail": response.text[:MOST_CHARACTERS]}
    kind = _BY_CODE.get(str(problem.get("code"))) or _BY_STATUS.get(response.status_code)
    if kind is None:
        kind = Unavailable if response.status_code == httpx.codes.BAD_GATEWAY else ServiceError
    request = f"{response.request.method} {response.request.url.path}"
    return kind(response.status_code, problem, request, retry_after_of(response))


def foreign(response: httpx.Response, reason: str) -> ForeignAnswer:
    """Return the exception for an answer that is not from the service.

    Args:
        response: the answer.
        reason: what is wrong with it, such as "is no JSON".
    """
    kind = response.headers.get("content-type", "")[:100] or "nothing said of what it is"
    return ForeignAnswer(
        f"{response.request.method} {response.request.url.path}", f"the answer ({response.status_code}, {kind}) {reason}"
    )


def accepted(response: httpx.Response) -> httpx.Response:
    """Return an answer that is not an error.

    Raises:
        ForeignAnswer: it is a redirect: the service never redirects this client, and another host must not receive its key.
    """
    if not response.is_success:
        elsewhere = response.headers.get("location", "")[:200]
        raise foreign(response, f"leads to {elsewhere}" if elsewhere else "is no answer of the service")
    return response


def retry_after_of(response: httpx.Response) -> float | None:
    """Return the seconds of ``Retry-After``; None if it is absent or a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None

"""What can go wrong, as exceptions.

SlackwaterError
├── Unreachable             nobody answers; every attempt is over
├── ForeignAnswer           something else than the service answers: a proxy, a page to sign in, another program
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
├── ChangesReset            what was followed cannot be gone on with
├── PushFailed              a push query ended with an error
├── QueryFailed             a query that was waited for has failed
├── NotReached              a query that was waited for is not there in time; also a TimeoutError
└── ExtraMissing            an optional library is not installed; also an ImportError
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import httpx

Json = dict[str, Any]

MOST_CHARACTERS: Final = 1_000
"""Of an answer that is no problem, such as the page of a proxy, in ``detail``."""


class SlackwaterError(Exception):
    """Root of everything that this package raises on purpose."""


class Unreachable(SlackwaterError):
    """Nobody answers, or the connection broke, and the attempts are used up or repeating is not safe.

    Attributes:
        is_sent: the request may have been carried out; False: it certainly was not.
    """

    def __init__(self, request: str, error: httpx.TransportError, *, is_sent: bool) -> None:
        outcome = "; whether it was carried out is not known" if is_sent else ""
        super().__init__(f"{request}: {type(error).__name__}: {error}{outcome}")
        self.is_sent = is_sent


class ForeignAnswer(SlackwaterError):
    """The answer is none of the service's: a proxy answers in its place, a page to sign in, another program. No redirect is followed."""

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
        code: stable code.
        detail: what is wrong and what to do about it.
        place: ``line``, ``column`` and ``excerpt`` of a fault in a text of SQL.
    """

    pointer: str
    code: str
    detail: str
    place: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StatementState:
    """What became of one statement of a script that failed half-way.

    Attributes:
        line: where it begins in the script, from 1.
        statement: its text.
        state: ``done``, ``failed`` or ``not_tried``.
        message: of one that is done: what was done.
    """

    line: int
    statement: str
    state: str
    message: str | None = None


class ServiceError(SlackwaterError):
    """The service answered with a problem. A subclass says the kind, ``code`` the case.

    Attributes:
        status: HTTP status.
        code: stable snake_case code; ``client.errors.get(code)`` explains it.
        detail: what is wrong and what to do about it.
        cure: what helps against this code in general; empty where the service does not say.
        errors: one entry per fault, with a pointer to the part of the request.
        statements: of a script with several statements, what became of each; empty for other requests.
        retryable: whether the same request can succeed later.
        request_id: names the request in the service's log.
        retry_after_s: how long the service asks to wait; None where it does not.
        problem: the body as it came; ``{"detail": text}`` where the answer was no problem.
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
    """There is no API key or token, or it does not count."""

    status = 401


class Forbidden(ServiceError):
    """The key may not do this."""

    status = 403


class NotFound(ServiceError):
    """There is no such thing."""

    status = 404


class RowNotFound(NotFound):
    """The key has no row; ``client.query(...).explain(key, at)`` says why there is none yet."""

    codes = ("row_not_found",)


class RowDeleted(NotFound):
    """The key had a row, and it was deleted."""

    codes = ("row_deleted",)


class Conflict(ServiceError):
    """The request does not fit the present state."""

    status = 409


class StateIncompatible(Conflict):
    """The kept state does not fit the new definition; ``edit(..., discard_state=True)`` starts from scratch."""

    codes = ("state_incompatible", "needs_new_state")


class RelationInUse(Conflict):
    """A query reads the relation."""

    codes = ("relation_in_use",)


class NameTaken(Conflict):
    """A relation or query has that name."""

    codes = ("name_taken",)


class Gone(ServiceError):
    """It was there once; retention removed it."""

    status = 410


class HistoryExpired(Gone):
    """The time asked for is older than the retained history."""

    codes = ("history_expired",)


class CursorExpired(Gone):
    """What the cursor would go on with was removed."""

    codes = ("cursor_expired",)


class PreconditionFailed(ServiceError):
    """Somebody else has changed it: ``if_match`` does not hold."""

    status = 412


class Unprocessable(ServiceError):
    """The request can be read and is wrong; ``errors`` points at each fault."""

    status = 422


class RecordsRejected(Unprocessable):
    """All records were refused.

    Attributes:
        appended: what ``append`` would have returned: every refused record with its index and reason; None elsewhere.
    """

    codes = ("records_rejected",)
    appended: Any = None


class TooManyRequests(ServiceError):
    """More is asked at once than the service gives, after all attempts."""

    status = 429


class InternalError(ServiceError):
    """A fault of the service; report it with ``request_id``."""

    status = 500


class Unavailable(ServiceError):
    """Something that the service needs is not there now, after all attempts."""

    status = 503


class NotInTime(ServiceError):
    """What the request waited for did not happen in time, or the read was too expensive."""

    status = 504


class ChangesReset(SlackwaterError):
    """What was followed cannot be gone on with: drop what was folded and start from scratch.

    Attributes:
        code: such as ``cursor_expired``.
        detail: why.
    """

    def __init__(self, data: Json) -> None:
        super().__init__(data["detail"])
        self.code: str = data["code"]
        self.detail: str = data["detail"]


class PushFailed(SlackwaterError):
    """A push query ended with an error, behind the rows that it gave.

    Attributes:
        code: stable code.
        detail: what happened and what to do.
    """

    def __init__(self, data: Json) -> None:
        super().__init__(f"{data['code']}: {data['detail']}")
        self.code: str = data["code"]
        self.detail: str = data["detail"]


class QueryFailed(SlackwaterError):
    """A query that was waited for has failed.

    Attributes:
        query: its name.
        code: code of its error.
        detail: what happened and what to do.
    """

    def __init__(self, query: str, error: Mapping[str, Any] | None) -> None:
        self.query = query
        self.code = str((error or {}).get("code", "unknown"))
        self.detail = str((error or {}).get("detail", ""))
        super().__init__(f"{query} failed: {self.code}: {self.detail}")


class NotReached(SlackwaterError, TimeoutError):
    """A query is not where it was waited for within the time given."""


class ExtraMissing(SlackwaterError, ImportError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"this needs {library}: pip install 'slackwater-client[{extra}]'")


def _faults(given: Any) -> Iterator[Fault]:
    """Yield the faults of a problem; other programs mean other things by ``errors``."""
    for each in given if isinstance(given, list) else ():
        if isinstance(each, dict) and {"pointer", "code", "detail"} <= each.keys():
            place = each.get("place")
            yield Fault(
                str(each["pointer"]), str(each["code"]), str(each["detail"]), place if isinstance(place, Mapping) else None
            )


def _statements(given: Any) -> Iterator[StatementState]:
    """Yield what became of the statements of a script; other programs mean other things by ``statements``."""
    for each in given if isinstance(given, list) else ():
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
    """Return the exception for an answer with an error status; its body has been read."""
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
    """Return the exception for an answer that the service never gives.

    Args:
        response: the answer.
        reason: what it is instead, such as "is no JSON".
    """
    kind = response.headers.get("content-type", "")[:100] or "nothing said of what it is"
    return ForeignAnswer(
        f"{response.request.method} {response.request.url.path}", f"the answer ({response.status_code}, {kind}) {reason}"
    )


def accepted(response: httpx.Response) -> httpx.Response:
    """Return an answer that is no error.

    Raises:
        ForeignAnswer: it is neither: the service redirects no request of this client, and whoever else does may not get its key.
    """
    if not response.is_success:
        elsewhere = response.headers.get("location", "")[:200]
        raise foreign(response, f"leads to {elsewhere}" if elsewhere else "is no answer of the service")
    return response


def retry_after_of(response: httpx.Response) -> float | None:
    """Return the seconds that ``Retry-After`` asks for; None where it is absent or a date."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None

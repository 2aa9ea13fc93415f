"""Requests as values, and the rules of retries. Knows no connection: ``asynchronous`` and ``blocking`` send them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from slackwater.errors import ServiceError

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
EVENT_STREAM = "text/event-stream"

Params = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send.

    Attributes:
        path: of the service, from ``/`` on, quoted.
        params: of the query string, in order.
        body: sent as JSON; None: there is none.
        content: sent unchanged, instead of ``body``.
        is_repeatable: sending it twice has the same effect as once, so it may be repeated if its answer was lost.
        read_timeout_s: time limit of the answer; None: the client's.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = False
    read_timeout_s: float | None = None


def request(
    method: str,
    path: str,
    *,
    params: Params | Iterable[tuple[str, str]] | None = None,
    body: Any = None,
    content: bytes | None = None,
    headers: Mapping[str, str | None] | None = None,
    is_repeatable: bool | None = None,
    read_timeout_s: float | None = None,
) -> Request:
    """Make a request, of the attributes of ``Request``; parameters and headers that are None are left out.

    Unless ``is_repeatable`` says it, a request may be repeated if it has an ``Idempotency-Key``, or is a GET or PUT; not a DELETE, because a
    second one would answer that the resource does not exist.
    """
    given = {name: value for name, value in (headers or {}).items() if value is not None}
    has_key = "idempotency-key" in given
    return Request(
        method,
        path,
        _params(params),
        body,
        content,
        given,
        (method in ("GET", "PUT") or has_key) if is_repeatable is None else is_repeatable,
        read_timeout_s,
    )


def _params(params: Params | Iterable[tuple[str, str]] | None) -> tuple[tuple[str, str], ...]:
    pairs = params.items() if isinstance(params, Mapping) else (params or ())
    return tuple((name, _text(value)) for name, value in pairs if value is not None)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def path_of(*parts: str) -> str:
    """Return ``/v1/…`` with parts of any text.

    Raises:
        ValueError: URLs would drop a part such as ``..``, so the path would lead to something else.
    """
    wrong = next((part for part in parts if part in ("", ".", "..")), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} cannot stand in a path; a key can be given as a mapping of its columns")
    return "/v1/" + "/".join(quote(part, safe=":") for part in parts)


def preconditions(if_match: int | None, *, must_be_new: bool = False) -> dict[str, str | None]:
    """Return headers that make a change depend on the stored version."""
    return {"if-match": None if if_match is None else f'"{if_match}"', "if-none-match": "*" if must_be_new else None}


def new_key() -> str:
    """Return a new unique Idempotency-Key."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Retries:
    """The number of attempts of a request, and the waits between them.

    Attributes:
        attempts: maximum; 1: no retry.
        first_wait_s: before the second attempt; doubled for each further one.
        longest_wait_s: upper bound of the doubled wait.
        longest_asked_s: with a longer ``Retry-After``, the error is raised at once.
    """

    attempts: int = 4
    first_wait_s: float = 0.2
    longest_wait_s: float = 8.0
    longest_asked_s: float = 60.0

    def wait_s(self, attempt: int, retry_after_s: float | None, drawn: float) -> float:
        """Return the wait after an attempt.

        Args:
            attempt: its number, from 1.
            retry_after_s: minimum wait, from the service.
            drawn: random number between 0 and 1; spreads the waits of many clients over half of their length.
        """
        own: float = min(self.first_wait_s * 2 ** (attempt - 1), self.longest_wait_s) * (0.5 + drawn / 2)
        return own if retry_after_s is None else max(own, retry_after_s)

    def after_error(self, sent: Request, error: ServiceError, attempt: int, drawn: float) -> float | None:
        """Return the wait before the request is repeated after an error; None: it is not."""
        if attempt >= self.attempts or not _may_succeed(sent, error):
            return None
        if error.retry_after_s is not None and error.retry_after_s > self.longest_asked_s:
            return None
        return self.wait_s(attempt, error.retry_after_s, drawn)

    def after_loss(self, sent: Request, error: httpx.TransportError, attempt: int, drawn: float) -> float | None:
        """Return the wait before the request is repeated without an answer; None: it is not."""
        if attempt >= self.attempts or not (is_unsent(error) or sent.is_repeatable):
            return None
        return self.wait_s(attempt, None, drawn)


def is_unsent(error: httpx.TransportError) -> bool:
    """Return whether the request cannot have reached the service."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _may_succeed(sent: Request, error: ServiceError) -> bool:
    """Return whether the same request may be sent again.

    A 429 comes before any work; a 503 perhaps in the middle of it. A 504 comes after the time that the caller was ready to wait.
    """
    if error.status == httpx.codes.TOO_MANY_REQUESTS:
        return True
    is_passing = error.status in (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE)
    return sent.is_repeatable and (is_passing or error.code == "idempotency_in_progress")

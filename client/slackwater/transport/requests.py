"""Requests as values, and when one may be sent again. Knows no connection: ``asynchronous`` and ``blocking`` send them."""

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
    """What to send.

    Attributes:
        path: of the service, from ``/`` on, quoted.
        params: of the query string, in order.
        body: sent as JSON; None: there is none.
        content: sent as it is, instead of ``body``.
        is_repeatable: sending it twice does no more than sending it once, so it may go again when its answer was lost.
        read_timeout_s: how long the answer may take; None: as long as the client allows.
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
    """Make a request; parameters and headers that are None are left out.

    Args:
        method: GET and PUT may be repeated; DELETE not, for the second one would say that there is no such thing.
        path: see ``Request``.
        params: see ``Request``.
        body: see ``Request``.
        content: see ``Request``.
        headers: beside those that every request has.
        is_repeatable: None: as the method says, and with an ``Idempotency-Key`` yes.
        read_timeout_s: see ``Request``.
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
    """Return ``/v1/…`` of parts that may hold anything.

    Raises:
        ValueError: a part that paths leave out would lead to something else than was named.
    """
    wrong = next((part for part in parts if part in ("", ".", "..")), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} cannot stand in a path; a key can be given as a mapping of its columns")
    return "/v1/" + "/".join(quote(part, safe=":") for part in parts)


def preconditions(if_match: int | None, *, must_be_new: bool = False) -> dict[str, str | None]:
    """Return the headers that make a change depend on the version that is there."""
    return {"if-match": None if if_match is None else f'"{if_match}"', "if-none-match": "*" if must_be_new else None}


def new_key() -> str:
    """Return an Idempotency-Key that nobody else has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent, and what is waited between.

    Attributes:
        attempts: how often at most; 1: never again.
        first_wait_s: before the second attempt; doubled with each.
        longest_wait_s: what doubling ends at.
        longest_asked_s: a ``Retry-After`` beyond it is not waited for: the error is raised at once.
    """

    attempts: int = 4
    first_wait_s: float = 0.2
    longest_wait_s: float = 8.0
    longest_asked_s: float = 60.0

    def wait_s(self, attempt: int, retry_after_s: float | None, drawn: float) -> float:
        """Return what to wait behind an attempt.

        Args:
            attempt: its number, from 1.
            retry_after_s: what the service asked for: never less is waited.
            drawn: between 0 and 1; spreads the waits of many clients over half of their length.
        """
        own: float = min(self.first_wait_s * 2 ** (attempt - 1), self.longest_wait_s) * (0.5 + drawn / 2)
        return own if retry_after_s is None else max(own, retry_after_s)

    def after_error(self, sent: Request, error: ServiceError, attempt: int, drawn: float) -> float | None:
        """Return what to wait before the request goes again; None: it does not."""
        if attempt >= self.attempts or not _may_succeed(sent, error):
            return None
        if error.retry_after_s is not None and error.retry_after_s > self.longest_asked_s:
            return None
        return self.wait_s(attempt, error.retry_after_s, drawn)

    def after_loss(self, sent: Request, error: httpx.TransportError, attempt: int, drawn: float) -> float | None:
        """Return what to wait before the request goes again that got no answer; None: it does not."""
        if attempt >= self.attempts or not (is_unsent(error) or sent.is_repeatable):
            return None
        return self.wait_s(attempt, None, drawn)


def is_unsent(error: httpx.TransportError) -> bool:
    """Whether the request cannot have reached the service."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _may_succeed(sent: Request, error: ServiceError) -> bool:
    """Whether the same request may be sent again.

    A 429 is given before anything is done; a 503 perhaps in the middle. A 504 comes after the time that the caller was ready to wait.
    """
    if error.status == httpx.codes.TOO_MANY_REQUESTS:
        return True
    is_passing = error.status in (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE)
    return sent.is_repeatable and (is_passing or error.code == "idempotency_in_progress")

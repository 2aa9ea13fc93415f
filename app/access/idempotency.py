"""Answers by idempotency key. A claim is part of the transaction that it guards: a failed request leaves no key behind.

Appends store theirs in the log's schema, in the appender's own transaction, by the same rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy as sa
from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.access.rules import actor, scope_in_force
from app.db.tables import idempotency
from app.errors.app_errors import InProgress, Unprocessable

TTL_MS = 24 * 3_600_000
"""How long a retry is recognised (product.md §3)."""


def digest_of(about: list[Any], body: bytes) -> bytes:
    """Return the digest by which two requests are compared.

    Args:
        about: the rest of the request: method, path, media type.
        body: in a form in which equal requests have equal bytes.
    """
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(body)
    return digest.digest()


def key_reused(key: str) -> Unprocessable:
    return Unprocessable(
        "idempotency_key_reused",
        f"the Idempotency-Key {key!r} belongs to another request of the last 24 hours; use a new key for a new request",
    )


def in_progress(key: str) -> InProgress:
    return InProgress(
        "idempotency_in_progress",
        f"the first request with the Idempotency-Key {key!r} is not answered yet; repeat this one in a moment",
        headers={"Retry-After": "1"},
    )


# A repeated request waits as long as a slow first request takes on a busy machine. After that the client had better ask again.
WAIT_MS = 2_000


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The first answer."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A key, its owner and its request.

    Attributes:
        principal: who sent it (``app.access.rules.actor``); the keys of two principals are separate.
    """

    principal: str
    key: str
    digest: bytes


def claim(connection: sa.Connection, request: Claim) -> StoredAnswer | None:
    """Claim a key for this transaction, after waiting for a transaction that has claimed it. An expired key is free.

    Returns:
        The stored answer, or None: the request is the first one; ``keep`` its answer before the transaction ends.

    Raises:
        Unprocessable: ``idempotency_key_reused``.
        InProgress: ``idempotency_in_progress``.
    """
    columns, new = idempotency.c, sa.dialects.postgresql.insert(idempotency)
    expires_at = sa.func.now() + sa.text(f"interval '{TTL_MS} milliseconds'")
    statement = new.values(
        principal=request.principal, key=request.key, request_digest=request.digest, expires_at=expires_at
    ).on_conflict_do_update(
        index_elements=[columns.principal, columns.key],
        set_={
            name: sa.case((columns.expires_at < sa.func.now(), new.excluded[name]), else_=columns[name])
            for name in ("request_digest", "status", "body", "headers", "expires_at")
        },
    )
    connection.execute(sa.text(f"SET LOCAL lock_timeout = {WAIT_MS}"))
    try:
        row = connection.execute(statement.returning(columns.request_digest, columns.status, columns.body, columns.headers)).one()
    except sa.exc.OperationalError as error:
        if isinstance(error.orig, psycopg.errors.LockNotAvailable):
            raise in_progress(request.key) from error
        raise
    connection.execute(sa.text("SET LOCAL lock_timeout = DEFAULT"))
    if bytes(row.request_digest) != request.digest:
        raise key_reused(request.key)
    return None if row.status is None else StoredAnswer(row.status, row.body, row.headers)


def keep(connection: sa.Connection, own_claim: Claim, answer: StoredAnswer) -> None:
    """Store the answer to the request whose key this transaction has claimed."""
    connection.execute(
        sa.update(idempotency)
        .where(idempotency.c.principal == own_claim.principal, idempotency.c.key == own_claim.key)
        .values(status=answer.status, body=answer.body, headers=answer.headers)
    )


FORGET_EXPIRED_SQL = "DELETE FROM slackwater.idempotency WHERE expires_at < now()"


CREATED_HEADERS: Final = ("ETag", "Location")

Made = TypeVar("Made", bound=BaseModel)


def answered_once(
    connection: sa.Connection,
    key: str | None,
    route: Sequence[str],
    body: Any,
    make: Callable[[Response], Made],
    response: Response,
    *,
    status: int = 200,
) -> Made | Response:
    """Return the answer of ``make``, or the stored answer to the first request with this key.

    Args:
        connection: in the transaction that ``make`` uses.
        key: the header of the request; None: the request is not idempotent.
        route: method and path.
        body: of the request, as JSON.
        make: makes the resource, and sets the headers of the answer.
        response: has these headers.
        status: of the answer.
    """
    if key is None:
        return make(response)
    scope = scope_in_force()  # since the first answer, the name may be of another key with another scope
    about = [*route, *(() if scope is None else scope.patterns)]
    own_claim = Claim(actor(), key, digest_of(about, json.dumps(body).encode()))
    stored = claim(connection, own_claim)
    if stored is not None:
        return JSONResponse(stored.body, stored.status, stored.headers)
    answer = make(response)
    headers = {name: response.headers[name] for name in CREATED_HEADERS if name in response.headers}
    keep(connection, own_claim, StoredAnswer(response.status_code or status, answer.model_dump(mode="json"), headers))
    return answer

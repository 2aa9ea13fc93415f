"""Idempotent requests: the first answer is stored by its `Idempotency-Key`, in the transaction of the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.access.idempotency.sql import Claim, StoredAnswer, claim, digest_of, keep
from app.access.rules import actor, scope_in_force

CREATED_HEADERS: Final = ("ETag", "Location")

Made = TypeVar("Made", bound=BaseModel)


def created_once(
    connection: sa.Connection,
    key: str | None,
    route: Sequence[str],
    body: Any,
    make: Callable[[Response], Made],
    response: Response,
) -> Made | Response:
    """Return the answer of ``make`` with 201, unless it sets another status, or the stored answer; see ``answered_once``."""
    return answered_once(connection, key, route, body, make, response, status=201)


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

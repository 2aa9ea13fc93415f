"""Requests that a client may repeat: the first answer by its `Idempotency-Key`, kept in the transaction that the request makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.access.idempotency.rules import digest_of
from app.access.idempotency.sql import Claim, StoredAnswer, claim, keep
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
    """Answer with what ``make`` makes, 201 where it sets no other status, or again as the first time; see ``answered_once``."""
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
    """Answer with what ``make`` makes, or again as the first time.

    Args:
        connection: in the transaction that ``make`` uses.
        key: as it was sent; None: each request is the first.
        route: method and path.
        body: of the request, as JSON.
        make: makes the thing, and sets the headers of the answer.
        response: whose headers these are.
        status: of the answer.
    """
    if key is None:
        return make(response)
    scope = scope_in_force()  # a name may be another key's since the first answer, with another scope
    about = [*route, *(() if scope is None else scope.patterns)]
    own = Claim(actor(), key, digest_of(about, json.dumps(body).encode()))
    kept = claim(connection, own)
    if kept is not None:
        return JSONResponse(kept.body, kept.status, kept.headers)
    answer = make(response)
    headers = {name: response.headers[name] for name in CREATED_HEADERS if name in response.headers}
    keep(connection, own, StoredAnswer(response.status_code or status, answer.model_dump(mode="json"), headers))
    return answer

"""Authentication: ksqlDB's clients send basic authentication, with the name of an API key and the key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import Request

from app.access.guard import RECHECK
from app.access.rules import PRINCIPAL, Role, refuse_below
from app.access.tokens.verifying import Authenticator
from app.errors.app_errors import Unauthorized
from app.http.guards.request_middleware import KEY_NAME


def key_guard(door: Authenticator, *, is_required: bool) -> Callable[[Request], Awaitable[None]]:
    """Return the first dependency of every route: it authenticates the key. The statement itself checks its role and scope."""

    async def check(request: Request) -> None:
        if is_required:
            text = _presented(request)
            principal = await door.recognise(text)
            request.scope[KEY_NAME] = principal.name
            PRINCIPAL.set(principal)
            refuse_below(Role.READ, "this")
            request.scope[RECHECK] = partial(door.recognise, text)

    return check


def _presented(request: Request) -> str:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(text, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Unauthorized("api_key_invalid", "basic authentication is base64 of name:key") from error
    raise Unauthorized("api_key_missing", "send basic authentication: the name of an API key, and the key", is_missing=True)

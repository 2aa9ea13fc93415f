"""The guard before every route: which role it needs, by the one table of rules; whose key the request carries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute

from app.api.deps import MAX_NAME_LENGTH
from app.api.documented import problems
from app.api.edge import KEY_NAME
from app.domain.access import PRINCIPAL, RULES, Principal, Role
from app.domain.audit import Refusal, ResourceKind
from app.errors import Forbidden, Unauthorized
from app.store.api_keys import KeyRing
from app.store.refusals import RefusalLog

SCHEME = "ApiKey"
_RECHECK = "slackwater.recheck_key"
"""Where in a request's scope the guard leaves what looks at its key once more."""

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="slackwater"'}


def guards(key_ring: KeyRing, refusals: RefusalLog, *, is_required: bool) -> list[Dependency]:
    """Return what every router depends on first; nothing where keys are not required, so that it costs nothing."""

    async def guard(request: Request) -> None:
        route: APIRoute = request.scope["route"]
        # A route that was forgotten in the table is for administrators; a test holds both together.
        role = RULES.get(f"{request.method} {route.path_format}", Role.ADMIN)
        if role is not None:
            text = _presented(request)
            principal = await key_ring.recognise(text)
            request.scope[KEY_NAME] = principal.name
            try:
                _check(principal, role)
            except Forbidden as refusal:
                await refusals.note(principal, _refused(request, route, refusal.code))
                raise
            request.scope[_RECHECK] = partial(key_ring.recognise, text)
            PRINCIPAL.set(principal)

    return [Depends(guard)] if is_required else []


def recheck_of(request: Request) -> Callable[[], Awaitable[object]]:
    """Return what an answer without an end asks now and then: whether the request's key still counts, else it raises ``Unauthorized``."""
    recheck: Callable[[], Awaitable[object]] = request.scope.get(_RECHECK, _nothing)
    return recheck


async def _nothing() -> None:
    """Where keys are not asked for there is none to look at."""


def document_access(document: dict[str, Any]) -> None:
    """Add the security scheme to the OpenAPI document, and to each operation the role that it needs with its refusals."""
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes[SCHEME] = {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "sw_…",
        "description": "An API key (`slackwater keys create`). Not asked for where the service listens on loopback only, unless "
        "`SLACKWATER_AUTH=on`.",
    }
    for path, item in document["paths"].items():
        for method, operation in item.items():
            role = RULES.get(f"{method.upper()} {path}")
            operation["security"] = [] if role is None else [{SCHEME: []}]
            if role is not None:
                operation["x-required-role"] = role.text
                operation["responses"] |= {str(status): problems(status)[status] for status in (401, 403)}


def _presented(request: Request) -> str:
    """Return the key that a request carries.

    Raises:
        Unauthorized: ``api_key_missing``.
    """
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("api_key_missing", "send an API key: Authorization: Bearer sw_…", headers=_CHALLENGE)
    return text.strip()


_KINDS: dict[str, ResourceKind] = {"streams": "stream", "tables": "table", "queries": "query", "api-keys": "api_key"}


def _refused(request: Request, route: APIRoute, code: str) -> Refusal:
    _, _, plural, *_ = (*request.url.path.split("/"), "", "")
    name = request.path_params.get("name")
    # What is longer is no name of anything.
    named = name if name is not None and len(name) <= MAX_NAME_LENGTH and "\0" not in name else None
    return Refusal(f"{request.method} {route.path_format}", _KINDS.get(plural), named, code, repeats=0)


def _check(principal: Principal, needed: Role) -> None:
    if principal.role < needed:
        raise Forbidden(
            "role_too_low",
            f"this needs a key with the role {needed.text}; the key '{principal.name}' has the role {principal.role.text}",
        )

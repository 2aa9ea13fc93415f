"""The guard before every route. It authenticates the request's key and checks the role and the reach of the route's rule."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg
import sqlalchemy as sa
import structlog
from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from sqlalchemy.ext.asyncio import AsyncEngine

from app.access.audit.refusals import RefusalLog
from app.access.audit.sql import Refusal, ResourceKind
from app.access.rules import PRINCIPAL, RULES, STRICTEST, Principal, Reach, Role, beyond_scope, feed_beyond, name_beyond
from app.access.scopes_sql import find_names_beside, find_names_sharing
from app.access.tokens.verifying import Authenticator
from app.errors.app_errors import Fault, Forbidden, Unauthorized
from app.http.answers.documented import problems
from app.http.guards.request_middleware import KEY_NAME
from app.http.parameters import is_name

SCHEME = "ApiKey"
RECHECK = "slackwater.recheck_key"
"""Key in a request's ASGI scope: the guard stores there the function that checks the API key again."""

RECHECK_SCOPE_S = 5.0
"""Seconds between two checks of the scope in a long request. An event stream wakes up more often, and each check is a statement."""

_KINDS: dict[str, ResourceKind] = {
    "streams": "stream",
    "tables": "table",
    "queries": "query",
    "api-keys": "api_key",
    "connections": "connection",
}
log = structlog.stdlib.get_logger(__name__)


async def _guard(request: Request) -> None:
    route: APIRoute = request.scope["route"]
    # A route without a line in the table is for administrators. A test compares the routes with the table.
    rule = RULES.get(f"{request.method} {route.path_format}", STRICTEST)
    if rule.role is not None:
        text = _presented(request)
        authenticator: Authenticator = request.app.state.door
        principal = await authenticator.recognise(text)
        request.scope[KEY_NAME] = principal.name
        PRINCIPAL.set(principal)
        _check_role(principal, rule.role)
        engine: AsyncEngine = request.app.state.services.database.reads
        check_scope = partial(_check_scope, principal, rule.reach, request.path_params.get("name"), engine)
        if principal.scope is not None:  # most keys have no scope, and skip the check
            await check_scope()
        every_s = 0.0 if rule.reach is Reach.FEED else RECHECK_SCOPE_S
        recheck_scope = _nothing if principal.scope is None else check_scope
        request.scope[RECHECK] = _Recheck(partial(authenticator.recognise, text), recheck_scope, every_s)


def guards(*, is_key_required: bool) -> list[Dependency]:
    """Return the first dependency of every route; nothing where keys are not required, so that it costs nothing."""
    return [Depends(_guard)] if is_key_required else []


class _Recheck:
    """Checks again that a request's key is valid, and every ``every_s`` seconds that the path's resource is within the scope.

    A query within the scope may have another input since. A feed may have another relation since the body came in.
    """

    def __init__(
        self, recognise: Callable[[], Awaitable[object]], check_scope: Callable[[], Awaitable[None]], every_s: float
    ) -> None:
        self._recognise = recognise
        self._check_scope = check_scope
        self._every_s = every_s
        self._checked_at = time.monotonic()

    async def __call__(self) -> None:
        await self._recognise()
        if (now := time.monotonic()) - self._checked_at >= self._every_s:
            await self._check_scope()
            self._checked_at = now


def recheck_of(request: Request) -> Callable[[], Awaitable[None]]:
    """Return the function with which a long request checks its permissions again.

    It raises ``Unauthorized`` if the key is no longer valid, ``Forbidden`` if the path's resource is no longer within the key's scope.
    """
    recheck: Callable[[], Awaitable[None]] = request.scope.get(RECHECK, _nothing)
    return recheck


async def _nothing() -> None:
    """Check nothing: the service requires no keys, or the key has no scope."""


def document_access(document: dict[str, Any]) -> None:
    """Add the security scheme to the OpenAPI document, and to each operation its role and its answers 401 and 403."""
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes[SCHEME] = {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "sw_…",
        "description": "An API key (`slackwater keys create`), or a token of the OpenID Connect issuer that the settings name "
        "(`SLACKWATER_OIDC__ISSUER`). Not required where the service listens on loopback only and has no issuer, unless "
        "`SLACKWATER_AUTH=on`.",
    }
    for path, item in document["paths"].items():
        for method, operation in item.items():
            rule = RULES.get(f"{method.upper()} {path}", STRICTEST)
            operation["security"] = [] if rule.role is None else [{SCHEME: []}]
            if rule.role is not None:
                operation["x-required-role"] = rule.role.text
                operation["x-scope"] = rule.reach.value
                operation["responses"] |= {str(status): problems(status)[status] for status in (401, 403)}


def _presented(request: Request) -> str:
    """Return the key that a request carries.

    Raises:
        Unauthorized: ``api_key_missing``.
    """
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower().removesuffix(":") != "bearer":  # Debezium's HTTP sink writes "Bearer: …"
        raise Unauthorized("api_key_missing", "send an API key or a token: Authorization: Bearer …", is_missing=True)
    return text.strip()


def _check_role(principal: Principal, needed: Role) -> None:
    if principal.role < needed:
        raise Forbidden(
            "role_too_low",
            f"this needs a key with the role {needed.text}; the key '{principal.name}' has the role {principal.role.text}",
        )


async def _check_scope(principal: Principal, reach: Reach, name: str | None, engine: AsyncEngine) -> None:
    """Refuse a resource in the path that is outside of the caller's scope. Names in a body are checked where the body is read.

    Raises:
        Forbidden: ``out_of_scope``, whether the resource exists or not.
    """
    if reach is Reach.EVERYTHING:
        raise Forbidden(
            "out_of_scope",
            f"this shows all relations and queries, and the key '{principal.name}' has a scope; use a key without one",
        )
    scope = principal.scope
    if scope is None or reach not in (Reach.NAME, Reach.FEED, Reach.QUERY) or name is None or not is_name(name):
        return  # the route itself refuses a malformed name
    if not scope.allows(name):
        raise beyond_scope(principal, [Fault("", "out_of_scope", name_beyond(name, scope))])
    if reach is Reach.NAME:
        return
    find_others = find_names_sharing if reach is Reach.FEED else find_names_beside
    async with engine.connect() as connection:
        is_within = all(map(scope.allows, await find_others(connection, name)))
    if not is_within:
        detail = feed_beyond(name, scope) if reach is Reach.FEED else name_beyond(name, scope)
        raise beyond_scope(principal, [Fault("", "out_of_scope", detail)])


async def note_refusal(request: Request, refusal: Forbidden) -> None:
    """Record in the audit log that a caller lacked a role or a scope. A caller that is not authenticated gets no entry."""
    principal, route = PRINCIPAL.get(), request.scope.get("route")
    if principal is None or not isinstance(route, APIRoute):
        return
    refusals: RefusalLog = request.app.state.refusals
    _, _, plural, *_ = (*request.url.path.split("/"), "", "")
    name = request.path_params.get("name")
    resource_name = name if name is not None and is_name(name) else None
    try:
        await refusals.note(
            principal,
            Refusal(f"{request.method} {route.path_format}", _KINDS.get(plural), resource_name, refusal.code, repeats=0),
        )
    except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
        log.warning("refusal_not_recorded", actor=principal.name, code=refusal.code, error=str(error))

"""Permissions: roles, scopes, keys, and the one table of what each route needs. Pure; knows neither HTTP headers nor SQL."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Literal

from app.access.scopes import WITHHELD_NAME, Scope
from app.errors.app_errors import Fault, Forbidden, Unprocessable

KEY_MARK = "sw_"
_ID_LENGTH, _SECRET_LENGTH = 8, 43
"""43 characters of 62 are 256 bits. Nobody can guess them, so a plain SHA-256 is enough to store a key."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_ALPHABET = string.ascii_letters + string.digits
_KEY = re.compile(rf"{KEY_MARK}[0-9A-Za-z]{{{_ID_LENGTH}}}_[0-9A-Za-z]{{{_SECRET_LENGTH}}}")


class Role(IntEnum):
    """What a key may do; each includes the ones before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def text(self) -> str:
        """The role as users write it."""
        return self.name.lower()

    @classmethod
    def of(cls, text: str) -> Role:
        return cls[text.upper()]


class Reach(Enum):
    """How the scope of a key limits a route (``app.access.scopes``).

    Attributes:
        NOTHING: the route shows no relation and no query.
        NAME: the relation in the path is within the scope; the answer withholds names outside of it.
        FEED: as NAME, and so is every other relation of the feed: records that are appended to one may belong to another.
        QUERY: the query in the path is within the scope, with all that it reads and writes.
        LIST: the answer lists only what is within the scope.
        BODY: everything that the definition in the body names is within the scope.
        EVERYTHING: the route shows all relations and queries, or permissions: only keys without a scope may use it.
    """

    NOTHING = "nothing"
    NAME = "name"
    FEED = "feed"
    QUERY = "query"
    LIST = "list"
    BODY = "body"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Rule:
    """The permission that a route needs.

    Attributes:
        role: the lowest role that may use it; None: no key is needed.
    """

    role: Role | None
    reach: Reach


OPEN, READ, WRITE, ADMIN = None, Role.READ, Role.WRITE, Role.ADMIN

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "GET /healthz": Rule(OPEN, Reach.NOTHING),
        "GET /readyz": Rule(OPEN, Reach.NOTHING),
        "GET /v1/version": Rule(OPEN, Reach.NOTHING),
        "GET /v1/functions": Rule(OPEN, Reach.NOTHING),
        "GET /v1/errors": Rule(OPEN, Reach.NOTHING),
        "GET /v1/errors/{code}": Rule(OPEN, Reach.NOTHING),
        "GET /v1/me": Rule(READ, Reach.NOTHING),
        "GET /v1/overview": Rule(READ, Reach.LIST),
        "GET /metrics": Rule(READ, Reach.EVERYTHING),
        "GET /v1/streams": Rule(READ, Reach.LIST),
        "GET /v1/streams/{name}": Rule(READ, Reach.NAME),
        "PUT /v1/streams/{name}": Rule(WRITE, Reach.NAME),
        "DELETE /v1/streams/{name}": Rule(WRITE, Reach.NAME),
        "GET /v1/streams/{name}/records": Rule(READ, Reach.NAME),
        "POST /v1/streams/{name}/records": Rule(WRITE, Reach.FEED),
        "GET /v1/streams/{name}/changes": Rule(READ, Reach.NAME),
        "GET /v1/tables": Rule(READ, Reach.LIST),
        "GET /v1/tables/{name}": Rule(READ, Reach.NAME),
        "PUT /v1/tables/{name}": Rule(WRITE, Reach.NAME),
        "DELETE /v1/tables/{name}": Rule(WRITE, Reach.NAME),
        "POST /v1/tables/{name}/records": Rule(WRITE, Reach.FEED),
        "POST /v1/debezium/auth/authenticate": Rule(OPEN, Reach.NOTHING),
        "POST /v1/debezium/auth/refreshToken": Rule(OPEN, Reach.NOTHING),
        "GET /v1/tables/{name}/rows": Rule(READ, Reach.NAME),
        "GET /v1/tables/{name}/rows/{key}": Rule(READ, Reach.NAME),
        "POST /v1/tables/{name}/rows:lookup": Rule(READ, Reach.NAME),
        "GET /v1/tables/{name}/changes": Rule(READ, Reach.NAME),
        "GET /v1/streams/{name}/rejects": Rule(READ, Reach.NAME),
        "GET /v1/tables/{name}/rejects": Rule(READ, Reach.NAME),
        "GET /v1/streams/{name}/lineage": Rule(READ, Reach.NAME),
        "GET /v1/tables/{name}/lineage": Rule(READ, Reach.NAME),
        "GET /v1/queries": Rule(READ, Reach.LIST),
        "POST /v1/queries": Rule(WRITE, Reach.BODY),
        "GET /v1/queries/{name}": Rule(READ, Reach.QUERY),
        "PUT /v1/queries/{name}": Rule(WRITE, Reach.QUERY),
        "DELETE /v1/queries/{name}": Rule(WRITE, Reach.QUERY),
        "PUT /v1/queries/{name}/desired-state": Rule(WRITE, Reach.QUERY),
        "POST /v1/queries/{name}/fork": Rule(WRITE, Reach.QUERY),
        "GET /v1/queries/{name}/restore-points": Rule(READ, Reach.QUERY),
        "POST /v1/queries/{name}/rewind": Rule(WRITE, Reach.QUERY),
        "POST /v1/queries/{name}/restart": Rule(WRITE, Reach.QUERY),
        "GET /v1/queries/{name}/status": Rule(READ, Reach.QUERY),
        "GET /v1/queries/{name}/events": Rule(READ, Reach.QUERY),
        "GET /v1/queries/{name}/runs": Rule(READ, Reach.QUERY),
        "GET /v1/queries/{name}/late-records": Rule(READ, Reach.QUERY),
        "POST /v1/queries/{name}/late-records/replay": Rule(WRITE, Reach.QUERY),
        "GET /v1/queries/{name}/lateness": Rule(READ, Reach.QUERY),
        "GET /v1/queries/{name}/explain": Rule(READ, Reach.QUERY),
        "POST /v1/statements": Rule(READ, Reach.BODY),
        "POST /v1/validations": Rule(READ, Reach.BODY),
        "POST /v1/comparisons": Rule(READ, Reach.BODY),
        "GET /v1/connections": Rule(READ, Reach.LIST),
        "GET /v1/connections/{name}": Rule(READ, Reach.NAME),
        "PUT /v1/connections/{name}": Rule(ADMIN, Reach.EVERYTHING),
        "DELETE /v1/connections/{name}": Rule(ADMIN, Reach.EVERYTHING),
        "POST /v1/connections/{name}/check": Rule(ADMIN, Reach.EVERYTHING),
        "GET /v1/api-keys": Rule(ADMIN, Reach.EVERYTHING),
        "POST /v1/api-keys": Rule(ADMIN, Reach.EVERYTHING),
        "DELETE /v1/api-keys/{name}": Rule(ADMIN, Reach.EVERYTHING),
        "GET /v1/audit": Rule(ADMIN, Reach.EVERYTHING),
        "GET /v1/drivers": Rule(READ, Reach.EVERYTHING),
        "GET /v1/settings": Rule(ADMIN, Reach.EVERYTHING),
    }
)
"""Method and path template of every route → its rule. PUTs also check the names in their bodies."""

STRICTEST = Rule(ADMIN, Reach.EVERYTHING)
"""Rule of a route that is missing in the table."""


PrincipalKind = Literal["api_key", "oidc", "cli"]


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    Attributes:
        kind: how the caller was authenticated: by an API key, by a token, or as a user of the service's machine.
        id: the key's id; the token's subject; None on the command line.
        scope: the names that the caller may see; None: everything.
    """

    kind: PrincipalKind
    id: str | None
    name: str
    role: Role
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key; ``text`` is shown once and stored nowhere.

    Attributes:
        prefix: the part that is shown later, to tell keys apart.
        digest: the part that is stored.
    """

    text: str
    prefix: str
    digest: bytes


PRINCIPAL: ContextVar[Principal | None] = ContextVar("principal", default=None)
"""The caller of the request that this task answers; None where keys are not required."""

WITHHELD = "the content of a file is shown only to keys of the role admin"
"""Shown in place of a rejected record from a file: a directory that a source names may contain anything."""


def may_see_files() -> bool:
    """Whether the caller may see the content of files, whether it is records or not."""
    principal = PRINCIPAL.get()
    return principal is None or (principal.role >= Role.ADMIN and principal.scope is None)


def scope_in_force() -> Scope | None:
    """Return the caller's scope; None: everything."""
    principal = PRINCIPAL.get()
    return None if principal is None else principal.scope


def visible(name: str) -> str:
    """Return a name for the caller: the name itself, or ``WITHHELD_NAME`` if it is outside of the caller's scope."""
    scope = scope_in_force()
    return name if scope is None or scope.allows(name) else WITHHELD_NAME


def is_visible_feed(feed: str) -> bool:
    """Whether the caller may see the positions of a feed; ``feed`` is its name in positions."""
    scope = scope_in_force()
    return scope is None or scope.allows_feed(feed)


def visible_feed(feed: str) -> str:
    """Return a feed's name, as positions have it, for the caller: see ``visible``."""
    return feed if is_visible_feed(feed) else WITHHELD_NAME


def visible_position(position: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return a position without the feeds outside of the caller's scope."""
    return {feed: dict(parts) for feed, parts in position.items() if is_visible_feed(feed)}


def visible_position_text(position: str) -> str:
    """See ``visible_position``; for a position in JSON. It returns the text unchanged where there is no scope."""
    return position if scope_in_force() is None else json.dumps(visible_position(json.loads(position)))


def out_of_scope(principal: Principal, names: Iterable[tuple[str, str | None]]) -> Forbidden | None:
    """Return the error for names outside of the caller's scope; None if all are within.

    Args:
        principal: the caller.
        names: pointer into the body and name; None for a place without a name, such as a directory of files.
    """
    scope = principal.scope
    beyond = [] if scope is None else [each for each in names if each[1] is None or not scope.allows(each[1])]
    if scope is None or not beyond:
        return None
    return beyond_scope(principal, [Fault(pointer, "out_of_scope", name_beyond(name, scope)) for pointer, name in beyond])


def beyond_scope(principal: Principal, faults: Sequence[Fault]) -> Forbidden:
    detail = "; ".join(fault.detail for fault in faults)
    return Forbidden("out_of_scope", f"'{principal.name}': {detail}", [fault for fault in faults if fault.pointer])


def name_beyond(name: str | None, scope: Scope) -> str:
    if name is None:
        return (
            f"a key with a scope ({scope.text}) registers no source whose records are elsewhere, such as files or a topic, and delivers no "
            "results there; use a key without a scope"
        )
    return f"{name[:80]!r} is not within the key's scope ({scope.text}), or reads or writes what is not; use another key"


def feed_beyond(name: str, scope: Scope) -> str:
    """Return the text that a feed has relations outside of a scope, without their names."""
    return (
        f"the feed of {name[:80]!r} also has relations outside of the key's scope ({scope.text}), which share its records; "
        "use a key whose scope covers every relation of the feed"
    )


def refuse_feed_beyond_scope(name: str, pointer: str, names: Iterable[str]) -> None:
    """Refuse a request for the feed of a relation if the feed has relations outside of the caller's scope.

    Raises:
        Forbidden: ``out_of_scope``.
    """
    principal = PRINCIPAL.get()
    scope = None if principal is None else principal.scope
    if principal is not None and scope is not None and not all(map(scope.allows, names)):
        raise beyond_scope(principal, [Fault(pointer, "out_of_scope", feed_beyond(name, scope))])


def refuse_beyond_scope(names: Iterable[tuple[str, str | None]]) -> None:
    """Refuse a request whose body has names outside of the caller's scope.

    Raises:
        Forbidden: ``out_of_scope``.
    """
    principal = PRINCIPAL.get()
    refusal = None if principal is None else out_of_scope(principal, names)
    if refusal is not None:
        raise refusal


def refuse_below(needed: Role, what: str) -> None:
    """Refuse a part of a request that needs a higher role than its route.

    Raises:
        Forbidden: ``role_too_low``.
    """
    principal = PRINCIPAL.get()
    if principal is not None and principal.role < needed:
        raise Forbidden(
            "role_too_low",
            f"{what} needs a key with the role {needed.text}; the key '{principal.name}' has the role {principal.role.text}",
        )


ANYBODY = "api"
"""The actor of a request without a key."""


def actor() -> str:
    """Return the name of the caller for a query's history."""
    principal = PRINCIPAL.get()
    if principal is None:
        return ANYBODY
    # A token's subject may equal a key's name; no key has a colon in its name.
    return f"oidc:{principal.name}" if principal.kind == "oidc" else principal.name


def key_name(text: str) -> str:
    """Return ``text`` if it is a valid name for a key.

    Raises:
        Unprocessable: ``bad_name``.
    """
    if re.fullmatch(NAME_PATTERN, text) is None:
        raise Unprocessable("bad_name", f"{text!r} is not a valid name for a key; use up to 63 of a-z, 0-9, '.', '_' and '-'")
    return text


def make_key() -> NewKey:
    """Make a random key from the system's source of randomness."""
    prefix = KEY_MARK + "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    text = f"{prefix}_{''.join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))}"
    return NewKey(text, prefix, digest_of_key(text))


def digest_of_key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def is_key(text: str) -> bool:
    """Whether a text has the form of a key. Other texts need no look-up."""
    return _KEY.fullmatch(text) is not None

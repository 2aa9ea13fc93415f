"""Who may do what: roles, scopes, keys, and the one table of what each route needs. Pure; knows neither HTTP headers nor SQL."""

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
"""43 characters of 62 are 256 bits: nothing to guess, so a plain SHA-256 is enough to keep them by."""

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
        """Return the role that is written so."""
        return cls[text.upper()]


class Reach(Enum):
    """What of a route a key with a scope may have (``app.access.scopes``).

    Attributes:
        NOTHING: the route tells of no relation and no query.
        NAME: the relation in the path is within the scope; in the answer, names of others are withheld.
        FEED: as NAME, and so is every other relation of the feed: what is appended to one may belong to another.
        QUERY: the query in the path is within the scope, with all that it reads and what it writes.
        LIST: the answer lists only what is within the scope.
        BODY: everything that the definition in the body names is within the scope.
        EVERYTHING: the route tells of all relations and queries, or of who may what: keys without a scope only.
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
    """Who may use a route.

    Attributes:
        role: at least this one; None: whoever asks.
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
"""Method and path template of every route → who may use it. PUTs check what their bodies name beside it."""

STRICTEST = Rule(ADMIN, Reach.EVERYTHING)
"""Of a route that is missing in the table."""


PrincipalKind = Literal["api_key", "oidc", "cli"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks for something.

    Attributes:
        kind: how it is known: by an API key, by a token, or as who may run commands on the service's machine.
        id: the key's; the token's subject; None on the command line.
        scope: what it may see; None: everything.
    """

    kind: PrincipalKind
    id: str | None
    name: str
    role: Role
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; ``text`` is shown once and kept nowhere.

    Attributes:
        prefix: the part that may be shown later, to tell keys apart.
        digest: what is kept.
    """

    text: str
    prefix: str
    digest: bytes


PRINCIPAL: ContextVar[Principal | None] = ContextVar("principal", default=None)
"""Whose request this task answers; None where keys are not asked for."""

WITHHELD = "what a file holds is shown to keys of the role admin"
"""In place of the words of a refused record from a file: a directory that a source names may hold anything."""


def may_see_files() -> bool:
    """Whether the request at hand may see what stands in files, be it records or not."""
    principal = PRINCIPAL.get()
    return principal is None or (principal.role >= Role.ADMIN and principal.scope is None)


def scope_in_force() -> Scope | None:
    """Return the scope of who asks; None: everything."""
    principal = PRINCIPAL.get()
    return None if principal is None else principal.scope


def visible(name: str) -> str:
    """Return a name for who asks: the name itself, or a sign in its place where it is outside of their scope."""
    scope = scope_in_force()
    return name if scope is None or scope.allows(name) else WITHHELD_NAME


def is_visible_feed(feed: str) -> bool:
    """Whether who asks may see how far a feed, as positions call it, was read."""
    scope = scope_in_force()
    return scope is None or scope.allows_feed(feed)


def visible_feed(feed: str) -> str:
    """Return a feed's name, as positions have it, for who asks: see ``visible``."""
    return feed if is_visible_feed(feed) else WITHHELD_NAME


def visible_position(position: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return a position for who asks: without feeds outside of their scope."""
    return {feed: dict(parts) for feed, parts in position.items() if is_visible_feed(feed)}


def visible_position_text(position: str) -> str:
    """See ``visible_position``; of a position that is JSON already, and stays as it is where there is no scope."""
    return position if scope_in_force() is None else json.dumps(visible_position(json.loads(position)))


def out_of_scope(principal: Principal, names: Iterable[tuple[str, str | None]]) -> Forbidden | None:
    """Return the refusal to let somebody have what is outside of their scope; None where all of it is within.

    Args:
        principal: who asks.
        names: pointer into the body and name; None for what no scope has, such as a directory of files.
    """
    scope = principal.scope
    beyond = [] if scope is None else [each for each in names if each[1] is None or not scope.allows(each[1])]
    if scope is None or not beyond:
        return None
    return beyond_scope(principal, [Fault(pointer, "out_of_scope", name_beyond(name, scope)) for pointer, name in beyond])


def beyond_scope(principal: Principal, faults: Sequence[Fault]) -> Forbidden:
    """Return the refusal to let somebody have what is outside of their scope."""
    detail = "; ".join(fault.detail for fault in faults)
    return Forbidden("out_of_scope", f"'{principal.name}': {detail}", [fault for fault in faults if fault.pointer])


def name_beyond(name: str | None, scope: Scope) -> str:
    """Say that a name is outside of a scope."""
    if name is None:
        return (
            f"a key with a scope ({scope.text}) registers no source whose records are elsewhere, such as files or a topic, and delivers no "
            "results there; use a key without a scope"
        )
    return f"{name[:80]!r} is not within the key's scope ({scope.text}), or reads or writes what is not; use another key"


def feed_beyond(name: str, scope: Scope) -> str:
    """Say that a feed has relations outside of a scope, without their names."""
    return (
        f"the feed of {name[:80]!r} is shared with relations outside of the key's scope ({scope.text}), and the feed's records are theirs, "
        "too; use a key whose scope covers every relation of the feed"
    )


def refuse_feed_beyond_scope(name: str, pointer: str, names: Iterable[str]) -> None:
    """Refuse a request for the feed of a relation where relations share it that are outside of the scope of who asks.

    Args:
        name: the relation.
        pointer: into the body.
        names: of all relations of the feed.

    Raises:
        Forbidden: ``out_of_scope``.
    """
    principal = PRINCIPAL.get()
    scope = None if principal is None else principal.scope
    if principal is not None and scope is not None and not all(map(scope.allows, names)):
        raise beyond_scope(principal, [Fault(pointer, "out_of_scope", feed_beyond(name, scope))])


def refuse_beyond_scope(names: Iterable[tuple[str, str | None]]) -> None:
    """Refuse a request whose body names what is outside of the scope of who asks.

    Raises:
        Forbidden: ``out_of_scope``.
    """
    principal = PRINCIPAL.get()
    refusal = None if principal is None else out_of_scope(principal, names)
    if refusal is not None:
        raise refusal


def refuse_below(needed: Role, what: str) -> None:
    """Refuse a part of a request that needs more than its route does.

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
    """Return who is to be named in a query's history."""
    principal = PRINCIPAL.get()
    if principal is None:
        return ANYBODY
    # A subject may be called as a key is; no key has a colon in its name.
    return f"oidc:{principal.name}" if principal.kind == "oidc" else principal.name


def key_name(text: str) -> str:
    """Return the name for a key.

    Raises:
        Unprocessable: ``bad_name``.
    """
    if re.fullmatch(NAME_PATTERN, text) is None:
        raise Unprocessable("bad_name", f"{text!r} is no name for a key: up to 63 of a-z, 0-9, '.', '_' and '-'")
    return text


def make_key() -> NewKey:
    """Draw a new key from the system's source of randomness."""
    prefix = KEY_MARK + "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    text = f"{prefix}_{''.join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))}"
    return NewKey(text, prefix, digest_of_key(text))


def digest_of_key(text: str) -> bytes:
    """Return what a key is kept and found by."""
    return hashlib.sha256(text.encode()).digest()


def is_key(text: str) -> bool:
    """Whether a text has the shape of a key; one that has not need not be looked for."""
    return _KEY.fullmatch(text) is not None

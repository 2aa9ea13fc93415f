"""Who may do what: roles, keys, and the one table of what each route needs. Pure; knows neither HTTP headers nor SQL."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

from app.errors import Unprocessable

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


OPEN, READ, WRITE, ADMIN = None, Role.READ, Role.WRITE, Role.ADMIN

RULES: Mapping[str, Role | None] = MappingProxyType(
    {
        "GET /healthz": OPEN,
        "GET /readyz": OPEN,
        "GET /v1/version": OPEN,
        "GET /metrics": READ,
        "GET /v1/streams": READ,
        "GET /v1/streams/{name}": READ,
        "PUT /v1/streams/{name}": WRITE,
        "DELETE /v1/streams/{name}": WRITE,
        "GET /v1/streams/{name}/records": READ,
        "POST /v1/streams/{name}/records": WRITE,
        "GET /v1/streams/{name}/changes": READ,
        "GET /v1/tables": READ,
        "GET /v1/tables/{name}": READ,
        "PUT /v1/tables/{name}": WRITE,
        "DELETE /v1/tables/{name}": WRITE,
        "POST /v1/tables/{name}/records": WRITE,
        "GET /v1/tables/{name}/rows": READ,
        "GET /v1/tables/{name}/rows/{key}": READ,
        "POST /v1/tables/{name}/rows:lookup": READ,
        "GET /v1/tables/{name}/changes": READ,
        "GET /v1/{plural}/{name}/rejects": READ,
        "GET /v1/{plural}/{name}/lineage": READ,
        "GET /v1/queries": READ,
        "POST /v1/queries": WRITE,
        "GET /v1/queries/{name}": READ,
        "PUT /v1/queries/{name}": WRITE,
        "DELETE /v1/queries/{name}": WRITE,
        "PUT /v1/queries/{name}/desired-state": WRITE,
        "POST /v1/queries/{name}/restart": WRITE,
        "GET /v1/queries/{name}/status": READ,
        "GET /v1/queries/{name}/events": READ,
        "GET /v1/queries/{name}/runs": READ,
        "GET /v1/queries/{name}/late-records": READ,
        "POST /v1/queries/{name}/late-records/replay": WRITE,
        "GET /v1/queries/{name}/lateness": READ,
        "GET /v1/queries/{name}/explain": READ,
        "POST /v1/validations": READ,
        "GET /v1/api-keys": ADMIN,
        "POST /v1/api-keys": ADMIN,
        "DELETE /v1/api-keys/{name}": ADMIN,
        "GET /v1/audit": ADMIN,
    }
)
"""Method and path template of every route → the role that it needs; one that is missing here needs ADMIN."""


PrincipalKind = Literal["api_key", "cli"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks for something.

    Attributes:
        kind: how it is known: by an API key, or as who may run commands on the service's machine.
        id: the key's; None on the command line.
    """

    kind: PrincipalKind
    id: str | None
    name: str
    role: Role


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
    return principal is None or principal.role >= Role.ADMIN


ANYBODY = "api"
"""The actor of a request without a key."""


def actor() -> str:
    """Return who is to be named in a query's history."""
    principal = PRINCIPAL.get()
    return ANYBODY if principal is None else principal.name


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

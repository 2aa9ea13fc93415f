"""Connections in the database: looked up by name and decrypted where they are used, and stored nowhere else.

Spark's workers and drivers call ``load`` with the database they already know; key, variables and directory come from the environment of
their own process. So no plan, argument or pickle ever holds a secret. This is the one table of the control plane that the engine reads: a
copy beside the log would be a second place of secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg

from engine.connections.keys import SecretKeyMissing, SecretKeys, SecretPlace, SecretUnreadable
from engine.connections.kinds import KINDS, AnyConnection
from engine.connections.secret_sources import SecretReader, SecretSources
from engine.definition.connections.hosts import HostRefused
from engine.definition.connections.secret import put_back, taken_out
from engine.errors import SourceUnavailable, UserError

_FIND: Final = "SELECT type, definition, secrets FROM slackwater.connection WHERE name = %s"


class WrongConnection(UserError):
    """A name refers to no connection, or to one that cannot be used there."""


class ConnectionMissing(WrongConnection):
    """There is no connection of that name."""

    code = "connection_missing"


class ConnectionOfAnotherType(WrongConnection):
    """The connection has another type."""

    code = "connection_of_another_type"


C = TypeVar("C", bound=AnyConnection)


@dataclass(frozen=True, slots=True)
class Stored:
    """A connection's row.

    Attributes:
        definition: without secrets.
        secrets: pointer of a field → stored form of its value.
    """

    name: str
    type: str
    definition: Mapping[str, Any]
    secrets: Mapping[str, str]

    def place(self, pointer: str) -> SecretPlace:
        """The place to which the secret at this pointer is bound."""
        return SecretPlace(self.name, self.definition, pointer)

    def decrypted(self, keys: SecretKeys | None) -> AnyConnection:
        """Return the definition with its secrets.

        Raises:
            SecretUnreadable: one cannot be decrypted.
        """
        if self.secrets and keys is None:
            raise SecretUnreadable(
                f"{', '.join(sorted(self.secrets))} of the connection '{self.name}' cannot be decrypted: SLACKWATER_SECRET_KEY is not set here"
            )
        values = (
            {} if keys is None else {pointer: keys.decrypt(text, self.place(pointer)) for pointer, text in self.secrets.items()}
        )
        return KINDS[self.type].model_validate(put_back(self.definition, values))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A connection at the moment of its use: for ``librdkafka_options(…)``, ``httpx_options(…)`` and the others.

    Attributes:
        reader: reads its secrets, and removes them from other programs' texts.
    """

    name: str
    definition: AnyConnection
    reader: SecretReader

    def of_kind(self, kind: type[C]) -> C:
        """Return its definition as one of this kind.

        Raises:
            ConnectionOfAnotherType: it has another kind.
        """
        if isinstance(self.definition, kind):
            return self.definition
        wanted = next(name for name, model in KINDS.items() if model is kind)
        detail = f"the connection '{self.name}' is one of type {self.definition.type}; name one of type {wanted}"
        raise ConnectionOfAnotherType(detail)


def sealed(name: str, definition: AnyConnection, keys: SecretKeys | None) -> Stored:
    """Return the stored form of a definition.

    Raises:
        SecretKeyMissing: it has values, and there is no key.
    """
    shown, values = taken_out(definition)
    stored = Stored(name, definition.type, shown, {})
    if keys is None:
        if values:
            raise SecretKeyMissing(sorted(values))
        return stored
    secrets = {pointer: keys.encrypt(text, stored.place(pointer)) for pointer, text in values.items()}
    return Stored(name, definition.type, shown, secrets)


def resolved(stored: Stored, surroundings: SecretSources) -> Resolved:
    """Return a stored connection for use, if its hosts may be reached from here.

    Raises:
        SourceUnavailable: a secret cannot be decrypted, or a host is not allowed: both are settings of this process.
    """
    try:
        definition = stored.decrypted(surroundings.keys)
        for endpoint in (*definition.endpoints, *definition.further_endpoints):
            surroundings.hosts.check_at_use(endpoint.host)
    except (SecretUnreadable, HostRefused) as error:
        raise SourceUnavailable(f"connection '{stored.name}': {error}") from error
    return Resolved(stored.name, definition, SecretReader(surroundings))


def load(connection: psycopg.Connection[Any], name: str, surroundings: SecretSources) -> Resolved:
    """Look a connection up and resolve it.

    Raises:
        ConnectionMissing: there is none of that name.
        SourceUnavailable: see ``resolved``.
    """
    row = connection.execute(_FIND, (name,)).fetchone()
    if row is None:
        raise ConnectionMissing(f"there is no connection '{name}'; PUT /v1/connections/{name}")
    return resolved(Stored(name, *row), surroundings)

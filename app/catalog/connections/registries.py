"""Clients of schema registries, by the name of their stored connection: one client and its cache per connection, until it changes."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from functools import partial
from typing import Final

import anyio.to_thread

from app.catalog.connections.sql import get_connection
from app.db.database import Database
from engine.connections.certificates import CertificateUnreadable
from engine.connections.secret_sources import SecretMissing, SecretSources
from engine.connections.stored import resolved
from engine.errors import SourceUnavailable
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import settings_of

TIMEOUT_S: Final = 3.0
DEADLINE_S: Final = 6.0
"""Of one question. The request waits for it; the client of the request tries again."""

WAIT_S: Final = 3 * DEADLINE_S
"""For all questions of one body: a schema may refer to many others."""

MOST: Final = 32

_Made = tuple[datetime, int]
"""Creation time and version of a connection: the version starts from 1 if the connection is deleted and created again."""


class Registries:
    """Registries by name.

    Args:
        surroundings: secret sources of this process: keys, variables, hosts.
    """

    def __init__(self, database: Database, surroundings: SecretSources) -> None:
        self._database = database
        self._secret_sources = surroundings
        self._clients: OrderedDict[str, tuple[_Made, Registry]] = OrderedDict()

    async def get(self, name: str) -> Registry:
        """Return the client of a connection's present definition.

        Raises:
            NotFound: ``connection_not_found``.
            ConnectionOfAnotherType: the connection is not of a registry.
            SourceUnavailable: its secrets cannot be read here, or its host is not allowed.
        """
        version, registry = await anyio.to_thread.run_sync(partial(self._load, name))
        old = self._clients.pop(name, None)
        if old is not None and old[1] is not registry:
            old[1].close()
        self._clients[name] = (version, registry)
        if len(self._clients) > MOST:
            _, (_, oldest) = self._clients.popitem(last=False)
            oldest.close()
        return registry

    def forget(self, name: str) -> None:
        """Build the client again the next time: it was refused, and its secrets may have changed at their source."""
        entry = self._clients.pop(name, None)
        if entry is not None:
            entry[1].close()

    def close(self) -> None:
        for _, registry in self._clients.values():
            registry.close()
        self._clients.clear()

    def _load(self, name: str) -> tuple[_Made, Registry]:
        with self._database.inspection.begin() as transaction:
            row = get_connection(transaction, name)
        entry = self._clients.get(name)
        if entry is not None and entry[0] == (row.created_at, row.version):
            return entry
        try:
            return (row.created_at, row.version), Registry(
                settings_of(resolved(row.stored, self._secret_sources), TIMEOUT_S, DEADLINE_S)
            )
        except (SecretMissing, CertificateUnreadable) as error:
            raise SourceUnavailable(f"connection '{name}': {error}") from None

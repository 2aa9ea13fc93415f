"""Clients of schema registries, by the stored connection that requests name: one each, with what it remembers, while that does not change."""

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
from engine.formats.registry.connected import settings_of

TIMEOUT_S: Final = 3.0
DEADLINE_S: Final = 6.0
"""Of one question. A request waits for it; whoever sent it tries again."""

WAIT_S: Final = 3 * DEADLINE_S
"""For all questions that one body makes: it may name a schema that refers to many."""

MOST: Final = 32

_Made = tuple[datetime, int]
"""When a connection was made, and its version, which starts from scratch with a connection made again under the name."""


class Registries:
    """Registries by name.

    Args:
        database: where connections are.
        surroundings: of this process: keys, variables, hosts.
    """

    def __init__(self, database: Database, surroundings: SecretSources) -> None:
        self._database = database
        self._surroundings = surroundings
        self._known: OrderedDict[str, tuple[_Made, Registry]] = OrderedDict()

    async def get(self, name: str) -> Registry:
        """Return the client of a connection as it is now.

        Raises:
            NotFound: ``connection_not_found``.
            ConnectionOfAnotherType: the connection is no registry's.
            SourceUnavailable: its secrets cannot be read here, or its host may not be reached.
        """
        version, registry = await anyio.to_thread.run_sync(partial(self._load, name))
        old = self._known.pop(name, None)
        if old is not None and old[1] is not registry:
            old[1].close()
        self._known[name] = (version, registry)
        if len(self._known) > MOST:
            _, (_, oldest) = self._known.popitem(last=False)
            oldest.close()
        return registry

    def forget(self, name: str) -> None:
        """Make the client again the next time: it was refused, and its secrets may have been changed where they are."""
        known = self._known.pop(name, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        """Close all connections."""
        for _, registry in self._known.values():
            registry.close()
        self._known.clear()

    def _load(self, name: str) -> tuple[_Made, Registry]:
        with self._database.inspection.begin() as transaction:
            row = get_connection(transaction, name)
        known = self._known.get(name)
        if known is not None and known[0] == (row.created_at, row.version):
            return known
        try:
            return (row.created_at, row.version), Registry(
                settings_of(resolved(row.stored, self._surroundings), TIMEOUT_S, DEADLINE_S)
            )
        except (SecretMissing, CertificateUnreadable) as error:
            raise SourceUnavailable(f"connection '{name}': {error}") from None

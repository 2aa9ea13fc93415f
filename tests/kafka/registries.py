"""A schema registry beside a broker, a real one or the small one of ours: a stored connection to it, and payloads that name its schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import polars as pl
from psycopg.types.json import Jsonb

from engine.expressions.types.types import Schema, parse_type
from engine.formats.format_list import writer_of
from engine.formats.port import SideConfig, SideName
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import RegistrySettings
from engine.postgres.postgres import Connection
from engine.sources.kafka.sides import forget
from tests.unit.formats.registry_server import FakeRegistry, serving

_STORE = """
    INSERT INTO slackwater.connection (name, type, definition, secrets) VALUES (%(name)s, 'registry', %(definition)s, '{}')
    ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
"""


@dataclass
class Connected:
    """A registry that sources can name.

    Attributes:
        name: of the connection.
        url: where it listens.
        store: a client for whoever writes.
    """

    name: str
    url: str
    store: Registry

    def payloads(
        self, form: str, topic: str, rows: list[dict[str, Any]], types: dict[str, str], side: SideName = "value", **more: Any
    ) -> list[bytes]:
        """Write rows as a producer does, with the schema of its columns registered under the topic's subject."""
        columns = Schema(tuple((name, parse_type(text)) for name, text in types.items()))
        config = SideConfig(form, columns, side, has_registry=True, subject=f"{topic}-{side}", **more)
        return writer_of(config, self.store).write(pl.DataFrame(rows, schema=columns.polars())).to_list()

    def connect(self, connection: Connection, **more: Any) -> None:
        """Store the connection."""
        definition = {"type": "registry", "urls": [self.url], **more}
        connection.execute(_STORE, {"name": self.name, "definition": Jsonb(definition)})

    def permit_all(self) -> None:
        """Let the next schema of a subject be unlike those before. A real registry of the tests asks for no compatibility."""


@dataclass
class Registered(Connected):
    """The small one of ours.

    Attributes:
        server: what it knows, and how it misbehaves.
    """

    server: FakeRegistry

    def permit_all(self) -> None:
        self.server.subjects.clear()


@contextmanager
def connected(connection: Connection, url: str) -> Iterator[Connected]:
    """Have a connection to a registry for the length of the block."""
    store = Registry(RegistrySettings((url,), deadline_seconds=10.0))
    found = Connected(f"r{uuid4().hex[:10]}", url, store)
    found.connect(connection)
    try:
        yield found
    finally:
        store.close()
        forget(connection.info.dsn, found.name)


@contextmanager
def registered(connection: Connection) -> Iterator[Registered]:
    """Serve the small registry for the length of the block, with a connection to it."""
    with serving(FakeRegistry()) as server, connected(connection, server.url) as found:
        yield Registered(found.name, found.url, found.store, server)

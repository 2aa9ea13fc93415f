"""A schema registry beside a broker: a stored connection to the small one of ours, and payloads that name its schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import polars as pl
from psycopg.types.json import Jsonb

from engine.connectors.formats.format_list import writer_of
from engine.connectors.formats.port import SideConfig, SideName
from engine.connectors.formats.registry.client import Registry
from engine.connectors.formats.registry.settings import RegistrySettings
from engine.connectors.kafka.sides import forget
from engine.connectors.postgres import Connection
from engine.definition.types import Schema, parse_type
from tests.unit.connectors.formats.registry_server import FakeRegistry, serving

_STORE = """
    INSERT INTO slackwater.connection (name, type, definition, secrets) VALUES (%(name)s, 'registry', %(definition)s, '{}')
    ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
"""


@dataclass
class Registered:
    """A registry that sources can name.

    Attributes:
        name: of the connection.
        server: what it knows, and how it misbehaves.
        store: a client for whoever writes.
    """

    name: str
    server: FakeRegistry
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
        definition = {"type": "registry", "urls": [self.server.url], **more}
        connection.execute(_STORE, {"name": self.name, "definition": Jsonb(definition)})


@contextmanager
def registered(connection: Connection) -> Iterator[Registered]:
    """Serve a registry for the length of the block, with a connection to it."""
    with serving(FakeRegistry()) as server:
        store = Registry(RegistrySettings((server.url,), deadline_seconds=2.0))
        found = Registered(f"r{uuid4().hex[:10]}", server, store)
        found.connect(connection)
        try:
            yield found
        finally:
            store.close()
            forget(connection.info.dsn, found.name)

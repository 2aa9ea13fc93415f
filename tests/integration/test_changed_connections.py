"""A connection that was changed, or a secret of it, is seen within seconds by whoever reads through it. Nobody listens where it leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from engine.connections.kafka import KafkaConnection
from engine.connections.stored import sealed
from engine.definition.sources.kafka import KafkaPlace
from engine.errors import SourceUnavailable
from engine.sources.kafka.brokers.client import asking, consumer_loop
from engine.sources.kafka.brokers.fetching.port import RecordFields

Connection = psycopg.Connection[Any]
PLACE = KafkaPlace("orders", "broker", None, None, None, ())


@pytest.fixture
def conn(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr("engine.sources.kafka.brokers.client.CHANGED_S", 0.0)
    monkeypatch.setenv("SLACKWATER_CONNECTION_HOSTS", "127.0.0.1")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM slackwater.connection")
        yield connection


def store(conn: Connection, password: str) -> None:
    """Write a connection whose password is in a variable of this process, or in another one."""
    sasl = {"mechanism": "PLAIN", "username": "u", "password": f"env:{password}"}
    definition = KafkaConnection.model_validate({"type": "kafka", "bootstrap": "127.0.0.1:1", "sasl": sasl})
    stored = sealed("broker", definition, None)
    conn.execute(
        "INSERT INTO slackwater.connection (name, type, definition, secrets) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, secrets = excluded.secrets",
        (stored.name, stored.type, Jsonb(dict(stored.definition)), Jsonb(dict(stored.secrets))),
    )


def test_clients_are_made_anew_once_a_connection_or_its_secret_has_changed_and_not_before(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_SECRET_ONE", "first")
    monkeypatch.setenv("SLACKWATER_SECRET_TWO", "second")
    store(conn, "SLACKWATER_SECRET_ONE")
    seen = []

    def used() -> tuple[Any, Any]:
        with asking(dsn, PLACE) as client, consumer_loop(dsn, PLACE, RecordFields(), 0, 0) as taker:
            seen.append((client, taker))
        return seen[-1]

    assert used() == used()
    store(conn, "SLACKWATER_SECRET_TWO")
    assert not set(used()) & set(seen[0])
    assert used() == seen[-2]
    monkeypatch.setenv("SLACKWATER_SECRET_TWO", "third")
    assert not set(used()) & set(seen[-2])
    conn.execute("DELETE FROM slackwater.connection")
    with pytest.raises(SourceUnavailable, match="there is no connection 'broker'"):
        used()

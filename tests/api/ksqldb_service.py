"""The service with its listener for ksqlDB's clients, on real ports, without a driver."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.live_server import live

ORDERS = (
    "CREATE STREAM orders (id STRING KEY, item STRING, amount DOUBLE, made TIMESTAMP) "
    "WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', TIMESTAMP='made', PARTITIONS=1);"
)
ORDERS_BY_ARRIVAL = (
    "CREATE STREAM orders (id STRING KEY, item STRING, amount DOUBLE) "
    "WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
)
TOTALS = "CREATE TABLE totals AS SELECT item, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY item;"


@contextmanager
def listening(settings: Settings) -> Iterator[str]:
    """Serve for the length of a block; yields the listener's address."""
    with ExitStack() as probes:
        port, ksql_port = (free_port(probes) for _ in range(2))
    own = settings.model_copy(update={"port": port, "ksql_port": ksql_port})
    with live(create_app(own), port=port):
        yield f"http://127.0.0.1:{ksql_port}"


def free_port(probes: ExitStack) -> int:
    """Find a port; nobody else has it until the stack is closed."""
    probe = probes.enter_context(socket.socket())
    probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])


def write_totals(dsn: str) -> None:
    """Write three rows of TOTALS, as its query would."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number, item in enumerate(("cup", "mug", "tea"), 1):
            connection.execute("INSERT INTO views.totals VALUES (%s, %s, %s, %s)", (item, number, number * 1.5, 1_000 * number))

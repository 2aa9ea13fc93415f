"""The port of the listener for ksqlDB's clients, as the service starts."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from app.http.servers.ports import open_port
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.ksqldb_service import free_port


async def test_the_port_is_open_when_the_service_has_started(settings: Settings) -> None:
    with ExitStack() as probes:
        port = free_port(probes)
    app = create_app(settings.model_copy(update={"ksql_port": port}))
    async with app.router.lifespan_context(app):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()  # nothing else runs in the loop meanwhile


def test_a_port_that_another_has_is_refused_with_the_setting() -> None:
    with ExitStack() as probes, pytest.raises(OSError, match="set SLACKWATER_KSQL_PORT to another port"):
        open_port("127.0.0.1", free_port(probes), "SLACKWATER_KSQL_PORT")

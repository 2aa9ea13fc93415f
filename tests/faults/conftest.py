"""A database, and an object store, beside the service that is disturbed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db.embedded_postgres import EmbeddedPostgres
from engine.state.segments import objects
from tests.object_store import ObjectServer, object_server


@pytest.fixture
def database() -> Iterator[str]:
    """The DSN of a server of its own, with the host's disk and clock."""
    with tempfile.TemporaryDirectory(prefix="slackwater-pg-", ignore_cleanup_errors=True) as directory:
        server = EmbeddedPostgres(Path(directory) / "postgres")
        try:
            yield server.start()
        finally:
            server.stop()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An object store; this process, and what it starts, has its address and keys."""
    with object_server() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        objects._client.cache_clear()
        yield running

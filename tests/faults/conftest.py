"""A database beside the service that is disturbed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.embedded_postgres import EmbeddedPostgres


@pytest.fixture
def database() -> Iterator[str]:
    """The DSN of a server of its own, with the host's disk and clock."""
    with tempfile.TemporaryDirectory(prefix="slackwater-pg-", ignore_cleanup_errors=True) as directory:
        server = EmbeddedPostgres(Path(directory) / "postgres")
        try:
            yield server.start()
        finally:
            server.stop()

"""A launcher of queries in this process, over a real Postgres: what they do does not depend on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.postgres.postgres import close_shared_connections
from engine.runtime.in_process import InProcessExecutor, InProcessQuery
from tests.launching import Launcher, emptied

InProcessLauncher = Launcher[InProcessQuery]


@pytest.fixture
def launcher(dsn: str, tmp_path: Path) -> Iterator[InProcessLauncher]:
    emptied(dsn)
    executor = InProcessExecutor(dsn)
    yield Launcher(executor.launch, dsn, tmp_path)
    executor.close()
    close_shared_connections()

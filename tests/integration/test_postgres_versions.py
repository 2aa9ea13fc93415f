"""The store on other versions of Postgres than the embedded one: those whose programs TEST_POSTGRES_PROGRAMS names.

TEST_POSTGRES_PROGRAMS=/usr/lib/postgresql/15/bin:/usr/lib/postgresql/17/bin pytest -n 0 tests/integration/test_postgres_versions.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.postgres_server import VARIABLE, named_servers, running

OF_THE_STORE = (
    *(f"tests/integration/test_{name}.py" for name in (
        "api_appender", "api_lists", "api_schema", "event_order", "housekeeping", "late_log", "log", "sequences",
        "sink", "sink_catalog", "sink_open", "sink_sequence",
    )),
    *(f"tests/api/test_{name}.py" for name in (
        "audit", "changes", "column_names", "late_records", "lineage", "reads", "relations", "row_filters", "slow_reads", "versioned_reads",
    )),
)  # fmt: skip
"""Every kind of statement that the service, the driver and the sink make."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "programs", named_servers() or [pytest.param(None, marks=pytest.mark.skip(f"{VARIABLE} names no server"))]
)
def test_the_store_works_on_another_version_of_postgres(programs: Path) -> None:
    with running(programs) as dsn:
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"TEST_DATABASE_URL": dsn}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-q",
            "--no-header",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            *OF_THE_STORE,
        ]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]

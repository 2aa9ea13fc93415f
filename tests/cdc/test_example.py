"""The worked example of docs/guides/change-data.md, as `make cdc-example` runs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cdc.debezium_server import why_not
from tests.cdc.shop import programs
from tests.conftest import ROOT
from tests.kafka import broker

pytestmark = [
    pytest.mark.cdc,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    pytest.mark.skipif(broker.why_not() is not None, reason=broker.why_not() or ""),
    pytest.mark.skipif(programs() is None, reason="there is no Postgres with logical decoding"),
]


def test_the_example_answers_each_click_with_what_the_database_said_then() -> None:
    done = subprocess.run([sys.executable, "-m", "examples.change_data"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Each click got what was true at its moment, once." in done.stdout
    assert done.stdout.count("yes") == 6

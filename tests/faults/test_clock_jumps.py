"""The host's clock set an hour ahead and back while queries run: results of event time are the same, and what waits for the clock goes on.

Needs libfaketime (Debian's package ``libfaketime``, or ``LIBFAKETIME`` with the path of ``libfaketimeMT.so.1``). Every process of the service
sees the false clock; the database does in one case and does not in the other.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.embedded_postgres import EmbeddedPostgres
from tests.faults.disturbed import Disturbed, is_audited_clean

CANDIDATES = [os.environ.get("LIBFAKETIME", ""), *map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))]
LIBRARY = next((path for path in CANDIDATES if path and Path(path).exists()), None)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed"),
]
JUMPS_S = (3_600, 0, -3_600, 0, 3_600, -3_600)
STAYS_S = 15.0


@pytest.fixture
def steady_database() -> Iterator[str]:
    """A database whose clock is the host's."""
    with tempfile.TemporaryDirectory(prefix="slackwater-pg-", ignore_cleanup_errors=True) as directory:
        server = EmbeddedPostgres(Path(directory) / "postgres")
        try:
            yield server.start()
        finally:
            server.stop()


@pytest.fixture
def offset() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "offset"
        path.write_text("+0\n")
        yield path


@pytest.mark.parametrize(
    "is_database_steady", [True, False], ids=["the database's clock is right", "the database's clock jumps too"]
)
def test_results_are_exact_whatever_the_clock_says(
    offset: Path, is_database_steady: bool, request: pytest.FixtureRequest
) -> None:
    assert LIBRARY is not None
    settings = {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    if is_database_steady:
        settings["SLACKWATER_DATABASE_URL"] = request.getfixturevalue("steady_database")

    def disturb(given: Disturbed) -> None:
        for jump_s in JUMPS_S:
            offset.write_text(f"{jump_s:+d}\n")
            time.sleep(STAYS_S)
            given.wait_until_read(f"the clock is {jump_s:+d} s off")

    is_audited_clean(disturb, settings=settings)

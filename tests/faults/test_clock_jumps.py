"""The host's clock set an hour ahead and back while queries run: results of event time are the same, and what waits for the clock goes on.

Needs a C compiler, for ``jumping_clock.c`` moves the clock of every process of the service; that of the database in one case, not in the other.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disturbed import Disturbed, is_audited_clean

COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler"),
]
JUMPS_S = (3_600, 0, -3_600, 0, 3_600, -3_600)
STAYS_S = 15.0


class Clock:
    """The clock of the processes that are started with ``settings``."""

    def __init__(self, directory: Path) -> None:
        library = directory / "jumping_clock.so"
        source = Path(__file__).with_name("jumping_clock.c")
        subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        self._offset = directory / "offset"
        self._offset.write_bytes(struct.pack("q", 0))
        self.settings = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(self._offset)}

    def set_off(self, seconds: int) -> None:
        """Let it be so many seconds off; in place, for it is mapped."""
        with self._offset.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", seconds))


@pytest.fixture
def clock() -> Iterator[Clock]:
    with tempfile.TemporaryDirectory() as directory:
        yield Clock(Path(directory))


@pytest.mark.parametrize(
    "is_database_steady", [True, False], ids=["the database's clock is right", "the database's clock jumps too"]
)
def test_results_are_exact_whatever_the_clock_says(
    clock: Clock, is_database_steady: bool, request: pytest.FixtureRequest
) -> None:
    settings = dict(clock.settings)
    if is_database_steady:
        settings["SLACKWATER_DATABASE_URL"] = request.getfixturevalue("database")

    def disturb(given: Disturbed) -> None:
        for jump_s in JUMPS_S:
            clock.set_off(jump_s)
            # Batches and renewals of leases pass meanwhile; nothing waits for it.
            time.sleep(STAYS_S)
            given.wait_until_read(f"the clock is {jump_s:+d} s off")

    is_audited_clean(disturb, settings=settings)

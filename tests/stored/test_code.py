"""The code of the version before works on the schema of this one, side by side with this one's; or it says that it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

from app.settings.settings import ENV_PREFIX
from engine.commit.task_states import LAYOUT_FORMAT
from engine.operators.tasks.task import STATE_FORMAT
from engine.processes.python_processes import SAFE_PATH_VARIABLE
from engine.runtime.planning.cursors import CURSOR_FORMAT
from tests.stored.archive import unpack
from tests.stored.code import newest, revision_of
from tests.stored.tour import tour

FORMATS = {"state": 3, "layout": 4, "cursor": 1}
SINCE = "0023"
"""The revision of the schema since which these formats are written."""


def supported(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        (oldest,) = connection.execute("SELECT oldest_code FROM slackwater.schema_support").fetchone() or ("",)
        return str(oldest)


async def test_the_version_before_works_beside_this_one_or_refuses(empty: str, tmp_path: Path) -> None:
    before = tmp_path / "before"
    unpack(newest(), before)
    command = [sys.executable, "-P", "-m", "tests.stored.tour", empty, str(tmp_path), "look:ours", "make:theirs"]
    # Settings of this version's tests are not known to the version before.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    environment = {**inherited, "PYTHONPATH": str(before), SAFE_PATH_VARIABLE: "1"}
    # The database is the one of the version before, as it is where a service is upgraded.
    migration = f"from app.db.database import migrate; migrate({empty!r})"
    subprocess.run(
        [sys.executable, "-P", "-c", migration], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True
    )
    async with tour(empty, tmp_path) as ours:
        await ours.make("ours")
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if revision_of(newest()) < supported(empty):
            assert (done.returncode, "a newer version has upgraded it" in done.stderr) == (1, True), done.stderr
            return
        assert done.returncode == 0, done.stdout + done.stderr
        await ours.look("theirs")
        await ours.look("ours")


def test_code_that_cannot_read_a_newer_format_does_not_run_beside_its_writer(dsn: str) -> None:
    """Whoever raises a format adds a migration without ``oldest_code`` (it may change nothing), and notes its revision in ``SINCE``.

    Else a driver of the version before could take a query over whose state it cannot read, and the query would fail.
    """
    assert {"state": STATE_FORMAT, "layout": LAYOUT_FORMAT, "cursor": CURSOR_FORMAT} == FORMATS
    assert supported(dsn) >= SINCE

"""``python -m tests.faults.short_batches``: the real driver, whose batches hold ``FAULTS_BATCH_ROWS`` records instead of a million.

So a backlog of some thousand records is cut as one of many millions is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path

import psutil
import psycopg

from app.catalog.drivers.sql import forget_driver
from app.driver.entry import main
from app.driver.launches import spark_runner
from app.driver.supervisor.process_group import end_session
from engine.runtime.launches.run_options import RunOptions
from tests.faults.service import Driverless, kill_workers_among

BATCH_ROWS = "FAULTS_BATCH_ROWS"


class ShortBatchesDriver:
    """The driver of a service that has none of its own."""

    def __init__(self, running: Driverless, dsn: str, batch_rows: int) -> None:
        self._id = uuid.uuid4()
        self._dsn = dsn
        root = Path(__file__).resolve().parents[2]
        environment = running.environment() | {
            "SLACKWATER_DATABASE_URL": dsn, "PYTHONPATH": str(root), BATCH_ROWS: str(batch_rows),
        }  # fmt: skip
        with (running.data_dir / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.faults.short_batches", "--driver-id", str(self._id)]
            self._process = subprocess.Popen(command, env=environment, cwd=root, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """``kill -9`` its whole session, and give back the leases, as a supervisor does."""
        assert self._process.poll() is None, "the driver has ended by itself"
        self.end()

    def kill_workers(self) -> None:
        """``kill -9`` its Python workers."""
        kill_workers_among(psutil.Process(self._process.pid).children(recursive=True))

    def end(self) -> None:
        """See to it that nothing is left."""
        assert end_session(self._process.pid, 30)
        self._process.wait()
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            forget_driver(connection, self._id)


if __name__ == "__main__":
    assert hasattr(spark_runner, "RunOptions")
    setattr(spark_runner, "RunOptions", partial(RunOptions, max_rows=int(os.environ[BATCH_ROWS])))  # noqa: B010 - as armed_driver does
    main(spark_runner.SparkRunner)

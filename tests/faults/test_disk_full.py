"""The disk of checkpoints, state and the driver's log full, then that of the database: told, survived, and gone on from by itself once
there is space."""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.faults.disturbed import Disturbed, is_audited_clean
from tests.faults.service import Service, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root alone"),
]

NOTICED_S = 180.0
CHUNK = bytes(64 * 1024)


class _OnSmallDisk(Service):
    """A service, a part of whose data is on a file system of its own."""

    below = "."
    size_mb = 256
    _is_mounted = False

    @property
    def disk(self) -> Path:
        return self.data_dir / self.below

    def start(self) -> None:
        if not self._is_mounted:
            self.disk.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size_mb}m", "slackwater-test", str(self.disk)], check=True)
            self._is_mounted = True
        super().start()

    def end(self) -> None:
        super().end()
        if self._is_mounted:
            subprocess.run(["umount", "-l", str(self.disk)], check=True)

    def fill(self, left_bytes: int = 0) -> None:
        """Leave so much space, as far as others let it be; what is left over in the end is rounded down to a page."""
        space = os.statvfs(self.disk)
        wanted = space.f_bavail * space.f_frsize - left_bytes
        with (self.disk / "filler").open("ab", buffering=0) as filler:
            try:
                while wanted > 0:
                    wanted -= filler.write(CHUNK[: max(0, min(len(CHUNK), wanted))])
            except OSError:
                # As full as it gets.
                return

    def take_some_more(self) -> None:
        """Leave a page less than there is."""
        space = os.statvfs(self.disk)
        self.fill(max(0, (space.f_bavail - 1) * space.f_frsize))

    def free(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)


class CheckpointsOnSmallDisk(_OnSmallDisk):
    """Everything but the database: checkpoints, state, Spark's scratch files, the driver's log."""


class DatabaseOnSmallDisk(_OnSmallDisk):
    below = "postgres"
    size_mb = 512


def errors_of(given: Disturbed) -> set[str]:
    """Return the codes of the queries' errors; all of them say what is the matter."""
    errors = [error for name in given.queries if (error := given.client.query(name).status()["error"]) is not None]
    unclear = [error for error in errors if error["code"] == "internal_error"]
    assert unclear == []
    return {error["code"] for error in errors}


def is_told(given: Disturbed, disk: _OnSmallDisk) -> bool:
    """Whether a query says that the disk is full. What a query keeps hardly grows, so it is not waited for that alone."""
    disk.take_some_more()
    return "disk_full" in errors_of(given)


def test_results_are_exact_after_the_disk_of_the_checkpoints_was_full(database: str) -> None:
    def disturb(given: Disturbed) -> None:
        disk = given.running
        assert isinstance(disk, CheckpointsOnSmallDisk)
        for left_bytes in (0, 100_000, 0, 1_000_000):
            # The moment is what is random here; nothing waits for it.
            time.sleep(given.chance.uniform(0, 6))
            disk.fill(left_bytes)
            until("a query says that the disk is full", partial(is_told, given, disk), NOTICED_S)
            print(f"{left_bytes} bytes left: {errors_of(given)}")
            time.sleep(given.chance.uniform(0, 10))
            disk.free()
            given.wait_until_read(f"full but for {left_bytes} bytes")

    is_audited_clean(disturb, kind=CheckpointsOnSmallDisk, settings={"SLACKWATER_DATABASE_URL": database})


def test_results_are_exact_after_the_disk_of_the_database_was_full() -> None:
    def disturb(given: Disturbed) -> None:
        disk = given.running
        assert isinstance(disk, DatabaseOnSmallDisk)
        for left_bytes in (0, 200_000, 0):
            time.sleep(given.chance.uniform(0, 6))
            repeated = given.feeder.repeated
            disk.fill(left_bytes)
            until("appends are refused", lambda before=repeated: given.feeder.repeated > before, NOTICED_S)
            time.sleep(given.chance.uniform(0, 10))
            disk.free()
            given.wait_until_read(f"full but for {left_bytes} bytes")

    is_audited_clean(disturb, kind=DatabaseOnSmallDisk)

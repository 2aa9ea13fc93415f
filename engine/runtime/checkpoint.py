"""What a query keeps in files beside its segments: scratch files of the launch that runs.

``<root>/<checkpoint id>/run-<epoch>-<first batch>`` says in one file which batch the launch of that epoch has planned. No recovery reads it;
it only tells, once a driver is gone, whether a batch was under way. Where state is in an object store, only the host of that launch has it.
Beside it are the segments (``engine.state.segments.directories``), in ``segments``, after a change of the number of tasks in
``segments-<n>-<epoch>``.

A launch removes what launches before it left, and nothing of one behind it: it may be frozen, and wake up when others are long at work.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.state.segments.ports import FIRST_SEGMENTS

_RUN: Final = re.compile(r"run-(\d{10})-(\d+)")
_PLANNED: Final = "planned"


def begin_run(directory: Path, epoch: int, first_batch: int) -> Path:
    """Make the scratch directory of a launch; those of launches before are removed.

    Args:
        directory: of the checkpoint.
        epoch: the launch.
        first_batch: number of its first batch.
    """
    for left, match in _runs(directory):
        if int(match[1]) <= epoch:
            shutil.rmtree(left, ignore_errors=True)
    run = directory / f"run-{epoch:010d}-{first_batch}"
    run.mkdir(parents=True, exist_ok=True)
    return run


def note_planned(run: Path, batch_id: int) -> None:
    """Write down which batch is planned, before anything of it is done.

    Args:
        run: scratch directory of the launch.
        batch_id: counted per checkpoint.
    """
    file = os.open(run / _PLANNED, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, f"{batch_id:020d}".encode(), 0)
    finally:
        os.close(file)


def forget_planned(run: Path) -> None:
    """Take back what was noted, where nothing of it is at work any more."""
    (run / _PLANNED).unlink(missing_ok=True)


def time_since_planned(run: Path) -> float | None:
    """Return how many seconds ago a launch has planned its newest batch; None for none."""
    try:
        return time.time() - (run / _PLANNED).stat().st_mtime
    except FileNotFoundError:
        return None


def run_of(directory: Path, epoch: int) -> Path | None:
    """Return the scratch directory of a launch; None where this host has none of it.

    Args:
        directory: of the checkpoint.
        epoch: the launch.
    """
    return next((path for path, match in _runs(directory) if int(match[1]) == epoch), None)


def planned_batch(run: Path) -> int | None:
    """Return the newest batch that a launch has planned; None for none.

    Args:
        run: scratch directory of the launch.
    """
    with suppress(FileNotFoundError, ValueError):
        return int((run / _PLANNED).read_text())
    return None


def _runs(directory: Path) -> Iterable[tuple[Path, re.Match[str]]]:
    for path in directory.glob("run-*"):
        if match := _RUN.fullmatch(path.name):
            yield path, match


def segments_of(generation: int, epoch: int) -> str:
    """Return the name of the folder for another number of tasks that a launch makes."""
    return f"{FIRST_SEGMENTS}-{generation}-{epoch}"


def discard_scratch(directory: Path) -> None:
    """Remove everything of a checkpoint but its segments: a database that is put back may name them (``engine.commit.history.retention``).

    Args:
        directory: of the checkpoint.

    Raises:
        OSError: something cannot be removed.
    """
    for path in directory.iterdir():
        if not path.name.startswith(FIRST_SEGMENTS):
            shutil.rmtree(path)
    with suppress(OSError):
        directory.rmdir()

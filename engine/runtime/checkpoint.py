"""A query's files beside its segments: scratch files of the running launch.

``<root>/<checkpoint id>/run-<epoch>-<first batch>`` holds one file with the batch that the launch of this epoch has planned. No recovery
reads it. It only shows, once a driver is gone, whether a batch was under way. If state is in an object store, only the launch's host has
the file. The segments (``engine.state.segments.directories``) are beside it in ``segments``, or in ``segments-<n>-<epoch>`` after a change
of the number of tasks.

A launch removes the files of earlier launches, but never those of later ones: it may be frozen, and wake up while later launches work.
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
    """Make the scratch directory of a launch; remove those of earlier launches."""
    for left, match in _runs(directory):
        if int(match[1]) <= epoch:
            shutil.rmtree(left, ignore_errors=True)
    run = directory / f"run-{epoch:010d}-{first_batch}"
    run.mkdir(parents=True, exist_ok=True)
    return run


def note_planned(run: Path, batch_id: int) -> None:
    """Record which batch is planned, before any work on it."""
    file = os.open(run / _PLANNED, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(file, f"{batch_id:020d}".encode(), 0)
    finally:
        os.close(file)


def forget_planned(run: Path) -> None:
    """Remove the record when no work on the batch is left."""
    (run / _PLANNED).unlink(missing_ok=True)


def time_since_planned(run: Path) -> float | None:
    """Return the seconds since a launch planned its newest batch; None if it planned none."""
    try:
        return time.time() - (run / _PLANNED).stat().st_mtime
    except FileNotFoundError:
        return None


def run_of(directory: Path, epoch: int) -> Path | None:
    """Return the scratch directory of a launch; None if this host has none."""
    return next((path for path, match in _runs(directory) if int(match[1]) == epoch), None)


def planned_batch(run: Path) -> int | None:
    """Return the newest batch that a launch has planned; None if it planned none."""
    with suppress(FileNotFoundError, ValueError):
        return int((run / _PLANNED).read_text())
    return None


def _runs(directory: Path) -> Iterable[tuple[Path, re.Match[str]]]:
    for path in directory.glob("run-*"):
        if match := _RUN.fullmatch(path.name):
            yield path, match


def segments_of(generation: int, epoch: int) -> str:
    """Return the name of the segment folder that a launch makes for another number of tasks."""
    return f"{FIRST_SEGMENTS}-{generation}-{epoch}"


def discard_scratch(directory: Path) -> None:
    """Remove everything of a checkpoint but its segments: a restored database may name them (``engine.commit.history.segment_collector``).

    Raises:
        OSError: something cannot be removed.
    """
    for path in directory.iterdir():
        if not path.name.startswith(FIRST_SEGMENTS):
            shutil.rmtree(path)
    with suppress(OSError):
        directory.rmdir()

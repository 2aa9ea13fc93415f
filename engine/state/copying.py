"""Copying the segments that manifests name to the directory of another query. Segments never change, so a hard link is a copy."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from engine.state.files import sync_directory
from engine.state.ports import SEGMENT_SUFFIX

NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Another file system, one without hard links, or too many of them: the content is copied."""

TOLD_EVERY: Final = 500
"""Files between two signs of life: a transaction that is silent for a minute is ended by the database."""


class SegmentsGone(Exception):
    """A segment is not there: the state has gone on since its manifest was read, or it is damaged.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"the state file {path} is missing")
        self.path = path


def copy_segments(source: Path, target: Path, named: Mapping[tuple[int, int], Collection[str]], tell: Callable[[], None]) -> int:
    """Copy segments; when this returns they are on the disk.

    Args:
        source: the folder of segments that has them.
        target: the folder that gets them; made if it does not exist.
        named: stage and task → ids of its segments.
        tell: called now and then, in the caller's thread.

    Returns:
        How many there are.

    Raises:
        SegmentsGone: one is not there. What was copied so far stays.
        OSError: the disk does not take them.
    """
    done = 0
    for (stage, task), segments in named.items():
        folder = target / str(stage) / str(task)
        folder.mkdir(parents=True, exist_ok=True)
        for segment in segments:
            name = f"{segment}{SEGMENT_SUFFIX}"
            _copy(source / str(stage) / str(task) / name, folder / name)
            done += 1
            if done % TOLD_EVERY == 0:
                tell()
        for directory in (folder, folder.parent, target):
            sync_directory(directory)
    return done


def _copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileNotFoundError as error:
        raise SegmentsGone(source) from error
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        _copy_content(source, target)


def _copy_content(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as content, target.open("wb") as copy:
            shutil.copyfileobj(content, copy)
            copy.flush()
            os.fsync(copy.fileno())
    except FileNotFoundError as error:
        raise SegmentsGone(source) from error

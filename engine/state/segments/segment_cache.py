"""A directory with copies of segments that are kept elsewhere: bounded, shared by the processes of a host, of no consequence.

Files appear whole, under the names of the segments. What was used least lately goes when there is too much; a file that is mapped goes with its
last mapping. Any file, or all of them, may be removed at any time.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import DiskFull, ExternalError
from engine.state.segments.files import NO_SPACE

LEFT_SHARE: Final = 0.8
"""How much of the bound is left after a look at it, so that looks are rare."""

LOOKED_AT_SHARE: Final = 0.05
"""A process looks again when it has added this share of the bound."""

_DRAFT: Final = ".draft-"
_STALE_S: Final = 3_600
"""A draft that is older was left by a process that was killed."""

_added: dict[Path, int] = {}
"""Directory → bytes that this process has added since it last looked."""


@dataclass(frozen=True, slots=True)
class SegmentCache:
    """Where the copies are, and how much they may take. It pickles.

    Attributes:
        directory: made when it is first used.
        most_bytes: bound of all files together; what processes add between two looks comes on top.
    """

    directory: Path
    most_bytes: int

    def put(self, path: Path, content: bytes | memoryview) -> None:
        """Keep a copy, and make room for it.

        Args:
            path: below the directory.
            content: of the segment.

        Raises:
            DiskFull: there is no space, also when everything else is gone.
            ExternalError: it cannot be written.
        """
        for is_last in (False, True):
            try:
                _write(path, content)
                break
            except OSError as error:
                if error.errno in NO_SPACE and not is_last:
                    self._make_room(0)
                    continue
                kind = DiskFull if error.errno in NO_SPACE else ExternalError
                raise kind(
                    f"{path} cannot be written: {error.strerror}. SLACKWATER_STATE_CACHE_DIR names another directory"
                ) from error
        added = _added.get(self.directory, self.most_bytes) + len(content)
        if added >= self.most_bytes * LOOKED_AT_SHARE:
            self._make_room(int(self.most_bytes * LEFT_SHARE), above=self.most_bytes)
            added = 0
        _added[self.directory] = added

    def _make_room(self, left_bytes: int, above: int = 0) -> None:
        """Remove what was used least lately until so much is left; nothing where there is not more than ``above``."""
        with self._alone() as is_alone:
            if not is_alone:
                return
            files = sorted(_files(self.directory))
            total = sum(size for _, size, _ in files)
            if total <= above:
                return
            for _, size, path in files:
                if total <= left_bytes:
                    return
                with suppress(OSError):
                    path.unlink()
                total -= size

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep other processes from making room at the same time; yields False where one does."""
        handle = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)


def note_use(path: Path) -> None:
    """Note that a copy is used now. The time of its last change stays: it tells whether its checksum was looked at."""
    with suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _write(path: Path, content: bytes | memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{_DRAFT}{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _files(directory: Path) -> Iterator[tuple[int, int, Path]]:
    """Give when each copy was last used, its size and where it is; drafts that nobody finishes count as never used."""
    stale_ns = time.time_ns() - _STALE_S * 10**9
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            with suppress(FileNotFoundError):
                found = path.stat()
                if not name.startswith("."):
                    yield found.st_atime_ns, found.st_size, path
                elif name.startswith(_DRAFT) and found.st_mtime_ns < stale_ns:
                    yield 0, found.st_size, path

"""Segments of a task as Arrow files in a directory: written and synced before the manifest that names them is committed.

Nothing is removed here: a file that no manifest names any more, or that an attempt left which never committed, is the collector's
(``engine.commit.history.segment_collector``).

A segment's id ends with the CRC-32 of its file, so the manifest that names it says what it must hold. A process checks each file once,
when it first opens it: 0.35 s per gigabyte, which at that moment must be read anyway.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import polars as pl
import pyarrow as pa

from engine.errors import STATE_CURE, DiskFull, ExternalError, StateCorrupt
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.state.segments.ports import SEGMENT_SUFFIX, checksum_of, new_id

CACHED_SEGMENTS: Final = 256
"""Open segments per store. They are memory-mapped: the pages are the kernel's to keep, this only bounds mappings."""

KEPT_BYTES: Final = 256 * 1024
"""A saved frame up to this size stays in memory: mapping a file costs more than the few megabytes that all of them take."""

CHECKED_FILES: Final = 65_536
"""Files that a process remembers to have checked, about 15 MB of names."""

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, no larger file allowed."""

_checked: OrderedDict[str, tuple[int, int, int]] = OrderedDict()
"""Path → what was there when it was checked: inode, size, time of the last change."""


class FileSegmentStore:
    """Immutable Arrow files, memory-mapped for reading.

    Args:
        root: the task's directory; made with the first segment.
        cached_segments: how many segments stay open.
        hashing: see ``SegmentStore``.
    """

    def __init__(self, root: Path, cached_segments: int = CACHED_SEGMENTS, hashing: KeyHash = UNSEEDED) -> None:
        self.hashing = hashing
        self._root = root
        self._cached = cached_segments
        self._open: OrderedDict[str, pl.DataFrame] = OrderedDict()

    @property
    def memory_bytes(self) -> int:
        """About how much memory the open segments take; those that are mapped take none of this process's own."""
        sizes = [int(frame.estimated_size()) for frame in self._open.values()]
        return sum(size for size in sizes if size <= KEPT_BYTES)

    def save(self, frame: pl.DataFrame) -> str:
        """See ``SegmentStore``.

        Raises:
            DiskFull: nothing of the segment is left.
        """
        frame = frame.rechunk()
        encoded = io.BytesIO()
        frame.write_ipc(encoded, compression="uncompressed", record_batch_size=max(frame.height, 1))
        content = encoded.getbuffer()
        segment_id = new_id(content)
        self._write(self._path(segment_id), content)
        if frame.estimated_size() <= KEPT_BYTES:
            self._remember(segment_id, frame)
        return segment_id

    def load(self, segment_id: str) -> pl.DataFrame:
        cached = self._open.get(segment_id)
        if cached is not None:
            self._open.move_to_end(segment_id)
            return cached
        path = self._path(segment_id)
        try:
            _check(path)
            frame = _mapped(path)
        except (OSError, pa.ArrowInvalid) as error:
            # Too many open files, a file system that is away: only what is gone, or what Arrow cannot read, is damage.
            if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
                raise ExternalError(
                    f"the state file {path} cannot be read now: {error.strerror}. The query goes on by itself once it can"
                ) from error
            raise StateCorrupt(f"the state file {path} cannot be read: {error}. {STATE_CURE}") from error
        self._remember(segment_id, frame)
        return frame

    def release(self, segment_ids: Collection[str]) -> None:
        for segment_id in segment_ids:
            self._open.pop(segment_id, None)

    def _remember(self, segment_id: str, frame: pl.DataFrame) -> None:
        self._open[segment_id] = frame
        if len(self._open) > self._cached:
            self._open.popitem(last=False)

    def _write(self, path: Path, content: bytes | memoryview) -> None:
        try:
            with self._made(path) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            sync(self._root)
        except OSError as error:
            # What is left of it would only keep the disk full.
            path.unlink(missing_ok=True)
            if error.errno in NO_SPACE:
                raise DiskFull(
                    f"{path} cannot be written: {error.strerror}. Free space: the next attempt goes on from the last commit"
                ) from error
            raise

    def _made(self, path: Path) -> BinaryIO:
        try:
            return path.open("wb")
        except FileNotFoundError:  # the task's first one, or the collector took the directory away, for it was empty
            make_directory(self._root)
            return path.open("wb")

    def _path(self, segment_id: str) -> Path:
        return self._root / f"{segment_id}{SEGMENT_SUFFIX}"


def make_directory(directory: Path) -> None:
    """Make a directory and those above it; return when their names are on the disk."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync(directory.parent)


def replace(path: Path, content: bytes) -> None:
    """Write a file as a whole, in place of what is there: who reads it meanwhile finds the one or the other. Not synced."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Return when what a file holds, or the names in a directory, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check(path: Path) -> None:
    """Read a file once per process and compare it with the checksum in its name."""
    checksum, name = checksum_of(path.stem), str(path)
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        found_now = (status.st_ino, status.st_size, status.st_mtime_ns)
        if _checked.get(name) == found_now:
            return
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if status.st_size else b""
        found = f"{zlib.crc32(content):08x}"
    if found != checksum:
        raise StateCorrupt(f"the state file {path} is damaged: its checksum is {found}, written was {checksum}. {STATE_CURE}")
    _checked[name] = found_now
    if len(_checked) > CHECKED_FILES:
        _checked.popitem(last=False)


def _mapped(path: Path) -> pl.DataFrame:
    """Map a file without reading it; Polars' own reader copies."""
    with pa.memory_map(str(path)) as source:
        return frame_of(pa.ipc.open_file(source), path.stem)


def frame_of(reader: pa.RecordBatchFileReader | pa.RecordBatchStreamReader, segment_id: str) -> pl.DataFrame:
    """Return what a reader of Arrow's has, without a copy.

    Raises:
        StateCorrupt: it is no table.
    """
    frame = pl.from_arrow(reader.read_all())
    if not isinstance(frame, pl.DataFrame):
        raise StateCorrupt(f"segment {segment_id} is not a table. {STATE_CURE}")
    return frame

"""Segments as Arrow files below a directory: written and synced before the manifest that names them is committed.

One directory belongs to one task. Per batch: ``begin``, then any number of saves, loads and releases, then the caller commits
the manifest, ``released`` included. A segment that a manifest stopped naming stays for ``keep_manifests`` more batches. What the committed
manifest neither names nor has released was left by an attempt that never committed; ``sweep`` removes it.

A segment's id ends with the CRC-32 of its file, so the manifest that names it says what it must hold. A process checks each file once,
when it first opens it: 0.35 s per gigabyte, which at that moment must be read anyway. Ids without one, of earlier versions, are not checked.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa

from engine.core.hashing import UNSEEDED, KeyHash
from engine.errors import STATE_CURE, DiskFull, ExternalError, StateCorrupt

CACHED_SEGMENTS: Final = 256
"""Open segments per store. They are memory-mapped: the pages are the kernel's to keep, this only bounds mappings."""

KEPT_BYTES: Final = 256 * 1024
"""A saved frame up to this size stays in memory: mapping a file costs more than the few megabytes that all of them take."""

CHECKED_FILES: Final = 65_536
"""Files that a process remembers to have checked, about 15 MB of names."""

CHECKSUM_AT: Final = len("000000000000-00000000-")
"""Where an id's checksum begins."""

SEGMENT_SUFFIX: Final = ".arrow"
_DEAD: Final = ".dead"
"""Lists of released segments that earlier versions kept beside them."""

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, no larger file allowed."""

Released = Mapping[str, Sequence[str]]
"""Batch (text, as JSON has it) → ids of the segments that its manifest stopped naming."""

_checked: OrderedDict[str, tuple[int, int, int]] = OrderedDict()
"""Path → what was there when it was checked: inode, size, time of the last change."""


class FileSegmentStore:
    """Immutable Arrow files, memory-mapped for reading.

    Args:
        root: the task's directory; made if it does not exist.
        keep_manifests: for how many batches a released segment stays.
        cached_segments: how many segments stay open.
        hashing: see ``SegmentStore``.
        released: as the committed manifest has it.
    """

    def __init__(
        self,
        root: Path,
        keep_manifests: int,
        cached_segments: int = CACHED_SEGMENTS,
        hashing: KeyHash = UNSEEDED,
        released: Released | None = None,
    ) -> None:
        self.hashing = hashing
        self._root = root
        self._keep = keep_manifests
        self._cached = cached_segments
        self._batch = 0
        self._open: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._released = {batch: list(ids) for batch, ids in (released or {}).items()}
        root.mkdir(parents=True, exist_ok=True)

    @property
    def released(self) -> Released:
        """What the manifest of this batch has to say, so that later ones know what to remove."""
        return self._released

    @property
    def memory_bytes(self) -> int:
        """About how much memory the open segments take; those that are mapped take none of this process's own."""
        sizes = [int(frame.estimated_size()) for frame in self._open.values()]
        return sum(size for size in sizes if size <= KEPT_BYTES)

    def begin(self, batch_id: int) -> None:
        """Start a batch: remove what was released so long ago that nobody asks for it. That it was is committed."""
        self._batch = batch_id
        for batch in [batch for batch in self._released if int(batch) < batch_id - self._keep]:
            self._remove(self._released.pop(batch))

    def save(self, frame: pl.DataFrame) -> str:
        """See ``SegmentStore``.

        Raises:
            DiskFull: nothing of the segment is left.
        """
        frame = frame.rechunk()
        encoded = io.BytesIO()
        frame.write_ipc(encoded, compression="uncompressed", record_batch_size=max(frame.height, 1))
        content = encoded.getbuffer()
        segment_id = f"{self._batch:012d}-{uuid.uuid4().hex[:8]}-{zlib.crc32(content):08x}"
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
        if not segment_ids:
            return
        self._released.setdefault(str(self._batch), []).extend(sorted(segment_ids))
        for segment_id in segment_ids:
            self._open.pop(segment_id, None)

    def sweep(self, named: Collection[str]) -> int:
        """Remove what attempts that never committed have left in earlier batches.

        Args:
            named: every segment the newest committed manifest names (``named_segments``).

        Returns:
            How many files were removed. Files of the current batch stay: another attempt at it may be writing them.
        """
        kept = {*named}.union(*self._released.values())
        for path in self._root.glob(f"*{_DEAD}"):
            path.unlink(missing_ok=True)
        orphans = [
            path.stem
            for path in self._root.glob(f"*{SEGMENT_SUFFIX}")
            if path.stem not in kept and int(path.stem[:12]) < self._batch
        ]
        self._remove(orphans)
        return len(orphans)

    def _remember(self, segment_id: str, frame: pl.DataFrame) -> None:
        self._open[segment_id] = frame
        if len(self._open) > self._cached:
            self._open.popitem(last=False)

    def _remove(self, segment_ids: Collection[str]) -> None:
        for segment_id in segment_ids:
            self._open.pop(segment_id, None)
            path = self._path(segment_id)
            path.unlink(missing_ok=True)
            _checked.pop(str(path), None)

    def _write(self, path: Path, content: bytes | memoryview) -> None:
        try:
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self._root)
        except OSError as error:
            # What is left of it would only keep the disk full.
            path.unlink(missing_ok=True)
            if error.errno in NO_SPACE:
                raise DiskFull(
                    f"{path} cannot be written: {error.strerror}. Free space: the next attempt goes on from the last commit"
                ) from error
            raise

    def _path(self, segment_id: str) -> Path:
        return self._root / f"{segment_id}{SEGMENT_SUFFIX}"


def sync_directory(directory: Path) -> None:
    """Return when the names in a directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check(path: Path) -> None:
    """Read a file once per process and compare it with the checksum in its name."""
    checksum, name = path.stem[CHECKSUM_AT:], str(path)
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        found_now = (status.st_ino, status.st_size, status.st_mtime_ns)
        if not checksum or _checked.get(name) == found_now:
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
        frame = pl.from_arrow(pa.ipc.open_file(source).read_all())
    if not isinstance(frame, pl.DataFrame):
        raise StateCorrupt(f"segment {path.stem} is not a table")
    return frame

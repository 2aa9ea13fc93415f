"""Segments as Arrow files below a directory: written and synced before the manifest that names them is committed.

One directory belongs to one task. Per batch: ``begin``, then any number of saves, loads and releases, then the caller commits
the manifest. A segment that a manifest stopped naming stays for ``keep_manifests`` more batches, for a restart from an older one;
that list survives in small files ``<batch>.dead``. What neither the manifest nor such a list names was left by an attempt that
never committed; ``sweep`` removes it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow as pa

from engine.errors import StateCorrupt

CACHED_SEGMENTS: Final = 256
"""Open segments per store. They are memory-mapped: the pages are the kernel's to keep, this only bounds mappings."""

KEPT_BYTES: Final = 256 * 1024
"""A saved frame up to this size stays in memory: mapping a file costs more than the few megabytes that all of them take."""

_SEGMENT: Final = ".arrow"
_DEAD: Final = ".dead"


class FileSegmentStore:
    """Immutable Arrow files, memory-mapped for reading.

    Args:
        root: the task's directory; made if it does not exist.
        keep_manifests: how many manifests before the newest can still be asked for; as many as the state store retains versions.
        cached_segments: how many segments stay open.
    """

    def __init__(self, root: Path, keep_manifests: int, cached_segments: int = CACHED_SEGMENTS) -> None:
        self._root = root
        self._keep = keep_manifests
        self._cached = cached_segments
        self._batch = 0
        self._open: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._dead: set[str] = set()
        root.mkdir(parents=True, exist_ok=True)

    def begin(self, batch_id: int) -> None:
        """Start a batch, or repeat one: forget what a failed attempt released, remove what no manifest can name any more."""
        self._batch = batch_id
        self._dead = set()
        for path in self._root.glob(f"*{_DEAD}"):
            released_in = int(path.stem)
            if released_in >= batch_id:
                path.unlink(missing_ok=True)
            elif released_in < batch_id - self._keep:
                self._remove(json.loads(path.read_bytes()))
                path.unlink(missing_ok=True)

    def save(self, frame: pl.DataFrame) -> str:
        segment_id = f"{self._batch:012d}-{uuid.uuid4().hex[:8]}"
        frame = frame.rechunk()
        with self._path(segment_id).open("wb") as file:
            frame.write_ipc(file, compression="uncompressed", record_batch_size=max(frame.height, 1))
            file.flush()
            os.fsync(file.fileno())
        self._sync_directory()
        if frame.estimated_size() <= KEPT_BYTES:
            self._remember(segment_id, frame)
        return segment_id

    def load(self, segment_id: str) -> pl.DataFrame:
        cached = self._open.get(segment_id)
        if cached is not None:
            self._open.move_to_end(segment_id)
            return cached
        try:
            frame = _mapped(self._path(segment_id))
        except (OSError, pa.ArrowInvalid) as error:
            raise StateCorrupt(f"segment {segment_id} cannot be read: {error}") from error
        self._remember(segment_id, frame)
        return frame

    def release(self, segment_ids: Collection[str]) -> None:
        if not segment_ids:
            return
        self._dead.update(segment_ids)
        for segment_id in segment_ids:
            self._open.pop(segment_id, None)
        with (self._root / f"{self._batch:012d}{_DEAD}").open("wb") as file:
            file.write(json.dumps(sorted(self._dead)).encode())
            file.flush()
            os.fsync(file.fileno())
        self._sync_directory()

    def sweep(self, named: Collection[str]) -> int:
        """Remove what attempts that never committed have left in earlier batches.

        Args:
            named: every segment the newest committed manifest names (``named_segments``).

        Returns:
            How many files were removed. Files of the current batch stay: another attempt at it may be writing them.
        """
        kept = set(named)
        for path in self._root.glob(f"*{_DEAD}"):
            kept.update(json.loads(path.read_bytes()))
        orphans = [
            path.stem for path in self._root.glob(f"*{_SEGMENT}") if path.stem not in kept and int(path.stem[:12]) < self._batch
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
            self._path(segment_id).unlink(missing_ok=True)

    def _path(self, segment_id: str) -> Path:
        return self._root / f"{segment_id}{_SEGMENT}"

    def _sync_directory(self) -> None:
        handle = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _mapped(path: Path) -> pl.DataFrame:
    """Map a file without reading it; Polars' own reader copies."""
    with pa.memory_map(str(path)) as source:
        frame = pl.from_arrow(pa.ipc.open_file(source).read_all())
    if not isinstance(frame, pl.DataFrame):
        raise StateCorrupt(f"segment {path.stem} is not a table")
    return frame

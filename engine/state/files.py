"""Segments as Arrow files below a task's folder: written once, synced, memory-mapped, removed when no manifest needs them.

The manifest that names a file is committed after the file is durable, so a crash leaves files without a name, never a name without a
file. ``sweep`` removes what is not named; it runs when a batch begins, when the manifest at hand is committed and none before
it can be read again (Spark repeats at most the batch that follows it).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from threading import Lock
from uuid import uuid4

import polars as pl
import pyarrow as pa

from engine.errors import StateCorrupt

SUFFIX = ".arrow"
CACHED_SEGMENTS = 512
"""Open maps per process. A map costs address space and a file handle; the pages belong to the system."""

_cache: OrderedDict[str, pl.DataFrame] = OrderedDict()
_cache_lock = Lock()


class FileSegmentStore:
    """Keeps one task's segments in one folder.

    Args:
        folder: below the query's checkpoint directory; made when absent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, frame: pl.DataFrame) -> str:
        """Write a frame and sync it, file and folder, before returning its id."""
        segment_id = uuid4().hex
        path = self._path(segment_id)
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
        with path.open("wb") as file:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._folder)
        _remember(str(path), frame)
        return segment_id

    def load(self, segment_id: str) -> pl.DataFrame:
        """Return a saved frame, mapped into memory. It is shared: never change it.

        Raises:
            StateCorrupt: no such segment, or its file is damaged.
        """
        path = str(self._path(segment_id))
        with _cache_lock:
            found = _cache.get(path)
            if found is not None:
                _cache.move_to_end(path)
                return found
        try:
            with pa.memory_map(path) as source:
                frame = pl.from_arrow(pa.ipc.open_file(source).read_all())
        except (OSError, pa.ArrowInvalid) as error:
            raise StateCorrupt(f"segment {segment_id} cannot be read: {error}") from error
        if not isinstance(frame, pl.DataFrame):
            raise StateCorrupt(f"segment {segment_id} is not a table")
        _remember(path, frame)
        return frame

    def release(self, segment_ids: Collection[str]) -> None:
        """Forget cached frames; the files stay until ``sweep``, because the batch may be repeated from the manifest before."""
        with _cache_lock:
            for segment_id in segment_ids:
                _cache.pop(str(self._path(segment_id)), None)

    def sweep(self, named: Collection[str]) -> int:
        """Remove every file that is not in ``named``; returns how many."""
        kept = {f"{segment_id}{SUFFIX}" for segment_id in named}
        removed = 0
        for entry in os.scandir(self._folder):
            if entry.name.endswith(SUFFIX) and entry.name not in kept:
                Path(entry.path).unlink(missing_ok=True)
                removed += 1
        return removed

    def _path(self, segment_id: str) -> Path:
        return self._folder / f"{segment_id}{SUFFIX}"


def _remember(path: str, frame: pl.DataFrame) -> None:
    with _cache_lock:
        _cache[path] = frame
        _cache.move_to_end(path)
        while len(_cache) > CACHED_SEGMENTS:
            _cache.popitem(last=False)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

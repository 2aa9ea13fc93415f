"""Tiny segments inside the manifest that names them: they cost no file, no sync and no upload of their own.

A manifest is written anew with each commit, so what stands in it is written again each time: only segments that are small count, and all
of a task together have a bound. Larger ones, and those beyond the bound, go to the store behind.

In a manifest ``"inline"`` has, by id, an Arrow IPC stream, compressed by zlib, as base64. It is encoded once. An id ends with the CRC-32 of the
stream, as an id of a file does with that of the file.
"""

from __future__ import annotations

import base64
import binascii
import io
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import polars as pl
import pyarrow as pa

from engine.errors import STATE_CURE, StateCorrupt
from engine.frames.hashing import KeyHash
from engine.state.segments.files import frame_of
from engine.state.segments.ports import SEGMENT_SUFFIX, SegmentStore, checksum_of, named_segments, new_id, task_folder

INLINE: Final = "inline"
"""In a manifest: the segments that it holds."""

LARGEST_CHARS: Final = 8 * 1024
"""Of one segment as text, about 800 rows. A file costs 0.5 ms of CPU and a sync; text costs Postgres 0.01 ms and 1.1 KB of WAL per KiB, with
each commit."""

ALL_CHARS: Final = 32 * 1024
"""Of all segments of a task: a commit of 32 KiB costs Postgres 0.33 ms, one without any 0.15, one of 128 KiB 1.1 ms and 141 KB of WAL."""

LARGEST_FRAME: Final = 16 * LARGEST_CHARS
"""Frames that are larger in memory are not even tried: few compress that well."""

_LEVEL: Final = 1


class ManifestSegmentStore:
    """A store for one task that keeps tiny segments itself and passes others on.

    Args:
        behind: keeps what is not tiny.
        manifest: as it is committed, None for none: what it holds can be loaded.
    """

    def __init__(self, behind: SegmentStore, manifest: Mapping[str, Any] | None = None) -> None:
        self._behind = behind
        self._texts: dict[str, str] = dict((manifest or {}).get(INLINE, {}))
        self._frames: dict[str, pl.DataFrame] = {}
        self._chars = sum(map(len, self._texts.values()))

    @property
    def hashing(self) -> KeyHash:
        return self._behind.hashing

    @property
    def memory_bytes(self) -> int:
        """About how much memory the segments take that are kept here."""
        return self._chars + sum(int(frame.estimated_size()) for frame in self._frames.values())

    def save(self, frame: pl.DataFrame) -> str:
        """See ``SegmentStore``. What is kept here is durable once the manifest is."""
        frame = frame.rechunk()
        if frame.estimated_size() > LARGEST_FRAME or self._chars >= ALL_CHARS:
            return self._behind.save(frame)
        stream = io.BytesIO()
        frame.write_ipc_stream(stream, compression="uncompressed")
        content = stream.getvalue()
        text = base64.b64encode(zlib.compress(content, _LEVEL)).decode()
        if len(text) > min(LARGEST_CHARS, ALL_CHARS - self._chars):
            return self._behind.save(frame)
        segment_id = new_id(content)
        self._texts[segment_id], self._frames[segment_id] = text, frame
        self._chars += len(text)
        return segment_id

    def load(self, segment_id: str) -> pl.DataFrame:
        frame = self._frames.get(segment_id)
        if frame is not None:
            return frame
        text = self._texts.get(segment_id)
        if text is None:
            return self._behind.load(segment_id)
        frame = self._frames[segment_id] = _decoded(segment_id, text)
        return frame

    def release(self, segment_ids: Collection[str]) -> None:
        """See ``SegmentStore``. What is kept here goes with the next manifest that does not name it."""
        self._behind.release([segment_id for segment_id in segment_ids if segment_id not in self._texts])

    def completed(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Add to a manifest the segments that it names and that are kept here; forget the others.

        Args:
            manifest: what ``Task.snapshot`` returned.
        """
        if self._texts:
            for segment_id in self._texts.keys() - named_segments(manifest):
                self._chars -= len(self._texts.pop(segment_id))
                self._frames.pop(segment_id, None)
        return {**manifest, INLINE: dict(self._texts)} if self._texts else dict(manifest)


def stored_segments(manifest: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the ids of the segments that a manifest names and does not hold: those that a store must have."""
    if manifest is None:
        return frozenset()
    own: Iterable[str] = manifest.get(INLINE, ())
    return named_segments(manifest).difference(own)


def _decoded(segment_id: str, text: str) -> pl.DataFrame:
    try:
        content = zlib.decompress(base64.b64decode(text, validate=True))
        found = f"{zlib.crc32(content):08x}"
        if found != checksum_of(segment_id):
            raise StateCorrupt(f"segment {segment_id} is damaged in its manifest: its checksum is {found}. {STATE_CURE}")
        return frame_of(pa.ipc.open_stream(content), segment_id)
    except (zlib.error, binascii.Error, pa.ArrowInvalid) as error:
        raise StateCorrupt(f"segment {segment_id} is damaged in its manifest: {error}. {STATE_CURE}") from error


def names_of(folder: str, manifests: Mapping[tuple[int, int], Mapping[str, Any] | None]) -> Iterable[str]:
    """Yield the names, below a checkpoint, of all segments that the manifests of tasks name and do not hold themselves.

    Args:
        folder: of the layout.
        manifests: (stage, task) → manifest.
    """
    for (stage, task), manifest in manifests.items():
        for segment_id in stored_segments(manifest):
            yield f"{task_folder(folder, stage, task)}/{segment_id}{SEGMENT_SUFFIX}"

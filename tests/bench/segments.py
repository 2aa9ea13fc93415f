"""Segments in files of which those that are released go with the next batch: no collector looks after a benchmark's."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from engine.state.segments.files import FileSegmentStore


class PurgedSegments(FileSegmentStore):
    """See above.

    Args:
        root: the task's directory.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._gone: list[str] = []

    def release(self, segment_ids: Collection[str]) -> None:
        super().release(segment_ids)
        self._gone += segment_ids

    def purge(self) -> None:
        """Remove what was released."""
        for segment_id in self._gone:
            self._path(segment_id).unlink(missing_ok=True)
        self._gone.clear()

"""The names of segments in manifests, as paths in the place of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.state.segments.in_manifest import stored_segments
from engine.state.segments.ports import SEGMENT_SUFFIX, task_folder


def names_of(folder: str, manifests: Mapping[tuple[int, int], Mapping[str, Any] | None]) -> Iterable[str]:
    """Yield the names, below a checkpoint, of all segments that the manifests of tasks name and do not hold themselves.

    Args:
        folder: of the layout.
        manifests: (stage, task) → manifest.
    """
    for (stage, task), manifest in manifests.items():
        for segment_id in stored_segments(manifest):
            yield f"{task_folder(folder, stage, task)}/{segment_id}{SEGMENT_SUFFIX}"

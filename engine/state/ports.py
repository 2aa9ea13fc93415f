"""Ports of state keeping: a task's segments (defined beside its users in ``engine.core.ports``), and all segments of a checkpoint or query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol, Self

from engine.core.hashing import UNSEEDED, KeyHash
from engine.core.ports import SegmentStore, named_segments

__all__ = [
    "FIRST_SEGMENTS",
    "OWNERS",
    "SEGMENT_SUFFIX",
    "KeptSegments",
    "SegmentStore",
    "StateStore",
    "Stored",
    "named_segments",
    "task_folder",
]

FIRST_SEGMENTS: Final = "segments"
"""Folder of a checkpoint's segments until the number of tasks changes; the names of all such folders begin with it."""

SEGMENT_SUFFIX: Final = ".arrow"

OWNERS: Final = "owners"
"""Folder of what is noted of who looks after the state of queries."""


class KeptSegments(SegmentStore, Protocol):
    """The segments of one task, where they are kept outside of its manifest."""

    @property
    def memory_bytes(self) -> int:
        """About how much of this process's own memory the open segments take."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """A segment that is there, whether or not a manifest names it.

    Attributes:
        name: below the store's root: ``[<checkpoint>/]<folder>/<stage>/<task>/<id>.arrow``.
        size_bytes: as stored.
    """

    name: str
    size_bytes: int


class StateStore(Protocol):
    """Where segments are kept: those of all queries, of one, or of one of its checkpoints. It pickles.

    Every method raises ``ExternalError`` where the place cannot be reached now.
    """

    def below(self, name: str) -> Self:
        """Return what is below a name: ``<query id>``, and then ``<checkpoint id>``."""
        ...

    def task(self, folder: str, hashing: KeyHash = UNSEEDED) -> KeptSegments:
        """Return the segments of one task.

        Args:
            folder: ``<folder>/<stage>/<task>``.
            hashing: see ``SegmentStore``.
        """
        ...

    def listed(self) -> list[Stored]:
        """Return every segment that is there; what other files are there is left out."""
        ...

    def remove(self, names: Collection[str]) -> None:
        """Remove segments, as ``listed`` names them; what is gone already is passed over."""
        ...

    def clear(self) -> None:
        """Remove every segment that is there."""
        ...

    def owner(self, name: str) -> bytes | None:
        """Return what was noted last of who looks after what is below a name; None: nothing was."""
        ...

    def note_owner(self, name: str, content: bytes) -> None:
        """Note who looks after what is below a name; it is no segment, and not below it."""
        ...

    def forget_owner(self, name: str) -> None:
        """Remove what was noted, if anything was."""
        ...

    def copy(self, names: Collection[str], target: Self) -> None:
        """Let another place of the same store have segments under the same names; their content is not read here.

        Raises:
            StateCorrupt: one is missing.
        """
        ...

    @property
    def is_nearly_full(self) -> bool:
        """Whether there is hardly room for more."""
        ...


def task_folder(folder: str, stage: int, task: int) -> str:
    """Return the name of a task's folder below a checkpoint.

    Args:
        folder: of the layout.
        stage: its index.
        task: its ordinal.
    """
    return f"{folder}/{stage}/{task}"

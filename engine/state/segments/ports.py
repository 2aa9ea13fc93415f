"""Ports of the state: the segments of one task, and all segments of a checkpoint or query."""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol, Self

import polars as pl

from engine.frames.hashing import UNSEEDED, KeyHash

FIRST_SEGMENTS: Final = "segments"
"""Folder of a checkpoint's segments until the number of tasks changes; the names of all such folders begin with it."""

SEGMENT_SUFFIX: Final = ".arrow"

OWNERS: Final = "owners"
"""Folder of what is noted of who looks after the state of queries."""


class SegmentStore(Protocol):
    """Keeps immutable frames under ids.

    A manifest names a segment by a dict entry ``"segment": <id>``, at any depth (``named_segments`` finds them all), so that a
    store can tell what is still needed without knowing any operator.
    """

    @property
    def hashing(self) -> KeyHash:
        """The hash by which the segments are sorted and searched."""
        ...

    def save(self, frame: pl.DataFrame) -> str:
        """Keep ``frame`` and return its new id. It is durable and synced when this returns."""
        ...

    def load(self, segment_id: str) -> pl.DataFrame:
        """Return a saved frame. It may be memory-mapped and shared: callers never change it.

        Raises:
            StateCorrupt: no such segment.
        """
        ...

    def release(self, segment_ids: Collection[str]) -> None:
        """Say that the newest manifest no longer names these. Older manifests may, so they are removed physically later."""
        ...


def named_segments(manifest: object) -> frozenset[str]:
    """Return the ids of all segments a manifest names."""
    found: set[str] = set()
    waiting: list[object] = [manifest]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = value.get("segment")
            if isinstance(name, str):
                found.add(name)
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return frozenset(found)


class StoredSegments(SegmentStore, Protocol):
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

    def task(self, folder: str, hashing: KeyHash = UNSEEDED) -> StoredSegments:
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
    """Return the name of a task's folder below a checkpoint."""
    return f"{folder}/{stage}/{task}"


_CHECKSUM_AT: Final = len("000000000000-00000000-")


def new_id(content: bytes | memoryview) -> str:
    """Return a new id: ``<seconds since 1970, 12 digits>-<8 random hex digits>-<CRC-32 of the content>``."""
    return f"{int(time.time()):012d}-{secrets.token_hex(4)}-{zlib.crc32(content):08x}"


def checksum_of(segment_id: str) -> str:
    """Return the checksum in an id."""
    return segment_id[_CHECKSUM_AT:]

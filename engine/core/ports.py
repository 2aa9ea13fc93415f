"""What operators need from the outside: a place for immutable segments.

The port stands here, below its implementations in ``engine.state``, so that operators can name it without knowing them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import polars as pl

from engine.core.hashing import KeyHash


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

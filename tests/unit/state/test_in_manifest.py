"""Tiny segments that stand in the manifest which names them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.errors import StateCorrupt
from engine.state.segments.in_manifest import ALL_CHARS, INLINE, LARGEST_CHARS, ManifestSegmentStore, stored_segments
from engine.state.segments.memory import MemorySegmentStore

TINY = pl.DataFrame({"h": pl.Series([1, 2**64 - 1], dtype=pl.UInt64), "s": ["a", None]})


def noise(rows: int, seed: int = 0) -> pl.DataFrame:
    """Rows of 8 bytes each that no compression makes smaller."""
    return pl.DataFrame({"n": np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, rows)})


def manifest(*names: str) -> dict[str, Any]:
    return {"format": 3, "operators": {"join": [{"segment": name} for name in names]}}


def committed(store: ManifestSegmentStore, *names: str) -> dict[str, Any]:
    """Return the manifest as the database gives it back."""
    value: dict[str, Any] = json.loads(json.dumps(store.completed(manifest(*names))))
    return value


def test_a_tiny_segment_comes_back_from_its_manifest_alone() -> None:
    behind = MemorySegmentStore()
    store = ManifestSegmentStore(behind)
    kept = committed(store, name := store.save(TINY))
    assert behind.segment_ids == frozenset()
    again = ManifestSegmentStore(MemorySegmentStore(), kept)
    assert again.load(name).equals(TINY)
    assert again.load(name).schema == TINY.schema
    assert committed(again, name) == kept, "what did not change is not encoded again"


def test_a_large_segment_goes_to_the_store_behind() -> None:
    behind = MemorySegmentStore()
    store = ManifestSegmentStore(behind)
    name = store.save(noise(LARGEST_CHARS // 8))
    assert behind.segment_ids == {name}
    assert committed(store, name) == manifest(name)
    assert store.load(name).height == LARGEST_CHARS // 8


def test_all_tiny_segments_of_a_task_together_have_a_bound() -> None:
    behind = MemorySegmentStore()
    store = ManifestSegmentStore(behind)
    names = [store.save(noise(500, seed)) for seed in range(40)]
    kept = committed(store, *names)
    assert ALL_CHARS // 2 < sum(map(len, kept[INLINE].values())) <= ALL_CHARS
    assert behind.segment_ids == {*names} - kept[INLINE].keys()
    assert stored_segments(kept) == behind.segment_ids
    again = ManifestSegmentStore(behind, kept)
    assert [again.load(name).height for name in names] == [500] * 40


def test_what_a_manifest_stops_naming_leaves_it_and_makes_room() -> None:
    behind = MemorySegmentStore()
    store = ManifestSegmentStore(behind)
    for seed in range(40):
        name = store.save(noise(500, seed))
        assert [*committed(store, name)[INLINE]] == [name]
        store.release([name])
        assert store.load(name).height == 500, "until the next manifest"
    assert behind.segment_ids == frozenset()
    assert committed(store) == manifest()
    with pytest.raises(StateCorrupt):
        store.load(name)


def test_a_manifest_of_an_earlier_version_is_read() -> None:
    behind = MemorySegmentStore()
    name = behind.save(TINY)
    store = ManifestSegmentStore(behind, manifest(name))
    assert store.load(name).equals(TINY)
    assert stored_segments(manifest(name)) == {name}
    assert stored_segments(None) == frozenset()


@pytest.mark.parametrize("damage", ["flipped", "cut", "no base64"])
def test_damage_of_a_segment_in_a_manifest_is_told_with_its_name(damage: str) -> None:
    store = ManifestSegmentStore(MemorySegmentStore())
    kept = committed(store, name := store.save(TINY))
    text = kept[INLINE][name]
    for place in range(0, len(text), 7):
        flipped = "A" if text[place] != "A" else "B"
        kept[INLINE][name] = text[:place] + {"flipped": flipped + text[place + 1 :], "cut": "", "no base64": "\n"}[damage]
        with pytest.raises(StateCorrupt, match=name):
            ManifestSegmentStore(MemorySegmentStore(), kept).load(name)

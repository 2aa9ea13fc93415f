"""What every StateStore promises: segments of tasks, of checkpoints, of queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import polars as pl
import pytest

from engine.errors import StateCorrupt
from engine.state.segments.directories import Directories
from engine.state.segments.objects import Objects
from engine.state.segments.ports import StateStore
from engine.state.segments.segment_cache import SegmentCache

QUERY, CHECKPOINT, OTHER = (f"00000000-0000-0000-0000-{number:012d}" for number in (1, 2, 3))
FRAME = pl.DataFrame({"n": [1, 2, 3]})

Make = Callable[[], StateStore]


@pytest.fixture(params=["directories", "objects"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Opens the place of all queries."""
    cached, memory = SegmentCache(tmp_path / "cache", 1 << 20), f"memory:///{uuid4()}"
    stores: dict[str, Make] = {
        "directories": lambda: Directories(tmp_path / "state"),
        "objects": lambda: Objects(memory, cached),
    }
    return stores[request.param]


def names(store: StateStore) -> set[str]:
    return {found.name for found in store.listed()}


def test_a_place_that_nobody_wrote_to_has_nothing(make: Make) -> None:
    assert make().below(QUERY).listed() == []


def test_segments_are_listed_below_what_they_belong_to(make: Make) -> None:
    store = make()
    place = store.below(QUERY).below(CHECKPOINT)
    first = place.task("segments/0/1").save(FRAME)
    second = place.task("segments-1-7/1/0").save(FRAME)
    assert names(place) == {f"segments/0/1/{first}.arrow", f"segments-1-7/1/0/{second}.arrow"}
    assert names(store.below(QUERY)) == {f"{CHECKPOINT}/{name}" for name in names(place)}
    assert names(store) == {f"{QUERY}/{name}" for name in names(store.below(QUERY))}
    assert all(found.size_bytes > 24 for found in store.listed())
    assert names(store.below(OTHER)) == set()


def test_what_is_removed_is_gone_and_may_be_removed_again(make: Make) -> None:
    place = make().below(QUERY).below(CHECKPOINT)
    task = place.task("segments/0/0")
    kept, removed = task.save(FRAME), task.save(FRAME)
    also = task.save(FRAME)
    place.remove([f"segments/0/0/{removed}.arrow"])
    place.remove([f"segments/0/0/{name}.arrow" for name in (removed, also)])
    assert names(place) == {f"segments/0/0/{kept}.arrow"}
    with pytest.raises(StateCorrupt, match=removed):
        make().below(QUERY).below(CHECKPOINT).task("segments/0/0").load(removed)
    place.remove([f"segments/0/0/{kept}.arrow"])
    assert names(place) == set()
    assert task.load(task.save(FRAME)).equals(FRAME), "also where nothing was left"


def test_a_copy_outlives_what_it_was_made_of(make: Make) -> None:
    store = make()
    place, target = store.below(QUERY).below(CHECKPOINT), store.below(OTHER).below(CHECKPOINT)
    segment = place.task("segments/0/0").save(FRAME)
    name = f"segments/0/0/{segment}.arrow"
    for _ in range(2):
        place.copy([name], target)
    place.remove([name])
    assert (names(place), names(target)) == (set(), {name})
    assert target.task("segments/0/0").load(segment).equals(FRAME)
    with pytest.raises(StateCorrupt, match=segment):
        place.copy([name], target)
    store.below(OTHER).clear()
    assert names(store) == set()


def test_who_looks_after_what_is_below_a_name_is_noted_beside_it(make: Make) -> None:
    store = make()
    assert store.owner(QUERY) is None
    store.note_owner(QUERY, b"one")
    store.note_owner(QUERY, b"another")
    store.below(QUERY).clear()
    assert (make().owner(QUERY), store.owner(OTHER), names(store)) == (b"another", None, set())
    store.forget_owner(QUERY)
    store.forget_owner(QUERY)
    assert store.owner(QUERY) is None


def test_files_that_are_no_segments_are_left_alone(tmp_path: Path) -> None:
    store = Directories(tmp_path)
    for name in (
        "run-0000000001-0/planned",
        "epoch-0000000001/segments/0/0/old.arrow",
        "segments/0/0/notes.txt",
        "segments/0/0/x.arrow",
    ):
        path = tmp_path / QUERY / CHECKPOINT / name
        path.parent.mkdir(parents=True) if not path.parent.exists() else None
        path.touch()
    assert names(store) == {f"{QUERY}/{CHECKPOINT}/segments/0/0/x.arrow"}

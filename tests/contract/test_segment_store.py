"""What every SegmentStore promises, and what the one in files adds."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from engine.errors import DiskFull, ExternalError, StateCorrupt
from engine.state.segments.files import FileSegmentStore
from engine.state.segments.in_manifest import ManifestSegmentStore
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import SegmentStore, named_segments

FRAME = pl.DataFrame(
    {
        "h": pl.Series([1, 2**64 - 1], dtype=pl.UInt64),
        "t": [1, None],
        "s": ["a string that is longer than a view", None],
        "b": [b"\x00", None],
        "l": [[1, 2], []],
        "m": [[{"key": "k", "value": 1}], None],
    }
)

Make = Callable[[], SegmentStore]


@pytest.fixture(params=["memory", "files", "manifest"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Opens the store, again with what it kept where it is durable by itself."""
    kept: dict[str, SegmentStore] = {"memory": MemorySegmentStore(), "manifest": ManifestSegmentStore(MemorySegmentStore())}
    return lambda: kept.get(request.param) or FileSegmentStore(tmp_path / "state")


def test_a_frame_comes_back_as_it_was(make: Make) -> None:
    segment_id = make().save(FRAME)
    loaded = make().load(segment_id)
    assert loaded.equals(FRAME)
    assert loaded.schema == FRAME.schema


def test_an_empty_frame_keeps_its_schema(make: Make) -> None:
    store = make()
    assert store.load(store.save(FRAME.clear())).schema == FRAME.schema


def test_a_slice_of_many_chunks_comes_back_in_one_chunk(make: Make) -> None:
    store = make()
    frame = pl.concat([FRAME, FRAME, FRAME], rechunk=False)[1:5]
    loaded = store.load(store.save(frame))
    assert loaded.equals(frame)
    assert loaded.n_chunks() == 1


def test_ids_are_never_used_twice(make: Make) -> None:
    store = make()
    assert len({store.save(FRAME) for _ in range(20)}) == 20


def test_a_released_segment_can_still_be_loaded_for_an_older_manifest(make: Make) -> None:
    store = make()
    segment_id = store.save(FRAME)
    store.release([segment_id])
    assert store.load(segment_id).equals(FRAME)


def test_a_segment_that_never_was_is_corrupt_state(make: Make) -> None:
    with pytest.raises(StateCorrupt):
        make().load("000000000000-00000000")


def test_manifests_name_segments_at_any_depth() -> None:
    manifest = {"a": [{"segment": "x", "rows": 1}], "b": {"c": ({"segment": "y"},)}, "segment": None}
    assert named_segments(manifest) == {"x", "y"}


# files only


@contextmanager
def no_file_larger_than(size_bytes: int) -> Iterator[None]:
    """Let the system refuse this process's writes behind a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def files(root: Path) -> set[str]:
    return {path.name for path in root.glob("*.arrow")}


def test_what_is_released_stays_for_the_collector(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path)
    segment_id = store.save(FRAME)
    store.release([segment_id])
    assert files(tmp_path) == {f"{segment_id}.arrow"}


def test_a_store_that_saves_nothing_makes_no_directory(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path / "segments" / "0" / "1")
    assert list(tmp_path.iterdir()) == []
    assert store.load(store.save(FRAME)).equals(FRAME)


def test_a_torn_file_is_corrupt_state(tmp_path: Path) -> None:
    segment_id = FileSegmentStore(tmp_path).save(FRAME)
    path = tmp_path / f"{segment_id}.arrow"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateCorrupt):
        FileSegmentStore(tmp_path).load(segment_id)


def test_a_file_that_cannot_be_opened_just_now_is_no_damage(tmp_path: Path) -> None:
    segment_id = FileSegmentStore(tmp_path).save(FRAME)
    store = FileSegmentStore(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as last:  # noqa: PTH123 - its number is what counts
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno(), limits[1]))
        try:
            with pytest.raises(ExternalError, match="Too many open files") as refused:
                store.load(segment_id)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert refused.value.retryable
    assert store.load(segment_id).equals(FRAME)


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damage_at_any_byte_of_a_segment_is_found_and_told_with_its_file(tmp_path: Path, damage: str) -> None:
    segment_id = FileSegmentStore(tmp_path).save(FRAME)
    path = tmp_path / f"{segment_id}.arrow"
    written = path.read_bytes()
    for place in range(len(written)):
        flipped = bytes([written[place] ^ 1 << place % 8])
        path.write_bytes(written[:place] + (flipped + written[place + 1 :] if damage == "flipped" else b""))
        with pytest.raises(StateCorrupt, match=path.name):
            FileSegmentStore(tmp_path).load(segment_id)
    path.write_bytes(written)
    assert FileSegmentStore(tmp_path).load(segment_id).equals(FRAME)


def test_a_segment_that_does_not_fit_leaves_nothing_and_can_be_saved_once_there_is_space(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path)
    with no_file_larger_than(1_000), pytest.raises(DiskFull, match=str(tmp_path)):
        store.save(FRAME)
    assert list(tmp_path.iterdir()) == []
    assert store.load(store.save(FRAME)).equals(FRAME)


def test_more_segments_than_are_kept_open_can_be_read(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, cached_segments=2)
    ids = [store.save(pl.DataFrame({"n": [n]})) for n in range(5)]
    assert [store.load(segment_id).item() for segment_id in [*ids, *ids]] == [*range(5), *range(5)]

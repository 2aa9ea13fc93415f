"""What every SegmentStore promises, and what the one in files adds."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from engine.errors import DiskFull, ExternalError, StateCorrupt
from engine.state.files import FileSegmentStore
from engine.state.in_manifest import ManifestSegmentStore
from engine.state.memory import MemorySegmentStore
from engine.state.ports import SegmentStore, named_segments

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
    return lambda: kept.get(request.param) or FileSegmentStore(tmp_path / "state", keep_manifests=2)


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


def test_released_files_go_when_no_kept_manifest_can_name_them(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=2)
    store.begin(0)
    old = store.save(FRAME)
    store.begin(1)
    store.release([old])
    for batch in (2, 3):
        store.begin(batch)
        assert files(tmp_path) == {f"{old}.arrow"}
    released = json.loads(json.dumps(store.released))
    assert released == {"1": [old]}
    again = FileSegmentStore(tmp_path, keep_manifests=2, released=released)
    again.begin(4)
    assert again.released == {}
    assert list(tmp_path.iterdir()) == []


def test_what_a_failed_attempt_released_stays(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=0)
    store.begin(0)
    kept = store.save(FRAME)
    committed = json.loads(json.dumps(store.released))
    store.begin(1)
    store.release([kept])
    again = FileSegmentStore(tmp_path, keep_manifests=0, released=committed)
    for batch in (1, 2, 3):
        again.begin(batch)
    assert again.load(kept).equals(FRAME)


def test_every_release_of_a_batch_is_remembered(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=0)
    store.begin(0)
    first, second = store.save(FRAME), store.save(FRAME)
    store.release([first])
    store.release([second])
    store.release([])
    store.begin(1)
    assert files(tmp_path) == set()


def test_sweeping_removes_what_nothing_names_but_not_the_current_batch(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=5)
    store.begin(0)
    named, released, orphan = (store.save(FRAME) for _ in range(3))
    store.begin(1)
    store.release([released])
    store.begin(2)
    current = store.save(FRAME)
    assert store.sweep({named}) == 1
    assert files(tmp_path) == {f"{name}.arrow" for name in (named, released, current)}
    with pytest.raises(StateCorrupt):
        store.load(orphan)


def test_an_older_launch_that_still_runs_takes_nothing_from_a_newer_one(tmp_path: Path) -> None:
    """Both begin behind the same commit; the newer one goes on, the older one can commit nothing any more."""
    older = FileSegmentStore(tmp_path, keep_manifests=1)
    older.begin(3)
    named = older.save(FRAME)
    committed = json.loads(json.dumps(older.released))
    older.begin(4)
    older.release([named])
    newer = FileSegmentStore(tmp_path, keep_manifests=1, released=committed)
    newer.begin(4)
    newer.sweep({named})
    mine = newer.save(FRAME)
    for batch in range(5, 9):
        newer.begin(batch)
    older.sweep({named})
    assert newer.load(named).equals(FRAME)
    assert {path.stem for path in tmp_path.glob("*.arrow")} >= {named, mine}


def test_a_torn_file_is_corrupt_state(tmp_path: Path) -> None:
    segment_id = FileSegmentStore(tmp_path, keep_manifests=1).save(FRAME)
    path = tmp_path / f"{segment_id}.arrow"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateCorrupt):
        FileSegmentStore(tmp_path, keep_manifests=1).load(segment_id)


def test_a_file_that_cannot_be_opened_just_now_is_no_damage(tmp_path: Path) -> None:
    segment_id = FileSegmentStore(tmp_path, keep_manifests=1).save(FRAME)
    store = FileSegmentStore(tmp_path, keep_manifests=1)
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
    segment_id = FileSegmentStore(tmp_path, keep_manifests=1).save(FRAME)
    path = tmp_path / f"{segment_id}.arrow"
    written = path.read_bytes()
    for place in range(len(written)):
        flipped = bytes([written[place] ^ 1 << place % 8])
        path.write_bytes(written[:place] + (flipped + written[place + 1 :] if damage == "flipped" else b""))
        with pytest.raises(StateCorrupt, match=path.name):
            FileSegmentStore(tmp_path, keep_manifests=1).load(segment_id)
    path.write_bytes(written)
    assert FileSegmentStore(tmp_path, keep_manifests=1).load(segment_id).equals(FRAME)


def test_a_segment_of_a_version_without_checksums_is_read(tmp_path: Path) -> None:
    FRAME.write_ipc(tmp_path / "000000000003-0123abcd.arrow")
    assert FileSegmentStore(tmp_path, keep_manifests=1).load("000000000003-0123abcd").equals(FRAME)


def test_lists_that_earlier_versions_kept_are_removed_with_what_they_name(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=1)
    store.begin(2)
    named, released = store.save(FRAME), store.save(FRAME)
    (tmp_path / "000000000003.dead").write_text(json.dumps([released]))
    store.begin(4)
    assert store.sweep({named}) == 1
    assert [path.stem for path in tmp_path.iterdir()] == [named]


def test_a_segment_that_does_not_fit_leaves_nothing_and_can_be_saved_once_there_is_space(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=1)
    with no_file_larger_than(1_000), pytest.raises(DiskFull, match=str(tmp_path)):
        store.save(FRAME)
    assert list(tmp_path.iterdir()) == []
    assert store.load(store.save(FRAME)).equals(FRAME)


def test_more_segments_than_are_kept_open_can_be_read(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path, keep_manifests=1, cached_segments=2)
    ids = [store.save(pl.DataFrame({"n": [n]})) for n in range(5)]
    assert [store.load(segment_id).item() for segment_id in [*ids, *ids]] == [*range(5), *range(5)]

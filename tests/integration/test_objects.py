"""State in an object store: what a store that is slow, fails, cuts and lies does to it. The server is a real one, behind a proxy."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from uuid import uuid4

import polars as pl
import pytest

from app.cli.doctor import examine
from app.cli.machine import Finding
from app.driver.state_root import StateRoot
from app.settings.settings import Settings
from app.testing.machines.service import free_port
from engine.commit.task_states import Layout, TaskState
from engine.errors import StateCorrupt, StateUnavailable
from engine.runtime.launches.launch_state import bring_over, require_segments
from engine.state.segments import objects
from engine.state.segments.directories import Directories
from engine.state.segments.objects import Objects
from engine.state.segments.segment_cache import SegmentCache
from tests.object_store import BUCKET, CREDENTIALS, ObjectServer, Trouble, object_server

FRAME = pl.DataFrame({"n": range(50_000), "s": [f"value {number}" for number in range(50_000)]})
MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture
def store(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    objects._client.cache_clear()
    yield (
        Objects(f"s3://{BUCKET}/{uuid4()}/state", SegmentCache(tmp_path / "cache", 100 * MIB)).below("query").below("checkpoint")
    )
    server.trouble = Trouble()


def forget(store: Objects) -> None:
    """Lose every copy."""
    shutil.rmtree(store.cached.directory, ignore_errors=True)


def test_a_segment_comes_back_without_any_copy_of_it(store: Objects) -> None:
    segment = store.task("segments/0/0").save(FRAME)
    forget(store)
    assert store.task("segments/0/0").load(segment).equals(FRAME)


def test_a_segment_that_was_written_here_is_not_downloaded(store: Objects, server: ObjectServer) -> None:
    segment = store.task("segments/0/0").save(FRAME)
    server.requests.clear()
    assert store.task("segments/0/0").load(segment).equals(FRAME)
    assert server.requests == []


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble(delay_s=0.5),
        Trouble(failures=2, status=500),
        Trouble(failures=2, status=503),
        Trouble(cut_answers=2),
        Trouble(cut_requests=2),
    ],
)
def test_a_store_that_is_slow_or_fails_for_a_moment_is_asked_again(
    store: Objects, server: ObjectServer, trouble: Trouble
) -> None:
    server.trouble = trouble
    segment = store.task("segments/0/0").save(FRAME)
    forget(store)
    server.trouble = trouble
    assert [found.name for found in store.listed()] == [f"segments/0/0/{segment}.arrow"]
    assert store.task("segments/0/0").load(segment).equals(FRAME)


@pytest.mark.parametrize(
    "trouble", [Trouble(is_away=True), Trouble(failures=1_000, status=500), Trouble(failures=1_000, status=403)]
)
def test_a_store_that_stays_away_is_told_and_works_again_when_it_is_back(
    store: Objects, server: ObjectServer, trouble: Trouble
) -> None:
    task = store.task("segments/0/0")
    segment = task.save(FRAME)
    forget(store)
    server.trouble = trouble
    for ask in (
        lambda: task.save(FRAME),
        lambda: store.task("segments/0/0").load(segment),
        store.listed,
        lambda: store.remove(["x"]),
    ):
        with pytest.raises(StateUnavailable, match=f"the state in {store}.* cannot be reached now") as refused:
            ask()
        assert (refused.value.retryable, refused.value.code) == (True, "state_unavailable")
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(refused.value)
        assert refused.value.__cause__ is None
    server.trouble = Trouble()
    assert store.task("segments/0/0").load(segment).equals(FRAME)


def test_a_bucket_that_does_not_exist_is_no_damage(store: Objects) -> None:
    other = Objects("s3://nowhere/state", store.cached)
    for ask in (other.listed, lambda: other.task("segments/0/0").save(FRAME)):
        with pytest.raises(StateUnavailable, match=r"cannot be reached now: .*404"):
            ask()


def test_what_is_missing_and_what_is_damaged_is_told_with_its_name(store: Objects) -> None:
    task = store.task("segments/0/0")
    segment = task.save(FRAME)
    name = f"segments/0/0/{segment}.arrow"
    content = store.get(name)
    for damaged in (content[:-1], bytes([content[0] ^ 1]) + content[1:], b""):
        store.put(name, damaged)
        forget(store)
        with pytest.raises(StateCorrupt, match=rf"{store}/{name} is damaged.*state=discard"):
            store.task("segments/0/0").load(segment)
    store.remove([name])
    with pytest.raises(StateCorrupt, match=rf"{store}/{name} is missing.*state=discard"):
        store.task("segments/0/0").load(segment)


def test_a_damaged_copy_is_fetched_anew(store: Objects) -> None:
    segment = store.task("segments/0/0").save(FRAME)
    (copy,) = store.cached.directory.rglob(f"{segment}.arrow")
    content = copy.read_bytes()
    for damaged in (content[: len(content) // 2], bytes([content[0] ^ 1]) + content[1:], b""):
        copy.write_bytes(damaged)
        assert store.task("segments/0/0").load(segment).equals(FRAME)
        assert copy.read_bytes() == content


def test_copies_are_bounded_and_the_least_used_go_first(store: Objects, tmp_path: Path) -> None:
    small = Objects(store.url, SegmentCache(tmp_path / "small", 10 * MIB)).below("query").below("checkpoint")
    frame = pl.DataFrame({"n": range(MIB // 8)})
    task = small.task("segments/0/0")
    names = [task.save(frame) for _ in range(8)]
    for _ in range(10):
        assert small.task("segments/0/0").load(names[0]).equals(frame)  # in use, so it stays
        names.append(small.task("segments/0/0").save(frame))
    there = {path.stem for path in (tmp_path / "small").rglob("*.arrow")}
    assert names[0] in there
    assert names[1] not in there
    assert 5 <= len(there) <= 11
    assert all(small.task("segments/0/0").load(name).equals(frame) for name in names), "what went is fetched again"


def read_all(store: Objects, names: list[str]) -> int:
    return sum(store.task("segments/0/0").load(name).height for _ in range(3) for name in names)


def test_processes_share_one_bounded_cache(store: Objects, tmp_path: Path) -> None:
    names = [store.task("segments/0/0").save(FRAME) for _ in range(12)]
    small = Objects(store.url, SegmentCache(tmp_path / "small", 4 * MIB), store.path)
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        read = [pool.submit(read_all, small, names[number:] + names[:number]) for number in range(3)]
        assert {each.result(120) for each in read} == {3 * 12 * FRAME.height}


def test_nothing_secret_travels_with_it(store: Objects) -> None:
    travelled = pickle.dumps(store)
    assert pickle.loads(travelled) == store  # noqa: S301 - our own
    assert not any(secret.encode() in travelled for secret in CREDENTIALS.values() if secret != os.environ["AWS_REGION"])


def test_an_object_that_is_to_be_new_is_written_once(store: Objects) -> None:
    assert store.put("root.json", b"first", is_new=True)
    assert not store.put("root.json", b"second", is_new=True)
    assert store.get("root.json") == b"first"


def test_the_doctor_writes_reads_lists_and_removes_a_probe(store: Objects, server: ObjectServer, tmp_path: Path) -> None:
    def finding() -> Finding:
        found = examine(Settings.model_validate({"state_url": store.url, "data_dir": tmp_path / "data", "port": free_port()}))
        return next(each for each in found if each.subject == "State")

    sound = finding()
    assert (sound.is_ok, sound.remedy) == (True, None)
    assert store.url in sound.detail
    assert Objects(store.url, store.cached).listed() == []
    server.trouble = Trouble(failures=1_000, status=403)
    refused = finding()
    assert not refused.is_ok
    assert "cannot be reached now" in refused.detail
    assert "AWS_…" in str(refused.remedy)


def test_a_driver_of_another_host_finds_the_same_place(store: Objects, tmp_path: Path) -> None:
    first = StateRoot.open(tmp_path / "a", store)
    assert StateRoot.open(tmp_path / "b", store).id == first.id
    assert StateRoot.open(tmp_path / "a", Directories(tmp_path / "a")).id == first.id, "queries that had their state in its files"


def test_state_that_was_in_files_is_uploaded_by_a_launch(store: Objects, tmp_path: Path) -> None:
    local = Directories(tmp_path / "checkpoint")
    named, other = (local.task("segments/0/1").save(FRAME) for _ in range(2))
    states = {(0, 1): TaskState.of({"operators": [{"segment": named}]})}
    for _ in range(2):
        bring_over(local, store, Layout(2), states)
        assert [found.name for found in store.listed()] == [f"segments/0/1/{named}.arrow"]
    require_segments(store, Layout(2), states)
    assert store.task("segments/0/1").load(named).equals(FRAME)
    assert other

"""Copying segments: by links where the file system has them, else by content; what is not there is told."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from engine.state.copying import TOLD_EVERY, SegmentsGone, copy_segments

SHARED_MEMORY = Path("/dev/shm")


def segments(root: Path, *names: str) -> Path:
    folder = root / "0" / "1"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.arrow").write_text(f"content of {name}")
    return root


def copied(target: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (target / "0" / "1").iterdir()}


def test_what_is_named_is_linked_and_nothing_else(tmp_path: Path) -> None:
    source = segments(tmp_path / "a", "one", "two", "released")
    assert copy_segments(source, tmp_path / "b", {(0, 1): ["one", "two"]}, lambda: None) == 2
    assert copied(tmp_path / "b") == {"one": "content of one", "two": "content of two"}
    assert (tmp_path / "b" / "0" / "1" / "one.arrow").samefile(source / "0" / "1" / "one.arrow")


def test_a_copy_outlives_what_it_was_made_of(tmp_path: Path) -> None:
    source = segments(tmp_path / "a", "one")
    copy_segments(source, tmp_path / "b", {(0, 1): ["one"]}, lambda: None)
    (source / "0" / "1" / "one.arrow").unlink()
    assert copied(tmp_path / "b") == {"one": "content of one"}


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no second file system")
def test_to_another_file_system_the_content_is_copied(tmp_path: Path) -> None:
    source = segments(tmp_path / "a", "one")
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as other:
        copy_segments(source, Path(other), {(0, 1): ["one"]}, lambda: None)
        assert copied(Path(other)) == {"one": "content of one"}


def test_a_segment_that_is_gone_is_named(tmp_path: Path) -> None:
    source = segments(tmp_path / "a", "one")
    with pytest.raises(SegmentsGone, match=r"0/1/two\.arrow"):
        copy_segments(source, tmp_path / "b", {(0, 1): ["one", "two"]}, lambda: None)


def test_a_long_copy_gives_signs_of_life(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(2 * TOLD_EVERY)]
    source, told = segments(tmp_path / "a", *names), list[int]()
    copy_segments(source, tmp_path / "b", {(0, 1): names}, lambda: told.append(1))
    assert len(told) == 2

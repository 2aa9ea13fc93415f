"""Files of a query: scratch of the launch that runs, and segments that must be there."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from engine.connectors.task_states import Layout
from engine.errors import StateCorrupt
from engine.spark.checkpoint import begin_run, planned_batch, remove_other_segments, require_segments

CHECKPOINT = UUID(int=7)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / str(CHECKPOINT)


def plan(run: Path, *batches: int) -> None:
    (run / "offsets").mkdir()
    for batch in batches:
        (run / "offsets" / str(batch)).touch()
        (run / "offsets" / f".{batch}.crc").touch()


def test_a_launch_begins_with_an_empty_directory_and_removes_those_before(directory: Path) -> None:
    first = begin_run(directory, 1, 0)
    plan(first, 0, 1)
    again = begin_run(directory, 1, 0)
    assert (again, [*again.iterdir()]) == (first, [])
    second = begin_run(directory, 2, 5)
    assert [path.name for path in directory.iterdir()] == [second.name]


def test_a_launch_that_wakes_up_late_removes_nothing_of_the_next_one(directory: Path) -> None:
    newer = begin_run(directory, 6, 9)
    begin_run(directory, 5, 9)
    assert newer.exists()


def test_segments_outlive_the_launch(directory: Path) -> None:
    kept = directory / "segments" / "0" / "0"
    kept.mkdir(parents=True)
    begin_run(directory, 1, 0)
    assert kept.exists()


def test_the_newest_planned_batch_is_counted_over_all_launches(tmp_path: Path, directory: Path) -> None:
    assert planned_batch(tmp_path, CHECKPOINT) is None
    run = begin_run(directory, 3, 40)
    assert planned_batch(tmp_path, CHECKPOINT) is None
    plan(run, 9, 10)
    assert planned_batch(tmp_path, CHECKPOINT) == 50


def test_state_that_names_what_is_not_there_is_refused(directory: Path) -> None:
    folder = directory / "segments-2" / "1" / "0"
    folder.mkdir(parents=True)
    (folder / "000000000001-0123abcd-00000000.arrow").touch()
    layout = Layout(1, 2, segments="segments-2")
    require_segments(directory, layout, {(1, 0): {"000000000001-0123abcd-00000000"}, (0, 0): ()})
    with pytest.raises(StateCorrupt, match=r"segments-2/1/0/000000000009-x\.arrow is missing.*state=discard"):
        require_segments(directory, layout, {(1, 0): {"000000000009-x"}})


def test_segments_of_other_numbers_of_tasks_are_removed(directory: Path) -> None:
    for name in ("segments", "segments-1", "segments-2-4", "segments-3-5", "segments-3-6", "segments-3-9", "run-0000000001-0"):
        (directory / name).mkdir(parents=True)
    remove_other_segments(directory, Layout(3, 3, segments="segments-3-5"), 7)
    kept = ["run-0000000001-0", "segments-3-5", "segments-3-9"]
    assert sorted(path.name for path in directory.iterdir()) == kept, "a launch behind this one is at work in its own"

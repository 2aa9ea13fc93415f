"""Files of a query: scratch of the launch that runs, and segments that must be there."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import polars as pl
import pytest

from engine.connectors.task_states import Layout, TaskState
from engine.errors import StateCorrupt
from engine.spark.checkpoint import begin_run, discard_scratch, planned_batch
from engine.spark.launch_state import require_segments
from engine.state.directories import Directories

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


def test_of_a_discarded_checkpoint_the_segments_stay(directory: Path) -> None:
    kept = directory / "segments-2-4" / "0" / "0"
    for folder in (kept, directory / "run-0000000001-0", directory / "epoch-0000000001" / "segments"):
        folder.mkdir(parents=True)
    discard_scratch(directory)
    assert [path.name for path in directory.iterdir()] == ["segments-2-4"]
    shutil.rmtree(directory / "segments-2-4")
    discard_scratch(directory)
    assert not directory.exists()


def test_state_that_names_what_is_not_there_is_refused_with_everything_that_is_missing(directory: Path) -> None:
    store = Directories(directory)
    there = store.task("segments-2/1/0").save(pl.DataFrame({"n": [1]}))
    layout = Layout(2, 2, segments="segments-2")

    def state(*names: str, **inline: str) -> TaskState:
        return TaskState.of({"operators": [{"segment": name} for name in (*names, *inline)], "inline": inline})

    require_segments(store, layout, {(1, 0): state(there, tiny="text"), (0, 0): state()})
    with pytest.raises(
        StateCorrupt, match=r"of the 3 segments .* 2 are missing in .*: segments-2/0/1/x\.arrow, segments-2/1/0/y\.arrow\."
    ):
        require_segments(store, layout, {(1, 0): state(there, "y"), (0, 1): state("x")})
    with pytest.raises(StateCorrupt, match=r" and 5 more\. .*state=discard"):
        require_segments(store, layout, {(0, 0): state(*(f"s{number}" for number in range(25)))})

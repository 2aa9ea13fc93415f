"""Files of a query: scratch of the launch that runs, and segments that must be there."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import polars as pl
import pytest

from engine.commit.task_states import Layout, TaskState
from engine.errors import StateCorrupt
from engine.runtime.checkpoint import begin_run, discard_scratch, note_planned, planned_batch, run_of
from engine.runtime.launches.launch_state import require_segments
from engine.state.segments.directories import Directories

CHECKPOINT = UUID(int=7)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / str(CHECKPOINT)


def test_a_launch_begins_with_an_empty_directory_and_removes_those_before(directory: Path) -> None:
    first = begin_run(directory, 1, 0)
    note_planned(first, 1)
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


def test_what_a_launch_has_planned_is_known_by_its_epoch_and_only_where_it_ran(directory: Path) -> None:
    assert run_of(directory, 3) is None
    run = begin_run(directory, 3, 40)
    assert run_of(directory, 3) == run
    assert planned_batch(run) is None
    note_planned(run, 49)
    note_planned(run, 50)
    assert planned_batch(run) == 50
    assert run_of(directory, 4) is None, "the next launch was on another host"


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

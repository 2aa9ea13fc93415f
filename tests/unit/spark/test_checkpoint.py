"""One directory per launch: taken over by renaming, and what stays fixed inside it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from engine.errors import EpochFenced, StateNewer
from engine.spark.checkpoint import Layout, Positions, open_layout, prepare_checkpoint
from engine.spark.seals import sealed

CHECKPOINT = UUID(int=7)


def nowhere() -> Positions:
    return {"log:a": {"0": 0}}


def test_the_first_launch_begins_with_an_empty_directory(tmp_path: Path) -> None:
    directory = prepare_checkpoint(tmp_path, CHECKPOINT, 1)
    assert directory == tmp_path.resolve() / str(CHECKPOINT) / "epoch-0000000001"
    assert list(directory.iterdir()) == []


def test_the_next_launch_takes_the_directory_over(tmp_path: Path) -> None:
    first = prepare_checkpoint(tmp_path, CHECKPOINT, 1)
    (first / "state").write_text("kept")
    second = prepare_checkpoint(tmp_path, CHECKPOINT, 4)
    assert (second / "state").read_text() == "kept"
    assert not first.exists()


def test_preparing_the_same_launch_again_changes_nothing(tmp_path: Path) -> None:
    first = prepare_checkpoint(tmp_path, CHECKPOINT, 1)
    (first / "state").write_text("kept")
    assert prepare_checkpoint(tmp_path, CHECKPOINT, 1) == first
    assert (first / "state").read_text() == "kept"


def test_an_older_launch_is_fenced_off(tmp_path: Path) -> None:
    prepare_checkpoint(tmp_path, CHECKPOINT, 5)
    with pytest.raises(EpochFenced):
        prepare_checkpoint(tmp_path, CHECKPOINT, 4)


def test_what_a_late_driver_wrote_does_not_count(tmp_path: Path) -> None:
    first = prepare_checkpoint(tmp_path, CHECKPOINT, 1)
    second = prepare_checkpoint(tmp_path, CHECKPOINT, 2)
    (second / "state").write_text("right")
    first.mkdir()
    (first / "state").write_text("late")
    third = prepare_checkpoint(tmp_path, CHECKPOINT, 3)
    assert (third / "state").read_text() == "right"
    assert not first.exists()


def test_state_metadata_names_the_new_directory(tmp_path: Path) -> None:
    first = prepare_checkpoint(tmp_path, CHECKPOINT, 1)
    metadata = first / "spark" / "state" / "0" / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f'v2\n{{"stateSchemaFilePaths":["file:{first}/spark/state/0/_stateSchema/default/0_a"]}}')
    second = prepare_checkpoint(tmp_path, CHECKPOINT, 2)
    text = (second / "spark" / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    assert f"file:{second}/spark/state/0/_stateSchema/default/0_a" in text
    assert "epoch-0000000001" not in text


def test_another_checkpoint_begins_on_its_own(tmp_path: Path) -> None:
    (prepare_checkpoint(tmp_path, CHECKPOINT, 1) / "state").write_text("kept")
    assert list(prepare_checkpoint(tmp_path, UUID(int=8), 2).iterdir()) == []


def test_a_layout_outlives_other_settings(tmp_path: Path) -> None:
    layout = open_layout(tmp_path, 2, 2, nowhere)
    assert layout == Layout(2, (2, 0), {"log:a": {"0": 0}}, hash_seed=layout.hash_seed)
    assert open_layout(tmp_path, 2, 8, lambda: {"log:a": {"0": 99}}) == layout


def test_a_layout_keeps_its_number_of_tasks_until_the_state_is_shared_out(tmp_path: Path) -> None:
    layout = open_layout(tmp_path, 2, 2, nowhere)
    assert open_layout(tmp_path, 4, 2, nowhere) == layout


def test_a_layout_of_the_first_format_is_read(tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text('{"format": 1, "partitions": 2, "tasks": [2, 0], "start": {"log:a": {"0": 7}}}')
    assert open_layout(tmp_path, 2, 8, nowhere) == Layout(2, (2, 0), {"log:a": {"0": 7}})


def test_every_new_checkpoint_has_a_seed_of_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    seeds = {open_layout(tmp_path / name, 2, 2, nowhere).hash_seed for name in ("a", "b")}
    assert len(seeds) == 2


def test_a_layout_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    open_layout(tmp_path, 2, 2, nowhere)
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), "format": 4})))
    with pytest.raises(StateNewer, match="format 4"):
        open_layout(tmp_path, 2, 2, nowhere)


def test_state_metadata_names_the_new_directory_after_the_checkpoint_was_moved(tmp_path: Path) -> None:
    first = prepare_checkpoint(tmp_path / "local", CHECKPOINT, 1)
    metadata = first / "spark" / "state" / "0" / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    paths = [f"file:{first}/spark/state/0/_stateSchema/{name}/0_a" for name in ("default", "other")]
    metadata.write_text("v2\n" + json.dumps({"stateSchemaFilePaths": paths}))
    (tmp_path / "local").rename(tmp_path / "shared")
    second = prepare_checkpoint(tmp_path / "shared", CHECKPOINT, 2)
    text = (second / "spark" / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    assert json.loads(text.removeprefix("v2\n"))["stateSchemaFilePaths"] == [
        f"file:{second}/spark/state/0/_stateSchema/{name}/0_a" for name in ("default", "other")
    ]


def test_a_link_on_the_way_is_kept_for_hosts_where_it_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mounted")
    assert prepare_checkpoint(tmp_path / "link", CHECKPOINT, 1).is_relative_to(tmp_path / "link")

"""What a task begins with after a change of the number of tasks: read as it was written, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import StateCorrupt
from engine.spark.repartition import seed_of, write_seed

STATE = {"format": 2, "next_pos": 1234, "operators": {"count": {"groups": [], "stream_time": None}}}


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    folder = tmp_path / "segments-1"
    for ordinal, state in enumerate((STATE, None)):
        write_seed(folder, 0, ordinal, state)
    return folder


def test_a_seed_is_what_was_written_and_of_a_task_that_never_ran_nothing(segments: Path) -> None:
    assert seed_of(segments, 0, 0) == STATE
    assert seed_of(segments, 0, 1) is None


def test_a_task_whose_number_never_changed_has_no_seed(tmp_path: Path) -> None:
    assert seed_of(tmp_path / "segments", 0, 0) is None


@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_seed_that_is_gone_is_not_taken_for_none(segments: Path, ordinal: int) -> None:
    (segments / "0" / f"{ordinal}.json").unlink()
    with pytest.raises(StateCorrupt, match="is missing"):
        seed_of(segments, 0, ordinal)


@pytest.mark.parametrize(("written", "found"), [("1234", "1235"), ("}", ""), ('{"format"', '["format"')])
def test_a_damaged_seed_is_refused(segments: Path, written: str, found: str) -> None:
    path = segments / "0" / "0.json"
    path.write_text(path.read_text().replace(written, found, 1))
    with pytest.raises(StateCorrupt, match="is damaged"):
        seed_of(segments, 0, 0)

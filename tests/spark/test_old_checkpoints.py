"""Checkpoints as versions before format 4 kept them, in Spark's state store, are taken over and give what they gave.

``tests/stored/checkpoint-3.tar.xz`` was made by the last such version from the records of ``test_tasks``: after the first minute's flights with
one task (``first``), after its state was shared out among two that had committed nothing (``shared``), and after the second minute's
(``second``). Each has the directory and the row of ``log.commit``.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from engine.errors import StateCorrupt
from engine.plan.model import Plan
from tests.spark.conftest import Launcher
from tests.spark.test_tasks import fly, plan, released, rows, waiting
from tests.stored.archive import FOLDER, unpack

pytestmark = pytest.mark.spark
__all__ = ["plan"]

IDENTITY = UUID("3624fe98-679b-4f2c-bde8-8f70220bd69f")
MINUTES = {"first": 1, "shared": 1, "second": 2}
TASKS = {"first": 1, "shared": 2, "second": 2}


def put_back(launcher: Launcher, name: str, aside: Path) -> Path:
    """Bring records, results' position and directory to where they were; returns the directory."""
    unpack(FOLDER / "checkpoint-3.tar.xz", aside)
    for minute in range(1, MINUTES[name] + 1):
        fly(launcher, minute)
    shutil.copytree(aside / name / "checkpoint", launcher.directory(IDENTITY))
    batch_id, position, detail, stream_time_ms = json.loads((aside / name / "commit.json").read_text())
    with launcher.connect() as connection:
        connection.execute(
            """
            INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, position, detail, stream_time_ms)
            VALUES (%s, %s, 5, %s, %s, %s, %s)
            """,
            (IDENTITY, IDENTITY, batch_id, Jsonb(position), Jsonb(detail), stream_time_ms),
        )
    (directory,) = launcher.directory(IDENTITY).iterdir()
    return directory


@pytest.mark.parametrize(("name", "tasks"), [("first", 1), ("shared", 2), ("second", 2), ("second", 3)])
def test_an_old_checkpoint_goes_on(launcher: Launcher, plan: Plan, tmp_path: Path, name: str, tasks: int) -> None:
    old = put_back(launcher, name, tmp_path / "aside")
    if name == "second":  # as if Spark had been stopped before it marked the batch as done
        (old / "spark" / "commits" / "1").unlink()
    minutes = MINUTES[name]
    fly(launcher, minutes + 1)
    launcher.run(replace(plan, tasks=tasks), IDENTITY, epoch=6)
    assert rows(launcher) == released([*range(1, minutes + 1)])
    assert waiting(launcher, IDENTITY) == 15
    kept = launcher.kept(IDENTITY)
    assert kept.layout is not None
    assert (kept.layout.tasks, kept.batch_id) == (tasks, minutes)
    assert not old.exists()
    fly(launcher, minutes + 2)
    launcher.run(replace(plan, tasks=tasks), IDENTITY, epoch=7)
    assert rows(launcher) == released([*range(1, minutes + 2)])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("layout.json", "holds no state"),
        ("spark/offsets/1", "does not know"),
        ("segments-1/*/*/*.arrow", "are missing"),
        ("spark/state/*/[0-9]*/*", "cannot be read"),
    ],
)
def test_a_damaged_old_checkpoint_is_refused_and_nothing_has_changed(
    launcher: Launcher, plan: Plan, tmp_path: Path, path: str, told: str
) -> None:
    old = put_back(launcher, "second", tmp_path / "aside")
    for found in [*old.glob(path)]:
        if found.is_file():
            found.unlink()
    with pytest.raises(StateCorrupt, match=told):
        launcher.run(replace(plan, tasks=2), IDENTITY, epoch=6)
    assert launcher.kept(IDENTITY).layout is None

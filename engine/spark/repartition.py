"""Another number of tasks: every stage's state is shared out among new tasks, and these take its place at once.

What the new tasks keep goes into a new folder of this launch. One transaction makes it count: it puts their manifests and the new layout in
the place of the old ones. A crash before it leaves a folder that nobody names, one after it the old folder; the next launch removes either.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from engine.connectors.task_states import Layout, Place, TaskState
from engine.core.hashing import KeyHash
from engine.core.repartition.tasks import repartitioned
from engine.errors import InvariantBroken
from engine.plan.model import Plan, Stage
from engine.spark.checkpoint import segments_of
from engine.spark.stages import KEPT_BATCHES
from engine.state.files import FileSegmentStore
from engine.state.in_manifest import ManifestSegmentStore

Tell = Callable[[], None]


class _TellingStore(ManifestSegmentStore):
    """Tells of each segment that is read or written."""

    def __init__(self, files: FileSegmentStore, kept: Mapping[str, Any] | None, batch_id: int, tell: Tell) -> None:
        super().__init__(files, kept)
        files.begin(batch_id)
        self._tell = tell

    def load(self, segment_id: str) -> pl.DataFrame:
        self._tell()
        return super().load(segment_id)

    def save(self, frame: pl.DataFrame) -> str:
        self._tell()
        return super().save(frame)


def shared_out(
    plan: Plan,
    directory: Path,
    before: Layout,
    states: Mapping[Place, TaskState],
    batch_id: int,
    epoch: int,
    tell: Tell | None = None,
) -> tuple[Layout, dict[Place, TaskState]]:
    """Share the state out among the plan's number of tasks.

    Args:
        plan: the query's plan, for the new number.
        directory: of the checkpoint.
        before: of the state.
        states: of all tasks that have any.
        batch_id: the next batch.
        epoch: the launch.
        tell: called for each segment on the way: large state takes minutes.

    Returns:
        Layout and states to be put in the place of those before; all segments they name are synced.

    Raises:
        StateCorrupt: the state cannot be read.
        RepartitionPremature: see there.
    """
    tell = tell or _tell_nobody
    generation = before.generation + 1
    after = replace(before, tasks=plan.tasks, generation=generation, segments=segments_of(generation, epoch))
    shutil.rmtree(directory / after.segments, ignore_errors=True)
    found: dict[Place, TaskState] = {}
    for stage in plan.stages:
        parts = [_state(plan, stage, states.get((stage.index, task))) for task in range(before.tasks)]
        old, new = (
            [
                _TellingStore(_files(directory / layout.segments / str(stage.index) / str(task), layout), kept, batch_id, tell)
                for task, kept in enumerate(manifests)
            ]
            for layout, manifests in ((before, parts), (after, [None] * after.tasks))
        )
        for task, state in enumerate(repartitioned(stage, plan, list(zip(parts, old, strict=True)), new)):
            if state is not None:
                found[stage.index, task] = TaskState.of(new[task].completed(state))
    return after, found


def _state(plan: Plan, stage: Stage, kept: TaskState | None) -> dict[str, Any] | None:
    """Return what a task kept."""
    if kept is None:
        return None
    state: dict[str, Any] = json.loads(kept.manifest)
    if not {*state["operators"]} <= {operator.name for operator in stage.operators}:
        raise InvariantBroken(
            f"stage {stage.index} of {plan.query} keeps the state of {[*state['operators']]}: not its operators"
        )
    return state


def _files(root: Path, layout: Layout) -> FileSegmentStore:
    return FileSegmentStore(root, KEPT_BATCHES, hashing=KeyHash(layout.hash_seed))


def _tell_nobody() -> None:
    return None

"""Another number of tasks: every stage's state is split among new tasks, which replace the old ones at once.

The new tasks' segments go into a new folder of this launch. One transaction replaces the manifests and the layout, and makes the folder
count. A crash before it leaves a folder that nothing names. The old folder stays for the retention
(``engine.commit.history.segment_collector``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from engine.commit.task_states import Layout, Place, TaskState
from engine.errors import InvariantBroken
from engine.frames.hashing import KeyHash
from engine.operators.tasks.rescaling import repartitioned
from engine.plan.model import Plan, Stage
from engine.runtime.checkpoint import segments_of
from engine.state.segments.in_manifest import ManifestSegmentStore
from engine.state.segments.ports import SegmentStore, StateStore, task_folder

Tell = Callable[[], None]


class _TellingStore(ManifestSegmentStore):
    """Calls ``tell`` for each segment that is read or written."""

    def __init__(self, behind: SegmentStore, manifest: Mapping[str, Any] | None, tell: Tell) -> None:
        super().__init__(behind, manifest)
        self._tell = tell

    def load(self, segment_id: str) -> pl.DataFrame:
        self._tell()
        return super().load(segment_id)

    def save(self, frame: pl.DataFrame) -> str:
        self._tell()
        return super().save(frame)


def shared_out(
    plan: Plan,
    segments: StateStore,
    before: Layout,
    states: Mapping[Place, TaskState],
    epoch: int,
    tell: Tell | None = None,
) -> tuple[Layout, dict[Place, TaskState]]:
    """Split the state among the plan's number of tasks.

    Args:
        plan: the query's plan, for the new number.
        segments: of the checkpoint.
        before: of the state.
        states: of all tasks that have any.
        epoch: the launch.
        tell: called for each segment on the way: large state takes minutes.

    Returns:
        Layout and states that replace the old ones; all segments they name are durable.

    Raises:
        StateCorrupt: the state cannot be read.
    """
    tell = tell or _tell_nobody
    generation = before.generation + 1
    after = replace(before, tasks=plan.tasks, generation=generation, segments=segments_of(generation, epoch))
    found: dict[Place, TaskState] = {}
    for stage in plan.stages:
        parts = [_state(plan, stage, states.get((stage.index, task))) for task in range(before.tasks)]
        old, new = (
            [
                _TellingStore(
                    segments.task(task_folder(layout.segments, stage.index, task), KeyHash(layout.hash_seed)), kept, tell
                )
                for task, kept in enumerate(manifests)
            ]
            for layout, manifests in ((before, parts), (after, [None] * after.tasks))
        )
        for task, state in enumerate(repartitioned(stage, plan, list(zip(parts, old, strict=True)), new)):
            if state is not None:
                found[stage.index, task] = TaskState.of(new[task].completed(state))
    return after, found


def _state(plan: Plan, stage: Stage, kept: TaskState | None) -> dict[str, Any] | None:
    """Return a task's stored state."""
    if kept is None:
        return None
    state: dict[str, Any] = json.loads(kept.manifest)
    if not {*state["operators"]} <= {operator.name for operator in stage.operators}:
        raise InvariantBroken(
            f"stage {stage.index} of {plan.query} keeps the state of {[*state['operators']]}: not its operators"
        )
    return state


def _tell_nobody() -> None:
    return None

"""Another number of tasks for a checkpoint: every stage's state is shared out among new tasks, and these take its place at once.

New tasks have ids that none before them had, so Spark's state holds nothing under them. What each takes over lies beside its segments,
in a new folder ``segments-<n>/<stage>``, as ``<task>.json``: the *seed*, which counts until the task commits a manifest of its own. Nothing
of the old state is touched. One step makes it count: ``layout.json`` is replaced by one that names the new ids and the new folder. A crash
before it leaves an unused folder, one after it the old state; the next launch removes either. Spark's batches go on as they were, so what
was planned and not committed is done by the new tasks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import structlog

from engine.core.hashing import KeyHash
from engine.core.repartition.tasks import repartitioned
from engine.errors import STATE_CURE, InvariantBroken, StateCorrupt
from engine.plan.model import Plan, Stage
from engine.spark.checkpoint import FIRST_SEGMENTS, MIN_BATCHES_TO_RETAIN, Layout, write_layout
from engine.spark.inspection import write_synced
from engine.spark.seals import SEAL, is_whole, sealed
from engine.spark.task_ids import task_ids
from engine.state.files import FileSegmentStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[], None]

MANIFEST = "manifest"
"""Name of the state variable that holds a task's manifest."""

log = structlog.stdlib.get_logger(__name__)


class _TellingStore(FileSegmentStore):
    """Tells of each segment that is read or written."""

    def __init__(self, root: Path, hash_seed: int, tell: Tell) -> None:
        super().__init__(root, MIN_BATCHES_TO_RETAIN, hashing=KeyHash(hash_seed))
        self._tell = tell

    def load(self, segment_id: str) -> pl.DataFrame:
        self._tell()
        return super().load(segment_id)

    def save(self, frame: pl.DataFrame) -> str:
        self._tell()
        return super().save(frame)


def fit_tasks(
    spark: SparkSession, plan: Plan, directory: Path, layout: Layout, batch_id: int | None, tell: Tell | None = None
) -> Layout:
    """Return the layout for the plan's number of tasks, after changing the state to it where that is another; clean up behind it.

    Args:
        spark: the driver's session.
        plan: the query's plan.
        directory: of the launch.
        layout: of the checkpoint.
        batch_id: the newest batch that the results hold, None where they hold none.
        tell: called for each segment on the way: large state takes minutes.

    Raises:
        StateCorrupt: the state cannot be read.
        RepartitionPremature: see there.
    """
    if plan.tasks != len(layout.tasks):
        layout = _changed(spark, plan, directory, layout, batch_id, tell or _tell_nobody)
    for folder in directory.glob("segments*"):
        if folder.name != layout.segments:
            shutil.rmtree(folder)
    return layout


def seed_of(segments: Path, stage: int, ordinal: int) -> dict[str, Any] | None:
    """Return what a task that has committed nothing yet begins with, None for nothing.

    Args:
        segments: the folder of all stages' segments.
        stage: index of the stage.
        ordinal: of the task.

    Raises:
        StateCorrupt: it is missing or damaged.
    """
    path = _seed_path(segments, stage, ordinal)
    try:
        seed = json.loads(path.read_bytes())
    except FileNotFoundError:
        if segments.name == FIRST_SEGMENTS:
            return None
        raise StateCorrupt(f"{path} is missing. {STATE_CURE}") from None
    except ValueError as error:
        raise StateCorrupt(f"{path} is damaged: {error}. {STATE_CURE}") from error
    if not isinstance(seed, dict) or not is_whole(seed):
        raise StateCorrupt(f"{path} is damaged: it is not what was written. {STATE_CURE}")
    return {name: value for name, value in seed.items() if name != SEAL} or None


def write_seed(segments: Path, stage: int, ordinal: int, state: dict[str, Any] | None) -> None:
    """Write what ``seed_of`` is to return, None too: that there is nothing is told from the file's being lost."""
    path = _seed_path(segments, stage, ordinal)
    path.parent.mkdir(parents=True, exist_ok=True)
    as_read: dict[str, Any] = json.loads(json.dumps(state or {}))
    write_synced(path, json.dumps(sealed(as_read), separators=(",", ":")))


def _seed_path(segments: Path, stage: int, ordinal: int) -> Path:
    return segments / str(stage) / f"{ordinal}.json"


def _tell_nobody() -> None:
    return None


def _changed(spark: SparkSession, plan: Plan, directory: Path, before: Layout, batch_id: int | None, tell: Tell) -> Layout:
    """Share the state out, and let that count."""
    retired = (*before.retired, *before.tasks)
    ids = task_ids(plan.tasks, before.partitions, retired)
    after = replace(before, tasks=ids, generation=before.generation + 1, retired=retired)
    segments = directory / after.segments
    shutil.rmtree(segments, ignore_errors=True)
    for stage in plan.stages:
        old, new = (
            [_store(directory / layout.segments, layout.hash_seed, stage, place, tell) for place in range(len(layout.tasks))]
            for layout in (before, after)
        )
        states = _states(spark, plan, directory, before, stage, batch_id)
        for place, state in enumerate(repartitioned(stage, plan, list(zip(states, old, strict=True)), new)):
            write_seed(segments, stage.index, place, state)
    write_layout(directory, after)
    log.info("tasks_changed", query=plan.query, before=len(before.tasks), after=len(after.tasks))
    return after


def _store(segments: Path, hash_seed: int, stage: Stage, place: int, tell: Tell) -> FileSegmentStore:
    return _TellingStore(segments / str(stage.index) / str(place), hash_seed, tell)


def _states(
    spark: SparkSession, plan: Plan, directory: Path, layout: Layout, stage: Stage, batch_id: int | None
) -> list[dict[str, Any] | None]:
    """Return what each task of a stage kept as of a batch: its manifest, its seed, or None."""
    manifests = {} if batch_id is None else _manifests(spark, directory, len(plan.stages) - 1 - stage.index, batch_id)
    states: list[dict[str, Any] | None] = []
    for place, task in enumerate(layout.tasks):
        manifest = manifests.get(task)
        state = seed_of(directory / layout.segments, stage.index, place) if manifest is None else json.loads(manifest)
        if state is not None and not {*state["operators"]} <= {operator.name for operator in stage.operators}:
            raise InvariantBroken(
                f"stage {stage.index} of {plan.query} keeps the state of {[*state['operators']]}: not its operators"
            )
        states.append(state)
    return states


def _manifests(spark: SparkSession, directory: Path, operator: int, batch_id: int) -> dict[int, str]:
    """Read Spark's state of a stage as of a batch; Spark numbers stateful operators from the last one on."""
    reader = spark.read.format("statestore").option("path", str(directory / "spark")).option("operatorId", operator)
    rows = reader.option("stateVarName", MANIFEST).option("batchId", batch_id).load().collect()
    return {row.key.task: row.value.manifest for row in rows}

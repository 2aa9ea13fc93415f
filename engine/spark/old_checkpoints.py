"""State as versions before format 4 kept it, in Spark's state store: read once, by the first launch of this version.

``<checkpoint id>/epoch-<n>/`` held ``spark`` (Spark's checkpoint, with a manifest for each task in its state store), ``segments`` or
``segments-<n>``, and ``layout.json``. Tasks had ids there that spread over Spark's partitions; after a change of their number a task that had
committed nothing yet had its manifest in a file beside its segments. Nothing is changed before all was read; the segments then move, and the
caller commits the rest. A crash in between leaves what the next launch reads in the same way.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.commit.task_states import Cursor, Layout, Place, TaskState
from engine.errors import STATE_CURE, StateCorrupt, StateNewer
from engine.plan.model import Plan
from engine.runtime.planning.cursors import new_cursor
from engine.state.segments.ports import FIRST_SEGMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEWEST_FORMAT: Final = 3
_EPOCH: Final = re.compile(r"epoch-(\d{10})")
_MANIFEST: Final = "manifest"
_SEAL: Final = "crc"
_DONE: Final = 'v1\n{"nextBatchWatermarkMs":0}'
"""What Spark wrote into ``commits/<batch>`` of a query without watermarks."""


@dataclass(frozen=True, slots=True)
class OldState:
    """What was found.

    Attributes:
        layout: of the state.
        cursor: where the newest batch that the results hold ends; without any, where reading begins.
        states: of the tasks that have any.
    """

    layout: Layout
    cursor: Cursor
    states: Mapping[Place, TaskState]


def take_over(spark: SparkSession, plan: Plan, directory: Path, batch_id: int | None) -> OldState | None:
    """Read an old checkpoint as of a batch, and move its segments to where they belong now.

    Args:
        spark: the driver's session.
        plan: of the query; its number of tasks may be another one.
        directory: of the checkpoint.
        batch_id: the newest batch that the results hold, None where they hold none.

    Returns:
        None where there is no old checkpoint.

    Raises:
        StateCorrupt: it is damaged, incomplete, or lacks the batch.
        StateNewer: its format is none that was kept in files.
    """
    epochs = sorted(path for path in directory.glob("epoch-*") if _EPOCH.fullmatch(path.name))
    if not epochs or not (epochs[-1] / "layout.json").exists():
        if batch_id is not None:
            raise StateCorrupt(f"the results hold batch {batch_id}, and {directory} holds no state. {STATE_CURE}")
        return None
    old = epochs[-1]
    said = _sealed_json(old / "layout.json")
    if said["format"] > NEWEST_FORMAT:
        raise StateNewer.of("the checkpoint's layout", said["format"], NEWEST_FORMAT)
    ids, generation = said["tasks"], said.get("generation", 0)
    folder = f"{FIRST_SEGMENTS}-{generation}" if generation else FIRST_SEGMENTS
    layout = Layout(len(ids), generation, said.get("hash_seed", 0), folder)
    segments = _moved(old / layout.segments, directory / layout.segments)
    if batch_id is None:
        return OldState(layout, new_cursor(said["start"], plan.release, generation), {})
    _finish(old / "spark", batch_id)
    _correct_paths(directory, old)
    states = {
        (stage.index, task): state
        for stage in plan.stages
        for task, state in enumerate(_states(spark, plan, old, segments, ids, stage.index, batch_id))
        if state is not None
    }
    return OldState(layout, _cursor(old / "spark" / "offsets" / str(batch_id)), states)


def remove_old(directory: Path) -> None:
    """Remove what has been taken over."""
    for path in directory.glob("epoch-*"):
        shutil.rmtree(path, ignore_errors=True)


def _moved(source: Path, target: Path) -> Path:
    """Move segments; they are where they belong already where a launch was killed behind this."""
    if source.exists():
        source.rename(target)
    return target


def _states(
    spark: SparkSession, plan: Plan, old: Path, segments: Path, ids: list[int], stage: int, batch_id: int
) -> list[TaskState | None]:
    """Return the state of each task of a stage; Spark numbers stateful operators from the last one on."""
    reader = spark.read.format("statestore").option("path", str(old / "spark")).option("operatorId", len(plan.stages) - 1 - stage)
    try:
        rows = reader.option("stateVarName", _MANIFEST).option("batchId", batch_id).load().collect()
    except Exception as error:
        raise StateCorrupt(f"the state in {old} cannot be read: {str(error)[:500]}. {STATE_CURE}") from error
    manifests = {row.key.task: row.value.manifest for row in rows}
    found: list[TaskState | None] = []
    for task, known in enumerate(ids):
        manifest = json.loads(manifests[known]) if known in manifests else _seed(segments, stage, task)
        found.append(None if manifest is None else TaskState.of(manifest))
    return found


def _seed(segments: Path, stage: int, task: int) -> dict[str, Any] | None:
    path = segments / str(stage) / f"{task}.json"
    if segments.name == FIRST_SEGMENTS:
        return None
    return {name: value for name, value in _sealed_json(path).items() if name != _SEAL} or None


def _cursor(path: Path) -> Cursor:
    """Return what our source had planned, of a file of Spark's offset log."""
    try:
        offset = json.loads(path.read_text().split("\n")[2])
    except (OSError, ValueError, IndexError) as error:
        raise StateCorrupt(f"{path} cannot be read: {error}. {STATE_CURE}") from error
    if not isinstance(offset, dict) or not _is_whole(offset):
        raise StateCorrupt(f"{path} is damaged: the positions are not those that were written. {STATE_CURE}")
    return {"release": 0, "generation": 0} | {name: value for name, value in offset.items() if name not in (_SEAL, "incarnation")}


def _finish(spark: Path, batch_id: int) -> None:
    """Mark the newest batch that the results hold as done, where Spark was stopped before it could: every task had committed its state."""
    if not (spark / "offsets" / str(batch_id)).exists():
        raise StateCorrupt(f"the results hold batch {batch_id}, which the checkpoint directory does not know. {STATE_CURE}")
    done = spark / "commits" / str(batch_id)
    if not done.exists() or not done.read_bytes().startswith(b"v1\n{"):
        done.parent.mkdir(exist_ok=True)
        done.write_text(_DONE)
        done.with_name(f".{batch_id}.crc").unlink(missing_ok=True)


def _correct_paths(base: Path, old: Path) -> None:
    """Let the metadata of stateful operators name the directory that it is in: Spark wrote full paths, and somebody may have moved it."""
    stale = re.compile(rf'(?<="file:)[^"]*/{re.escape(base.name)}/{_EPOCH.pattern}')
    for path in old.glob("spark/state/*/_metadata/v2/*"):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # damaged, and not the newest perhaps: Spark says so otherwise
        corrected = stale.sub(lambda _: str(old), text)
        if corrected != text:
            path.write_text(corrected)


def _sealed_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StateCorrupt(f"{path} cannot be read: {error}. {STATE_CURE}") from error
    if not isinstance(value, dict) or not _is_whole(value):
        raise StateCorrupt(f"{path} is damaged: it is not what was written. {STATE_CURE}")
    return value


def _is_whole(value: Mapping[str, Any]) -> bool:
    """Whether a value is as it was sealed; of one without a seal nothing can be said."""
    content = {name: each for name, each in value.items() if name != _SEAL}
    return _SEAL not in value or value[_SEAL] == zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())

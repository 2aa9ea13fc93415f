"""Where a query keeps its state, one directory per launch, and what must never change inside it.

``<root>/<checkpoint id>/epoch-<n>/`` holds ``spark`` (Spark's own checkpoint), ``segments/<stage>/<task>`` (files of state; after a change
of the number of tasks ``segments-<n>``, see ``engine.spark.repartition``) and ``layout.json``. A launch takes the directory over by
renaming it to its own epoch, so a late driver of an older epoch writes nowhere that counts.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from engine.errors import STATE_CURE, EpochFenced, StateCorrupt, StateNewer
from engine.spark.inspection import DONE, inspect_checkpoint, is_done, numbered, write_synced
from engine.spark.seals import is_whole, sealed
from engine.spark.task_ids import task_ids
from engine.state.files import sync_directory

LAYOUT_FORMAT = 3
"""Raised when the file's meaning changes. Format 1 knew no change of the number of tasks, format 2 no seed of hashes."""

MIN_BATCHES_TO_RETAIN = 5
"""Spark only ever goes back by one batch; the rest is room for looking at what happened. Segments are kept as long."""

FIRST_SEGMENTS = "segments"
"""Folder of segments until the number of tasks changes."""

_EPOCH = re.compile(r"epoch-(\d{10})")

Positions = Mapping[str, Mapping[str, int]]
"""Feed → partition (text, as JSON has it) → next offset."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a checkpoint was made with.

    Attributes:
        partitions: shuffle partitions; Spark too keeps to the number of the first batch.
        tasks: task ids by ordinal: the keys of Spark's state.
        start: where reading began. Spark does not record it before the first batch is done, and "latest" moves on.
        generation: how often the number of tasks has changed.
        retired: ids of tasks before that: what Spark's state has under them counts no more.
        hash_seed: of the hashes of keys (``engine.core.hashing``); 0 in a checkpoint of a version that knew none.
    """

    partitions: int
    tasks: tuple[int, ...]
    start: Positions
    generation: int = 0
    retired: tuple[int, ...] = ()
    hash_seed: int = 0

    @property
    def segments(self) -> str:
        """Name of the folder of segments."""
        return f"{FIRST_SEGMENTS}-{self.generation}" if self.generation else FIRST_SEGMENTS


def prepare_checkpoint(root: Path, checkpoint_id: UUID, epoch: int) -> Path:
    """Take over a query's checkpoint for a launch, or begin a new one.

    Raises:
        EpochFenced: a newer launch has taken it.
    """
    # Links stay: executors on other hosts know the path that was set, and there a link may lead elsewhere.
    base = root.absolute() / str(checkpoint_id)
    base.mkdir(parents=True, exist_ok=True)
    target = base / f"epoch-{epoch:010d}"
    found = sorted(path for path in base.iterdir() if _EPOCH.fullmatch(path.name))
    if found and found[-1] > target:
        raise EpochFenced(f"checkpoint {checkpoint_id} belongs to {found[-1].name}, this launch is epoch {epoch}")
    if not found:
        target.mkdir()
    elif found[-1] != target:
        found[-1].rename(target)
    # Older ones were written by drivers that woke up after their epoch was taken.
    for left in found[:-1]:
        shutil.rmtree(left, ignore_errors=True)
    _correct_paths(base, target)
    sync_directory(base)
    return target


def planned_batch(root: Path, checkpoint_id: UUID) -> int | None:
    """Return the newest batch that Spark has planned in a checkpoint that no launch has taken over yet; None for no batch."""
    found = [number for offsets in (root / str(checkpoint_id)).glob("epoch-*/spark/offsets") for number in numbered(offsets)]
    return max(found, default=None)


def open_layout(directory: Path, tasks: int, partitions: int, start: Callable[[], Positions]) -> Layout:
    """Read the layout of a checkpoint directory, or write a new one.

    Args:
        directory: as returned by ``prepare_checkpoint``.
        tasks: number of tasks of the plan; only counts for a new checkpoint.
        partitions: shuffle partitions of the session; only counts for a new checkpoint.
        start: asked for the positions where reading begins; only called for a new checkpoint.

    Raises:
        StateCorrupt: it is damaged.
        StateNewer: a newer version made it.
    """
    path = directory / "layout.json"
    if path.exists():
        return _read_layout(path)
    layout = Layout(partitions, task_ids(tasks, partitions), start(), hash_seed=secrets.randbits(64))
    write_layout(directory, layout)
    return layout


def write_layout(directory: Path, layout: Layout) -> None:
    """Put a layout in the place of the one before, at once."""
    write_synced(directory / "layout.json", json.dumps(sealed({"format": LAYOUT_FORMAT, **asdict(layout)})))


def finish_batch(directory: Path, batch_id: int | None) -> None:
    """Inspect the checkpoint, and mark the newest batch that the results hold as done, where Spark was stopped before it could.

    When the sink commits a batch, every task has committed its state. Spark would still repeat it, and after an edit in place (another
    grace) the repetition would emit something else than what the results hold.

    Args:
        directory: as returned by ``prepare_checkpoint``.
        batch_id: the batch, None where the results hold none.

    Raises:
        StateCorrupt: it is damaged; or the directory has never planned that batch: it is another checkpoint's, or an older copy.
    """
    layout = directory / "layout.json"
    inspect_checkpoint(directory, batch_id, _read_layout(layout).partitions if layout.exists() else None)
    if batch_id is None:
        return
    spark = directory / "spark"
    if not (spark / "offsets" / str(batch_id)).exists():
        raise StateCorrupt(f"the results hold batch {batch_id}, which the checkpoint directory does not know. {STATE_CURE}")
    done = spark / "commits" / str(batch_id)
    if not is_done(done):
        write_synced(done, DONE)


def _read_layout(path: Path) -> Layout:
    value = _layout_of(path)
    if value["format"] > LAYOUT_FORMAT:
        raise StateNewer.of("the checkpoint's layout", value["format"], LAYOUT_FORMAT)
    return Layout(
        value["partitions"],
        tuple(value["tasks"]),
        value["start"],
        value.get("generation", 0),
        tuple(value.get("retired", ())),
        value.get("hash_seed", 0),
    )


def _layout_of(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise StateCorrupt(f"{path} is damaged: {error}. {STATE_CURE}") from error
    # Also of a newer version, whose seal is ours or has another name: what is damaged is not taken for newer.
    if not isinstance(value, dict) or not is_whole(value) or not isinstance(value.get("format"), int) or value["format"] < 1:
        raise StateCorrupt(f"{path} is damaged: it is not what was written. {STATE_CURE}")
    return value


def _correct_paths(base: Path, target: Path) -> None:
    """Let the metadata of stateful operators name this launch's directory.

    Spark writes the full path of each state schema into it and would look for them where the directory was before: under an older epoch,
    and on another file system if somebody has moved it.
    """
    stale = re.compile(rf'(?<="file:)[^"]*/{re.escape(base.name)}/{_EPOCH.pattern}')
    for path in target.glob("spark/state/*/_metadata/v2/*"):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # damaged: see ``inspect_checkpoint``
        corrected = stale.sub(lambda _: str(target), text)
        if corrected != text:
            draft = path.with_name(f".{path.name}.draft")
            draft.write_text(corrected)
            draft.replace(path)

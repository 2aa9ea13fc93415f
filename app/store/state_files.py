"""Where queries keep segments of their state on disk, and copying those of one query for another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from engine.connectors.task_states import Place, TaskState
from engine.state.copying import copy_segments
from engine.state.in_manifest import stored_segments

ROOT_FILE = "root.json"


def root_id(root: Path) -> UUID:
    """Return the id of a directory of checkpoints.

    Raises:
        OSError: it is not there, or cannot be read.
        ValueError, KeyError, TypeError, AttributeError: it is not what was written.
    """
    return UUID(json.loads((root / ROOT_FILE).read_bytes())["id"])


def query_directory(checkpoints_dir: Path, query_id: UUID) -> Path:
    """Return where everything a query keeps on disk is."""
    return checkpoints_dir / str(query_id)


def checkpoint_directory(checkpoints_dir: Path, query_id: UUID, checkpoint_id: UUID) -> Path:
    """Return where one checkpoint of a query is."""
    return query_directory(checkpoints_dir, query_id) / str(checkpoint_id)


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The directory of checkpoints as a service sees it.

    Attributes:
        root: holds a directory for each query, and in it one for each checkpoint.
    """

    root: Path

    def is_root(self, wanted: UUID) -> bool:
        """Whether this is the directory of that id; drivers give it one."""
        try:
            return root_id(self.root) == wanted
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def copy(
        self,
        source: tuple[UUID, UUID],
        target: tuple[UUID, UUID],
        folder: str,
        states: Mapping[Place, TaskState],
        tell: Callable[[], None],
    ) -> None:
        """Copy what the manifests of a query name to the checkpoint of another.

        Args:
            source: the query and its checkpoint.
            target: the query and the checkpoint that get the segments.
            folder: of the segments, in both.
            states: of the tasks.
            tell: see ``copy_segments``.

        Raises:
            SegmentsGone: a segment is not there; what was copied is removed.
            OSError: the disk does not take them; what was copied is removed.
        """
        named = {place: sorted(stored_segments(json.loads(state.manifest))) for place, state in states.items()}
        try:
            copy_segments(
                checkpoint_directory(self.root, *source) / folder, checkpoint_directory(self.root, *target) / folder, named, tell
            )
        except BaseException:
            self.discard(*target)
            raise

    def discard(self, query_id: UUID, checkpoint_id: UUID) -> None:
        """Remove a checkpoint that came to nothing, and the query's directory where it has no other."""
        shutil.rmtree(checkpoint_directory(self.root, query_id, checkpoint_id), ignore_errors=True)
        with suppress(OSError):
            query_directory(self.root, query_id).rmdir()

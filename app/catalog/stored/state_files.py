"""The place of queries' state, and copies from one query to another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import UUID

from app.settings.settings import Settings
from engine.commit.task_states import Place, TaskState
from engine.errors import ExternalError, StateCorrupt
from engine.state.segments.directories import Directories
from engine.state.segments.in_manifest import stored_segments
from engine.state.segments.objects import Objects
from engine.state.segments.ports import SEGMENT_SUFFIX, StateStore, task_folder
from engine.state.segments.segment_cache import SegmentCache

ROOT_FILE: Final = "root.json"

TOLD_EVERY: Final = 500
"""Segments between two signs of life: the database ends a transaction that is silent for a minute."""


class SegmentsGone(Exception):
    """A segment is missing: a newer commit replaced it, or it was removed or damaged."""


def root_id(content: bytes) -> UUID:
    """Return the id in the content of ``root.json``.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is not the original content.
    """
    return UUID(json.loads(content)["id"])


def query_directory(checkpoints_dir: Path, query_id: UUID) -> Path:
    return checkpoints_dir / str(query_id)


def checkpoint_directory(checkpoints_dir: Path, query_id: UUID, checkpoint_id: UUID) -> Path:
    return query_directory(checkpoints_dir, query_id) / str(checkpoint_id)


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The state of all queries, as a service uses it.

    Attributes:
        root: directory of checkpoints; has one directory for each query, and in it one for each checkpoint.
        store: of the segments, which may be in another place.
    """

    root: Path
    store: StateStore

    def is_root(self, wanted: UUID) -> bool:
        """Whether this is the state root with that id; drivers create the id."""
        try:
            content = self.store.get(ROOT_FILE) if isinstance(self.store, Objects) else (self.root / ROOT_FILE).read_bytes()
            return root_id(content) == wanted
        except (OSError, StateCorrupt, ValueError, KeyError, TypeError, AttributeError):
            return False

    def copy(
        self,
        source: tuple[UUID, UUID],
        target: tuple[UUID, UUID],
        folder: str,
        states: Mapping[Place, TaskState],
        tell: Callable[[], None],
    ) -> None:
        """Copy the segments in a query's manifests to the checkpoint of another query. They are durable when this returns.

        Args:
            source: the query and its checkpoint.
            target: the query and the checkpoint that get the segments.
            folder: of the segments, in both.
            states: of the tasks.
            tell: called periodically in the caller's thread.

        Raises:
            SegmentsGone: a segment is missing; the copies are removed.
            ExternalError: a segment cannot be copied now; the copies are removed.
        """
        names = [
            f"{task_folder(folder, *place)}/{segment}{SEGMENT_SUFFIX}"
            for place, state in states.items()
            for segment in sorted(stored_segments(json.loads(state.manifest)))
        ]
        try:
            remaining = iter(names)
            while batch := list(islice(remaining, TOLD_EVERY)):
                self._place(*source).copy(batch, self._place(*target))
                tell()
        except BaseException as error:
            self.discard(*target)
            if isinstance(error, StateCorrupt):
                raise SegmentsGone(str(error)) from error
            raise

    def names(self, query_id: UUID, checkpoint_id: UUID) -> set[str]:
        """Return the names of the segments of a checkpoint.

        Raises:
            ExternalError: the segments cannot be listed now.
        """
        return {segment.name for segment in self._place(query_id, checkpoint_id).listed()}

    def discard(self, query_id: UUID, checkpoint_id: UUID) -> None:
        """Remove an unused checkpoint, and the query's directory if it has no other one."""
        with suppress(ExternalError):  # no commit names it: the collector removes the rest
            self._place(query_id, checkpoint_id).clear()
        shutil.rmtree(checkpoint_directory(self.root, query_id, checkpoint_id), ignore_errors=True)
        with suppress(OSError):
            query_directory(self.root, query_id).rmdir()

    def _place(self, query_id: UUID, checkpoint_id: UUID) -> StateStore:
        return self.store.below(str(query_id)).below(str(checkpoint_id))


def state_store_of(settings: Settings) -> StateStore:
    if settings.state_url is None:
        return Directories(settings.checkpoints_dir)
    return Objects(settings.state_url, SegmentCache(settings.cache_dir, settings.state_cache_bytes))


def state_files_of(settings: Settings) -> StateFiles:
    return StateFiles(settings.checkpoints_dir, state_store_of(settings))

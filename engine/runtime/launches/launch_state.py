"""The state from which a launch resumes: committed state, state of another number of tasks, or none yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from engine.commit.removed_records import as_unread
from engine.commit.task_states import Cursor, Layout, Place, TaskState, begin_state, load_committed_state, load_states, new_layout
from engine.errors import STATE_CURE, StateCorrupt
from engine.plan.model import Plan
from engine.postgres.postgres import Connection
from engine.runtime.launches.repartition import shared_out
from engine.runtime.planning.cursors import Positions, new_cursor, require_readable
from engine.state.segments.directories import Directories
from engine.state.segments.in_manifest import names_of
from engine.state.segments.objects import Objects
from engine.state.segments.ports import StateStore

MAX_NAMED: Final = 20
"""The most missing segments that an error names."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LaunchState:
    """The committed state at the start of a launch.

    Attributes:
        cursor: where its first batch begins.
        layout: of the state, for the plan's number of tasks.
    """

    first_batch: int
    cursor: Cursor
    layout: Layout


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch, and where its query keeps its state.

    Attributes:
        checkpoint_id: names its state; a new id begins a new state.
        epoch: the launch; it holds the fence (``claim_epoch``).
        directory: of the checkpoint, on this host.
        elsewhere: the store of the checkpoint's segments; None: that directory.
    """

    query_id: UUID
    checkpoint_id: UUID
    epoch: int
    directory: Path
    elsewhere: Objects | None = None

    @property
    def segments(self) -> StateStore:
        """The store of the checkpoint's segments."""
        return Directories(self.directory) if self.elsewhere is None else self.elsewhere


def open_state(
    connection: Connection,
    plan: Plan,
    launch: Launch,
    start: Callable[[], Positions],
    retain: Callable[[], None],
    tell: Callable[[], None] | None,
) -> LaunchState:
    """Return the state from which a launch resumes, after fitting it to the plan.

    Args:
        connection: in autocommit mode.
        plan: of the query.
        launch: which one.
        start: called for the start positions if the query has never begun.
        retain: called if a commit exists, before any change of it.
        tell: see ``shared_out``.

    Raises:
        StateCorrupt: it is damaged or lacks segments.
        StateNewer: a newer version wrote it.
        EpochFenced: a newer launch has begun.
        ExternalError: the segments cannot be reached now.
    """
    launch.directory.mkdir(parents=True, exist_ok=True)
    kept = load_committed_state(connection, launch.query_id, launch.checkpoint_id)
    first_batch = 0 if kept.batch_id is None else kept.batch_id + 1
    if first_batch:
        retain()
    states: Mapping[Place, TaskState]
    if kept.layout is not None and kept.cursor is not None:
        layout, cursor, is_begun = kept.layout, kept.cursor, True
        states = load_states(connection, launch.query_id)
    elif kept.batch_id is not None:
        raise StateCorrupt(f"the results hold batch {kept.batch_id}, and the database holds no state. {STATE_CURE}")
    else:
        layout, states, is_begun = new_layout(plan.tasks), {}, False
        cursor = as_unread(new_cursor(start(), plan.release, layout.generation))
    require_readable(cursor)
    if launch.elsewhere is not None:
        bring_over(Directories(launch.directory), launch.elsewhere, layout, states)
    require_segments(launch.segments, layout, states)
    if plan.tasks != layout.tasks:
        before, is_begun = layout.tasks, False
        layout, states = shared_out(plan, launch.segments, layout, states, launch.epoch, tell)
        log.info("tasks_changed", query=plan.query, before=before, after=layout.tasks)
    if not is_begun:
        begin_state(connection, launch.query_id, launch.epoch, layout, cursor, states)
    return LaunchState(first_batch, cursor, layout)


def bring_over(local: Directories, target: Objects, layout: Layout, states: Mapping[Place, TaskState]) -> None:
    """Upload files of a service that now has an object store. After an interruption, the next launch uploads the missing files.

    Args:
        local: the checkpoint's directory.
        target: its directory in the store.
        layout: of the state.
        states: of all tasks.

    Raises:
        StateUnavailable: the store cannot be reached now.
    """
    here = {found.name for found in local.listed()}
    wanted = _named(layout, states) & here
    if not wanted or not (missing := wanted - {found.name for found in target.listed()}):
        return
    for name in sorted(missing):
        target.put(name, (local.root / name).read_bytes())
    log.info("segments_uploaded", number=len(missing), target=str(target))


def _named(layout: Layout, states: Mapping[Place, TaskState]) -> set[str]:
    return {*names_of(layout.segments, {place: json.loads(state.manifest) for place, state in states.items()})}


def require_segments(segments: StateStore, layout: Layout, states: Mapping[Place, TaskState]) -> None:
    """Refuse state that names missing segments, before any use of it.

    Raises:
        StateCorrupt: says which are missing.
        ExternalError: the segments cannot be reached now.
    """
    named = _named(layout, states)
    if not named or not (missing := sorted(named - {found.name for found in segments.listed()})):
        return
    names = ", ".join(missing[:MAX_NAMED]) + (f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else "")
    raise StateCorrupt(
        f"of the {len(named)} segments that the state names {len(missing)} are missing in {segments}: {names}. {STATE_CURE}"
    )

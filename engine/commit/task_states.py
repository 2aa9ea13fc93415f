"""The state from which a query resumes, in Postgres: the start of its next batch, and the state of its tasks.

Both are committed with the batch's results, in the sink's transaction, so they are neither ahead of the results nor behind them. A task's
state is its *manifest*: JSON that holds tiny segments and names others, which were written before (``engine.state``). Each manifest has
a new *token*: a worker's cached task with the same token has exactly this state.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from engine.errors import EpochFenced, SinkUnavailable, StateNewer
from engine.frames.compact_json import compact
from engine.postgres.postgres import Connection
from engine.state.segments.ports import FIRST_SEGMENTS

LAYOUT_FORMAT: Final = 4
"""Increased when the meaning of the stored data changes."""

NEW_TOKEN: Final = "left(replace(gen_random_uuid()::text, '-', ''), 16)"  # noqa: S105 - no secret
"""A new token, drawn by Postgres, for a manifest that gets another place."""

LEAST_PAUSE_S: Final = 0.005
MOST_PAUSE_S: Final = 0.05
"""Interval of checks whether a batch is committed: a twentieth of a large commit's time."""

COMMIT_S: Final = 600.0
"""A commit that takes longer waits for something that never comes."""

Cursor = Mapping[str, Any]
"""Where a batch ends (``engine.runtime.source``): ``feeds`` (feed → partition → next offset), ``now_ms``, and more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a query's state.

    Attributes:
        generation: how often it has changed.
        hash_seed: of the hashes of keys (``engine.frames.hashing``).
        segments: name of the folder of segments.
    """

    tasks: int
    generation: int = 0
    hash_seed: int = 0
    segments: str = FIRST_SEGMENTS


def new_layout(tasks: int) -> Layout:
    """Return the layout of a new state."""
    return Layout(tasks, 0, secrets.randbits(64))


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of one task as of a commit.

    Attributes:
        token: new for each manifest.
        manifest: the result of ``Task.snapshot``, and its store's additions, as JSON.
    """

    token: str
    manifest: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> TaskState:
        return cls(secrets.token_hex(8), compact(manifest))

    def encoded(self) -> bytes:
        """Return it as the blob of a packet."""
        return f"{self.token}\n{self.manifest}".encode()

    @classmethod
    def decoded(cls, blob: bytes) -> TaskState:
        token, _, manifest = blob.decode().partition("\n")
        return cls(token, manifest)


Place = tuple[int, int]
"""Stage and task, as ordinals."""


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The committed state of a query.

    Attributes:
        batch_id: the newest batch, None before the first.
        cursor: where it ends; before the first batch, where reading begins. None if no launch has begun.
        layout: None as above.
    """

    batch_id: int | None = None
    cursor: Cursor | None = None
    layout: Layout | None = None


def load_committed_state(connection: Connection, query_id: UUID, checkpoint_id: UUID) -> CommittedState:
    """Return the state from which a launch resumes.

    Raises:
        StateNewer: a newer version has written it.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        row: tuple[Any, ...] | None = cursor.execute(
            "SELECT batch_id, cursor, layout FROM log.commit WHERE query_id = %s AND checkpoint_id = %s",
            (query_id, checkpoint_id),
        ).fetchone()
    if row is None or row[2] is None:
        return CommittedState(None if row is None else row[0])
    batch_id, position, layout = row
    if layout["format"] > LAYOUT_FORMAT:
        raise StateNewer.of("the layout of the state", layout["format"], LAYOUT_FORMAT)
    return CommittedState(
        batch_id, position, Layout(layout["tasks"], layout["generation"], int(layout["hash_seed"]), layout["segments"])
    )


def load_states(connection: Connection, query_id: UUID) -> dict[Place, TaskState]:
    """Return the state of every task that has any."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows: Sequence[tuple[Any, ...]] = cursor.execute(
            "SELECT stage, task, token, manifest FROM log.task_state WHERE query_id = %s", (query_id,)
        ).fetchall()
    return {(stage, task): TaskState(token, manifest) for stage, task, token, manifest in rows}


def load_changed(
    connection: Connection, query_id: UUID, stage: int, known: Mapping[int, str | None]
) -> tuple[dict[int, TaskState | None], dict[str, Any] | None]:
    """Return the state of the tasks of a stage for which a worker has another token, and the times of the query.

    Args:
        connection: to the database.
        query_id: whose.
        stage: its index.
        known: task → the worker's token; None: it has not built the task.

    Returns:
        Task → its state, None if it has none; the worker's state of absent tasks is current. And what ``QueryTimes.snapshot`` wrote, None
        before the first batch.
    """
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows: Sequence[tuple[Any, ...]] = cursor.execute(
            """
            SELECT k.task, s.token, CASE WHEN s.token IS DISTINCT FROM k.token THEN s.manifest END,
                (SELECT detail -> 'times' FROM log.commit WHERE query_id = %s)
            FROM unnest(%s::integer[], %s::text[]) AS k (task, token)
            LEFT JOIN log.task_state s ON s.query_id = %s AND s.stage = %s AND s.task = k.task
            """,
            (query_id, list(known), list(known.values()), query_id, stage),
        ).fetchall()
    states = {
        task: None if token is None else TaskState(token, manifest)
        for task, token, manifest, _ in rows
        if known[task] is None or token != known[task]
    }
    return states, rows[0][3]


def newest_epochs(connection: Connection, query_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the launch that holds the fence of each query; absent for deleted queries."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        found: Sequence[tuple[Any, ...]] = cursor.execute(
            "SELECT query_id, epoch FROM log.commit WHERE query_id = ANY(%s)", (list(query_ids),)
        ).fetchall()
    return dict(found)


def await_batch(
    connection: Connection, query_id: UUID, epoch: int, batch_id: int, clock: Callable[[], float] = time.monotonic
) -> None:
    """Wait until a batch is committed: the next one begins with its state.

    Args:
        connection: in autocommit mode.
        query_id: whose.
        epoch: the launch.
        batch_id: the batch; -1 is before the first.
        clock: in seconds.

    Raises:
        EpochFenced: another launch has taken over.
        SinkUnavailable: it was not committed within ``COMMIT_S``. Retryable.
    """
    pause_s, deadline = LEAST_PAUSE_S, clock() + COMMIT_S
    while True:
        with connection.cursor(row_factory=tuple_row) as cursor:
            row: tuple[Any, ...] | None = cursor.execute(
                "SELECT epoch, coalesce(batch_id, -1) FROM log.commit WHERE query_id = %s", (query_id,)
            ).fetchone()
        if row is None or row[0] != epoch:
            raise EpochFenced(f"query {query_id}: epoch {epoch} does not hold the fence")
        if row[1] >= batch_id:
            return
        if clock() > deadline:
            raise SinkUnavailable(
                f"batch {batch_id} was not committed within {COMMIT_S:.0f} s. The next attempt goes on from what is there"
            )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def begin_state(
    connection: Connection, query_id: UUID, epoch: int, layout: Layout, start: Cursor, states: Mapping[Place, TaskState]
) -> None:
    """Replace the state at the start of a launch: by a new state, or by the old one among another number of tasks.

    For a query without commits, ``position`` then holds where reading begins: readers of its result ask for its progress
    (P5).

    Args:
        connection: in autocommit mode.
        query_id: the query.
        epoch: the launch, which holds the fence.
        layout: of the state.
        start: where the next batch begins.
        states: of all tasks that have any.

    Raises:
        EpochFenced: it does not hold the fence.
    """
    feeds = {feed: dict(partitions) for feed, partitions in start["feeds"].items()}
    # As text: some readers of JSON cannot hold a number of 64 bits.
    said = {"format": LAYOUT_FORMAT, **asdict(layout), "hash_seed": str(layout.hash_seed)}
    with connection.pipeline(), connection.transaction(), connection.cursor() as cursor:
        begun = connection.execute(
            """
            UPDATE log.commit SET layout = %s, cursor = %s, position = CASE WHEN batch_id IS NULL THEN %s ELSE position END
            WHERE query_id = %s AND epoch = %s RETURNING 1
            """,
            (Jsonb(said), Jsonb(dict(start)), Jsonb(feeds), query_id, epoch),
        )
        cursor.execute("DELETE FROM log.task_state WHERE query_id = %s", (query_id,))
        write_states(cursor, query_id, states)
        if begun.fetchone() is None:
            raise EpochFenced(f"query {query_id}: epoch {epoch} does not hold the fence")


def write_states(cursor: psycopg.Cursor[Any], query_id: UUID, states: Mapping[Place, TaskState]) -> None:
    """Write the states of tasks, within the transaction that makes them count."""
    cursor.executemany(
        """
        INSERT INTO log.task_state (query_id, stage, task, token, manifest) VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (query_id, stage, task) DO UPDATE SET token = excluded.token, manifest = excluded.manifest
        """,
        [(query_id, *place, state.token, state.manifest) for place, state in states.items()],
    )

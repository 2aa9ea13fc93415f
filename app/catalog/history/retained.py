"""The retained commits of a query, each with its obstacle to a rewind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from app.catalog.deliveries.edits import planned_upto
from app.catalog.history.rewind_rules import OVERFLOW, Place, Retained, delivered_since, forked_since, missing_records
from app.catalog.stored.catalog import planned
from app.catalog.stored.queries import QueryRow
from app.catalog.stored.state_files import StateFiles
from app.db.database import raw
from app.db.tables import counter, feed, head, query, query_status
from engine.commit.history.retained_commits import RetainedCommit, retained_manifests
from engine.log.sequences import LANE_PARTITION
from engine.plan.catalog import Catalog
from engine.plan.model import Output, Plan
from engine.sources.log.replay_reader import replay_feed
from engine.state.segments.in_manifest import names_of

Kept = Mapping[str, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Around:
    """Facts that concern all commits of a query.

    Attributes:
        kept: feed → partition → the range of its records that the log has.
        forks: of the query: name, and the batch that it continued from.
        overflow: number of late records that were not stored, or removed early.
        delivered: number after the last row of the result that was, or may have been, delivered; None if there is none.
    """

    kept: Kept
    forks: Sequence[tuple[str, int | None]]
    overflow: int
    delivered: int | None = None


def place_of(commit: RetainedCommit) -> Place:
    return Place(commit.batch_id, commit.committed_at, commit.position, commit.stream_time_ms)


def look_around(connection: sa.Connection, stored: QueryRow, catalog: Catalog) -> Around:
    forks = connection.execute(
        sa.select(query.c.name, query.c.fork_of["batch_id"].as_integer())
        .where(query.c.deleted_at.is_(None), query.c.fork_of["query_id"].as_string() == str(stored.id))
        .order_by(query.c.name)
    )
    overflow = connection.execute(
        sa.select(sa.func.coalesce(sa.func.sum(counter.c.total), 0)).where(
            counter.c.owner == stored.id, counter.c.reason == OVERFLOW
        )
    ).scalar_one()
    plan = planned(stored.definition, catalog)
    ranges = retained_records(connection, plan, stored.id)
    return Around(ranges, [(name, batch) for name, batch in forks], int(overflow), planned_upto(connection, stored.id))


def retained_records(connection: sa.Connection, plan: Plan, query_id: UUID) -> Kept:
    """Return the ranges of records in the log of each feed that a query reads, its replays included."""
    logs = {source.feed.log_feed: source.feed.name for source in plan.inputs if source.feed.traits.has_heads}
    logs[replay_feed(query_id)] = replay_feed(query_id)
    rows = connection.execute(
        sa.select(
            feed.c.name, feed.c.start_sequence, feed.c.next_sequence, head.c.partition, head.c.start_offset, head.c.next_offset
        )
        .join_from(feed, head, head.c.feed_id == feed.c.id)
        .where(feed.c.name.in_(list(logs)))
    )
    ranges: dict[str, dict[str, tuple[int, int]]] = {}
    for row in rows:
        partitions = ranges.setdefault(logs[row.name], {})
        if row.next_sequence is None:
            partitions[str(row.partition)] = row.start_offset, row.next_offset
        else:
            partitions[str(LANE_PARTITION)] = row.start_sequence, row.next_sequence
    return ranges


def with_obstacles(
    connection: sa.Connection, stored: QueryRow, commits: Sequence[RetainedCommit], around: Around, files: StateFiles
) -> list[Retained]:
    """Return the commits, each with its obstacle to a rewind.

    This does not check the rows of a table: only the rewind itself, or its dry run, finds out whether the change log has all of them.
    """
    incomplete = _without_segments(connection, stored, commits, files)
    return [
        Retained(
            place_of(commit),
            commit.is_of_launch,
            incomplete.get(commit.batch_id) or _obstacle(commit, around, replay_feed(stored.id)),
        )
        for commit in commits
    ]


def _obstacle(commit: RetainedCommit, around: Around, replays: str) -> str | None:
    if around.overflow > commit.count_of(OVERFLOW):
        return "late records of that time were removed, because there were too many (late_records.max_rows)"
    # A cursor from before the first replay does not have the replays' feed.
    positions = {replays: {"0": 0}} | commit.cursor["feeds"]
    return (
        missing_records(positions, around.kept)
        or forked_since(commit.batch_id, around.forks)
        or delivered_since(commit.next_sequence, around.delivered)
    )


def refusal_of_result(output: Output) -> str | None:
    """Return why a result cannot be restored at any commit; None if it can."""
    if output.has_open:
        return "the result shows open windows (into.materialize_open), and their rows at earlier commits are not stored"
    return None


def _without_segments(
    connection: sa.Connection, stored: QueryRow, commits: Sequence[RetainedCommit], files: StateFiles
) -> dict[int, str]:
    """Return the commits whose state is not complete here, with the reason."""
    folders = {commit.batch_id: commit.layout["segments"] for commit in commits}
    segment_names: dict[int, set[str]] = {batch_id: set() for batch_id in folders}
    for batch_id, place, text in retained_manifests(raw(connection), stored.id, list(folders)):
        segment_names[batch_id].update(names_of(folders[batch_id], {place: json.loads(text)}))
    if not any(segment_names.values()):
        return {}
    root = connection.execute(sa.select(query_status.c.state_root).where(query_status.c.query_id == stored.id)).scalar_one()
    if root is not None and not files.is_root(root):
        reason = f"its state is in the checkpoint directory {root}, and this service has another one"
        return {batch_id: reason for batch_id, names in segment_names.items() if names}
    existing = files.names(stored.id, stored.checkpoint_id)
    return {batch_id: _listed(names - existing) for batch_id, names in segment_names.items() if names - existing}


def _listed(missing: Iterable[str]) -> str:
    first, *others = sorted(missing)
    more = f" and {len(others)} more" if others else ""
    return f"segments of its state were removed: {first}{more} (SLACKWATER_STATE_RETAINED_BYTES, or the database was restored)"

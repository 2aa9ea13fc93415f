"""Facts as a driver leaves them: batches committed by the real sink."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import psycopg

from app.catalog.stored.catalog import load_catalog
from engine.commit.history.retained_commits import Retaining, retain
from engine.commit.sink import Sink
from engine.definition.queries import QueryDefinition
from engine.frames.arrow_frames import encode_frame
from engine.frames.frames import empty_late
from engine.operators.operators import Emission
from engine.operators.tasks.order import LaneReading
from engine.plan.build import build_plan
from engine.plan.catalog import result_feed
from engine.plan.model import Input, Plan
from engine.plan.times import first_input
from engine.postgres.fence import claim_epoch
from engine.sources.lane_times import encode_reading
from engine.sources.packets import Packet
from tests.derived_log import caused

NOW_MS = 1_400_000_000_000


class Made(NamedTuple):
    """What a task made, and the times with the batch."""

    emission: Emission
    clocks: dict[str, int]


def planned(dsn: str, name: str) -> Plan:
    """Return the plan of a stored query."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT definition FROM slackwater.query WHERE name = %s", (name,)).fetchone()
        assert row is not None
        return build_plan(QueryDefinition.model_validate(row[0]), load_catalog(connection))


def commit(
    dsn: str,
    name: str,
    emissions: Sequence[tuple[int, int, Made]] = (),
    read_to: Mapping[str, Mapping[int, int]] | None = None,
    rejects: Sequence[Packet] = (),
    heads: Mapping[str, Mapping[int, int]] | None = None,
) -> None:
    """Commit one batch of a query as its driver would.

    Args:
        dsn: the database.
        name: the query.
        emissions: (stage, task, what it made).
        read_to: feed → partition → offset.
        rejects: packets of refused records.
        heads: feed → partition → greatest event time read.
    """
    plan = planned(dsn, name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT id, checkpoint_id FROM slackwater.query WHERE name = %s", (name,)).fetchone()
        assert row is not None
        last = connection.execute("SELECT batch_id, epoch FROM log.commit WHERE query_id = %s", (row[0],)).fetchone() or (None, 0)
        claim_epoch(connection, row[0], row[1], last[1] + 1)
    packets = [packet for stage, task, made in emissions for packet in _packets(plan, stage, task, made.emission)]
    clocks = {name: time for _, _, made in emissions for name, time in made.clocks.items()}
    packets += [_times(plan, name, time) for name, time in clocks.items()]
    for feed, partitions in (read_to or {}).items():
        for partition, end in partitions.items():
            head = (heads or {}).get(feed, {}).get(partition)
            body = {
                "feed": feed, "partition": partition, "start_offset": 0, "end_offset": end, "rows": end, "accepted": end, "max_ts": head,
                "head": head,
            }  # fmt: skip
            packets.append(Packet(0, "progress", 0, partition, 0, 0, None, None, NOW_MS, json.dumps(body).encode()))
            if head is not None:
                packets.append(_reading(next(each for each in plan.inputs if each.feed.name == feed), partition, head))
    sink = Sink(dsn, plan, row[0], row[1], last[1] + 1)
    sink.commit(0 if last[0] is None else last[0] + 1, [*packets, *rejects])
    sink.close()


def retained(dsn: str, name: str) -> None:
    """Retain a query's newest commit, as a launch does that goes on from it."""
    feed = result_feed(planned(dsn, name).output)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        row = cursor.execute("SELECT id FROM slackwater.query WHERE name = %s AND deleted_at IS NULL", (name,)).fetchone()
        assert row is not None
        retain(cursor, row[0], feed, Retaining(3_600_000, 86_400_000), is_of_launch=True)


def _times(plan: Plan, name: str, time: int) -> Packet:
    """Return what a reader says whose records bring the time before an operator so far; ``<operator>.table``: that of its table."""
    tables = {f"{each.name}.table": each.looked_up_table for stage in plan.stages for each in stage.operators}
    index = tables.get(name)
    return _reading(plan.inputs[first_input(plan) if index is None else index], 0, time)


def _reading(source: Input, partition: int, time: int) -> Packet:
    rise = np.array([0]), np.array([time])
    reading = LaneReading(source.feed.name, partition, 1, rise, {source.index: rise})
    return Packet(0, "times", source.index, partition, 0, 0, None, None, NOW_MS, encode_reading(reading))


def _packets(plan: Plan, stage: int, task: int, emission: Emission) -> list[Packet]:
    stats: dict[str, Any] = {
        "stage": stage, "task": task, "buffered": emission.buffered,
        "counters": [[name, reason, count] for (name, reason), count in emission.counters.items()],
        "wakes_at_ms": emission.wakes_at_ms, "lateness": emission.lateness, "failure": None,
    }  # fmt: skip
    packets = [Packet(task, "stats", 0, task, 0, 0, None, None, NOW_MS, json.dumps(stats).encode())]
    if emission.late.height:
        packets.append(Packet(task, "late", 0, task, 0, emission.late.height, None, None, NOW_MS, encode_frame(emission.late)))
    if stage == len(plan.stages) - 1:
        changes = caused(emission.changes, head=None) if emission.changes.height else emission.changes
        for kind, frame in (("data", changes), ("replayed", emission.replayed)):
            if frame.height:
                packets.append(Packet(task, kind, 0, task, 0, frame.height, None, None, NOW_MS, encode_frame(frame)))
    return packets


def emitted(
    clocks: dict[str, int] | None = None,
    lateness: dict[str, Any] | None = None,
    late: pl.DataFrame | None = None,
    changes: pl.DataFrame | None = None,
) -> Made:
    """Return what a task made.

    Args:
        clocks: operator → the time before it, and ``<operator>.table`` → that of its table, of a query where nothing waits before them.
        lateness: gauge → histogram.
        late: late records.
        changes: of the last stage.
    """
    rows, refused = pl.DataFrame() if changes is None else changes, empty_late() if late is None else late
    return Made(Emission(rows, refused, {}, {}, lateness=lateness or {}), clocks or {})

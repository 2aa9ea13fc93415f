"""T12: with ``clock: slowest`` time is the least, over the partitions that count, of the greatest event time read of each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import BEFORE_ALL_TIME, NEVER
from engine.operators.tasks.query_times import QueryTimes
from engine.operators.tasks.slices import Slice
from engine.operators.tasks.slowest import Lane
from engine.plan.model import Feed, Input, Plan, RelationSchema
from tests.batch_times import plan_reading
from tests.examples import examples
from tests.lane_readings import lane_readings

COLUMNS = Schema((("v", STRING),))
FEEDS = ("log:x", "log:y")


class Record(NamedTuple):
    """A record, of which the stage may drop a null key: then it moves no time (T1a)."""

    lane: Lane
    time: int
    moves: bool


class Batch(NamedTuple):
    """Records, and the partitions that have been at their end for long."""

    records: list[Record]
    idle: frozenset[Lane]


lanes = st.tuples(st.sampled_from(FEEDS), st.integers(0, 2))
records = st.builds(Record, lanes, st.integers(0, 30), st.integers(0, 4).map(bool))
batches = st.lists(st.builds(Batch, st.lists(records, max_size=8), st.frozensets(lanes)), max_size=6)


def source(index: int, feed: str) -> Input:
    relation = RelationSchema(feed[4:], "stream", COLUMNS, (), None, None, None, None, None)
    return Input(index, feed[4:], relation, Feed(feed, "log", feed[4:]), ("v",), ())


def plan() -> Plan:
    """A stream that two feeds have records of (P13): their partitions make one time."""
    inputs = [source(0, FEEDS[0]), replace(source(1, FEEDS[1]), part_of=0)]
    return replace(plan_reading(inputs), slowest_after_ms=1_000, idle_after_ms=1_000)


@dataclass
class Model:
    """Takes record after record."""

    time: int = BEFORE_ALL_TIME
    reached: dict[Lane, int] = field(default_factory=dict)
    idle: set[Lane] = field(default_factory=set)

    def begin(self, idle: frozenset[Lane]) -> None:
        self.idle = set(idle)
        self.rise()

    def read(self, record: Record) -> None:
        self.idle -= {record.lane}
        if record.moves:
            self.reached[record.lane] = max(record.time, self.reached.get(record.lane, record.time))
        self.rise()

    def rise(self) -> None:
        counting = [time for lane, time in self.reached.items() if lane not in self.idle]
        self.time = max([self.time, min(counting, default=BEFORE_ALL_TIME)])


class Query:
    """The times of a query, kept between batches as a commit keeps them."""

    def __init__(self) -> None:
        self.plan = plan()
        self.kept: str | None = None
        self.offset = 0

    def run(self, batch: Batch) -> list[tuple[Record | None, int, int]]:
        """Return each record in the order of the batch with the time before its place and with it; first of all that of the jump."""
        times = QueryTimes.of_snapshot(None if self.kept is None else json.loads(self.kept)).at(0, None, idle=batch.idle)
        slices, placed = [], []
        for lane in sorted({record.lane for record in batch.records}):
            own = [record for record in batch.records if record.lane == lane]
            offsets = range(self.offset, self.offset + len(own))
            self.offset += len(own)
            slices.append(slice_of(lane, own, offsets))
            placed += list(zip(own, offsets, strict=True))
        readings = lane_readings(slices, self.plan.inputs)
        order = times.order(self.plan, readings)
        clock = order.clock_of(0)
        self.kept = json.dumps(times.behind(self.plan, order, readings).snapshot())
        ordered = sorted(
            (int(order.positions(FEEDS.index(record.lane[0]), *record.lane, np.array([offset]))[0]), record)
            for record, offset in placed
        )
        found: list[tuple[Record | None, int, int]] = [(None, clock.begin, int(clock.before(np.array([order.first + 1]))[0]))]
        if clock.has_jump:
            assert clock.is_silence(np.array([order.first])).all()
            assert int(clock.reached(np.array([found[0][2]]))[0]) == order.first
        else:
            found[0] = (None, clock.begin, clock.begin)
        for position, record in ordered:
            assert not clock.is_silence(np.array([position])).any()
            at = np.array([position])
            before, after = int(clock.before(at)[0]), int(clock.upto(at)[0])
            found.append((record, before, after))
            if after > before:
                assert int(clock.reached(np.array([after]))[0]) == position
        assert clock.end == found[-1][2]
        assert int(clock.reached(np.array([clock.end + 1]))[0]) == NEVER
        return found


def slice_of(lane: Lane, own: list[Record], offsets: range) -> Slice:
    frame = pl.DataFrame(
        {
            "_offset": list(offsets),
            "_ts": [record.time for record in own],
            "v": [""] * len(own),
            "_op": [0] * len(own),
            "_key_hash": [1 if record.moves else None for record in own],
        },
        schema={"_offset": pl.Int64, "_ts": pl.Int64, "v": pl.String, "_op": pl.Int8, "_key_hash": pl.UInt64},
    )
    return Slice(FEEDS.index(lane[0]), lane[0], lane[1], frame)


@settings(max_examples=examples(300))
@given(batches)
def test_time_is_that_of_a_model_that_takes_record_after_record(script: list[Batch]) -> None:
    query, model = Query(), Model()
    for batch in script:
        model.begin(batch.idle)
        (_, _, at_begin), *read = query.run(batch)
        assert at_begin == model.time
        for record, before, after in read:
            assert before == model.time
            assert record is not None
            model.read(record)
            assert after == model.time

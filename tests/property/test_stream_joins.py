"""A stream-stream join equals the record-by-record model, in every slicing, with restarts and with idle advances in between."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.joins.stream_stream import StreamStreamJoiner
from engine.operators.operators import BatchTime
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property.hashings import hashings
from tests.property.stream_join_model import Side, StreamJoinModel

LEFT = Schema((("l.key", STRING), ("l.value", STRING)))
RIGHT = Schema((("r.key", STRING), ("r.value", STRING)))
Record = tuple[Side, str | None, str | None, int]

record = st.tuples(
    st.sampled_from(["left", "right"]),
    st.sampled_from(["a", "a", "a", "b", "b", None]),
    st.sampled_from(["x", "y", "z", None]),
    st.integers(0, 12) | st.integers(0, 40),
)
steady = st.builds(  # times that mostly rise: few records are late
    lambda records, steps: [
        (*each[:3], max(0, place + step)) for place, (each, step) in enumerate(zip(records, steps, strict=False))
    ],
    st.lists(record, min_size=20, max_size=60),
    st.lists(st.integers(-6, 6), min_size=60, max_size=60),
)
records = st.lists(record, max_size=12) | st.lists(record, min_size=20, max_size=50) | steady
reach = st.sampled_from([0, 2, 4])
specs = st.builds(
    lambda kind, before, after, grace: StreamStreamJoin("r", kind, 1, ("l.key",), ("r.key",), before, after, grace, ("r.value",)),
    st.sampled_from(["inner", "left", "right", "outer"]),
    reach,
    reach,
    st.sampled_from([0, 3, 20]),
)
eager = st.builds(lambda spec, kind: replace(spec, type=kind, is_eager=True), specs, st.sampled_from(["left", "right", "outer"]))
advances = st.dictionaries(st.integers(1, 60), st.integers(0, 15), max_size=3)


def frame(records: list[tuple[int, Record]], side: Side) -> pl.DataFrame:
    """The rows of one side; a record's position is ten times its place, its offset the place."""
    alias = side[0]
    rows = [(10 * pos, ts, value is None, 7, pos, key, value) for pos, (where, key, value, ts) in records if where == side]
    schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_key_hash": pl.UInt64, "_offset": pl.Int64}
    return pl.DataFrame(rows, schema={**schema, f"{alias}.key": pl.String, f"{alias}.value": pl.String}, orient="row")


def expected(spec: StreamStreamJoin, records: list[Record], advances: dict[int, int]) -> StreamJoinModel:
    model = StreamJoinModel(spec.type, spec.before_ms, spec.after_ms, spec.grace_ms, spec.is_eager)
    for pos, (side, key, value, ts) in enumerate(records):
        model.record(pos, side, key, value, ts)
        model.advance(pos + 1, advances.get(pos + 1, 0))
    return model


class Runner:
    """Feeds batches to a join, restarting it from its state after each if asked to."""

    def __init__(self, spec: StreamStreamJoin, hashing: KeyHash = UNSEEDED) -> None:
        self.store = MemorySegmentStore(hashing)
        self.output: list[tuple[Any, ...]] = []
        self.counters: Counter[str] = Counter()
        self.late: list[tuple[Any, ...]] = []
        self.start(spec, None)

    def start(self, spec: StreamStreamJoin, state: dict[str, Any] | None) -> None:
        self.join = StreamStreamJoiner(spec, LEFT, RIGHT, state, self.store)

    def run(self, batch: list[tuple[int, Record]], end: int, advance_ms: int = 0) -> None:
        right = frame(batch, "right")
        moment = BatchTime(position=10 * end - 5, advance_ms=advance_ms)
        result = self.join.process(frame(batch, "left"), {1: right} if right.height else {}, moment)
        assert result.frame.columns == ["_pos", "_ts", "_op", "_key_hash", "_offset", *self.join.schema.names]
        assert result.frame["_pos"].is_sorted()
        places = (pl.col("_pos") + 5) // 10
        states = (self.join.schema.names[-1],) if "$state" in self.join.schema.names[-1] else ()
        self.output += result.frame.select(places, "_ts", "_offset", "l.value", "r.value", *states).rows()
        for (operator, reason), count in result.counters.items():
            assert operator == "r"
            self.counters[reason] += count
        self.late += result.late.select("event_time_ms", "stream_time_ms", "offset").rows()

    def restart(self, spec: StreamStreamJoin) -> None:
        state = json.loads(json.dumps(self.join.snapshot()))
        self.store.purge()
        self.start(spec, state)


@settings(max_examples=examples(100), deadline=None)
@given(
    spec=specs | eager,
    records=records,
    cuts=st.sets(st.integers(1, 59)),
    advances=advances,
    is_single=st.booleans(),
    restarts=st.booleans(),
    hashing=hashings(),
)
def test_join_equals_the_model_in_every_slicing(
    spec: StreamStreamJoin,
    records: list[Record],
    cuts: set[int],
    advances: dict[int, int],
    is_single: bool,
    restarts: bool,
    hashing: KeyHash,
) -> None:
    runner, model = Runner(spec, hashing), expected(spec, records, advances)
    order = list(enumerate(records))
    inner = range(1, len(records)) if is_single else cuts | advances.keys()
    bounds = sorted({0, len(records), *(cut for cut in inner if cut < len(records))})
    for start, stop in pairwise(bounds):
        runner.run(order[start:stop], stop, advances.get(stop, 0))
        if restarts:
            runner.restart(spec)
    assert runner.output == model.output
    assert +runner.counters == +model.counters
    assert runner.late == model.late
    assert runner.join.clocks == {"r": model.clock}


@settings(max_examples=examples(60), deadline=None)
@given(spec=specs, records=records, cut=st.integers(0, 60), grace_ms=st.integers(0, 15))
def test_no_record_is_shown_with_nulls_and_a_partner_also_when_the_grace_changes(
    spec: StreamStreamJoin, records: list[Record], cut: int, grace_ms: int
) -> None:
    runner = Runner(spec)
    order = [(pos, (side, key, f"{pos}", ts)) for pos, (side, key, _, ts) in enumerate(records)]
    runner.run(order[:cut], cut)
    after = StreamStreamJoin("r", spec.type, 1, ("l.key",), ("r.key",), spec.before_ms, spec.after_ms, grace_ms, ("r.value",))
    runner.restart(after)
    runner.run(order[cut:], len(records))
    runner.run([], len(records), 1_000)
    shown = [(left, right) for *_, left, right in runner.output]
    assert len(shown) == len(set(shown))
    for place in (0, 1):
        alone = {row[place] for row in shown if row[1 - place] is None}
        paired = {row[place] for row in shown if None not in row}
        assert not alone & paired
    if spec.type == "outer":
        late = {str(offset) for *_, offset in runner.late}
        assert {value for row in shown for value in row if value is not None} == {str(pos) for pos, _ in order} - late


@settings(max_examples=examples(40), deadline=None)
@given(spec=specs, records=records, advance_ms=st.integers(1, 60))
def test_due_in_says_when_an_advance_closes_something(spec: StreamStreamJoin, records: list[Record], advance_ms: int) -> None:
    runner = Runner(spec)
    runner.run(list(enumerate(records)), len(records))
    due_in_ms = runner.join.due_in_ms
    shown = len(runner.output)
    runner.run([], len(records), advance_ms)
    if due_in_ms is None or advance_ms < due_in_ms:
        assert len(runner.output) == shown


@settings(max_examples=examples(60), deadline=None)
@given(spec=eager, records=records, cuts=st.sets(st.integers(1, 59)))
def test_an_eager_join_shows_each_record_at_once_and_keeps_none_to_show_it_later(
    spec: StreamStreamJoin, records: list[Record], cuts: set[int]
) -> None:
    """SS5: every record that is not late is in a row of its own position; the matches are those of the join that waits."""
    runner, waiting = Runner(spec), Runner(replace(spec, is_eager=False))
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    order = [(pos, (side, key, f"{pos}", ts)) for pos, (side, key, _, ts) in enumerate(records)]
    for start, stop in pairwise(bounds):
        for each in (runner, waiting):
            each.run(order[start:stop], stop)
        assert runner.join.due_in_ms is None
    matches = [row[:5] for row in runner.output if None not in row[3:5]]
    assert matches == [row for row in waiting.output if None not in row[3:5]]
    late = {offset for *_, offset in runner.late}
    outer = ("left", "right") if spec.type == "outer" else (spec.type,)
    expected = {pos for pos, (side, *_) in order if side in outer} - late
    assert expected <= {row[0] for row in runner.output}
    states = {row[5] for row in runner.output if None not in row[3:5]}
    assert states <= {"final"}

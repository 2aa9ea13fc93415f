"""A join equals the record-by-record model, in every slicing of the same order and with a restart between any two batches."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.joins.stream_table import JoinKeys, StreamTableJoiner
from engine.operators.operators import BatchTime
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property.hashings import hashings
from tests.property.join_model import JoinModel

STREAM = Schema((("s.key", STRING), ("s.value", STRING)))
TABLE = Schema((("w.key", STRING), ("w.value", STRING)))
Record = tuple[str, str | None, str | None, int]

record = st.tuples(
    st.sampled_from(["stream", "stream", "table"]),
    st.sampled_from(["a", "b", "b", None]),
    st.sampled_from(["x", "y", "z", None]),
    st.integers(0, 40),
)
records = st.lists(record, max_size=12) | st.lists(record, min_size=30, max_size=50)  # long ones are rare otherwise
versioned = st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 12)))
unversioned = st.tuples(st.none(), st.one_of(st.none(), st.integers(0, 12)))
specs = st.builds(
    lambda kind, times, late, expired: StreamTableJoin(
        "w", kind, 0, ("s.key",), ("w.key",), times[0], times[1], late, expired, ("w.value",)
    ),
    st.sampled_from(["inner", "left"]),
    st.one_of(versioned, unversioned),
    st.sampled_from(["join", "drop", "divert"]),
    st.sampled_from(["null", "drop", "divert"]),
)


def frame(records: list[tuple[int, Record]], side: str, alias: str, hashing: KeyHash) -> pl.DataFrame:
    rows = [(2 * pos, ts, value is None, pos, key, value) for pos, (where, key, value, ts) in records if where == side]
    schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_offset": pl.Int64, f"{alias}.key": pl.String}
    result = pl.DataFrame(rows, schema={**schema, f"{alias}.value": pl.String}, orient="row")
    return result.with_columns(hashing.of(result, [f"{alias}.key"]))


def expected(spec: StreamTableJoin, records: list[Record], advances: dict[int, int]) -> JoinModel:
    model = JoinModel(spec.type, spec.history_retention_ms, spec.grace_ms, spec.late, spec.expired)
    for pos, (side, key, value, ts) in enumerate(records):
        (model.put if side == "table" else model.record)(pos, key, value, ts)
        model.advance(pos + 1, advances.get(pos + 1, 0))
    return model


class Runner:
    """Feeds batches to a join, restarting it from its state after each."""

    def __init__(self, spec: StreamTableJoin, keys: JoinKeys, hashing: KeyHash = UNSEEDED) -> None:
        self.store = MemorySegmentStore(hashing)
        self.keys = keys
        self.output: list[tuple[Any, ...]] = []
        self.counters: Counter[str] = Counter()
        self.late: list[tuple[Any, ...]] = []
        self.start(spec, None)

    def start(self, spec: StreamTableJoin, state: dict[str, Any] | None) -> None:
        self.join = StreamTableJoiner(spec, STREAM, TABLE, self.keys, state, self.store)

    def run(self, batch: list[tuple[int, Record]], moment: BatchTime) -> None:
        puts = frame(batch, "table", "w", self.store.hashing)
        result = self.join.process(frame(batch, "stream", "s", self.store.hashing), {0: puts} if puts.height else {}, moment)
        assert result.frame["_pos"].is_sorted()
        places = (pl.col("_pos") + 1) // 2  # a moment's position lies between two records
        self.output += result.frame.select(places, "_ts", "s.key", "s.value", "w.value", "w.$match").rows()
        for (operator, reason), count in result.counters.items():
            assert operator == "w"
            self.counters[reason] += count
        self.late += result.late.select("reason", "event_time_ms", "offset").rows()

    def restart(self, spec: StreamTableJoin) -> None:
        state = json.loads(json.dumps(self.join.snapshot()))
        self.store.purge()
        self.start(spec, state)


@settings(max_examples=examples(100), deadline=None)
@given(
    spec=specs,
    records=records,
    cuts=st.sets(st.integers(1, 49)),
    advances=st.dictionaries(st.integers(1, 50), st.integers(0, 15), max_size=3),
    is_single=st.booleans(),
    keys=st.builds(JoinKeys, st.booleans(), st.booleans()),
    hashing=hashings(),
)
def test_join_equals_the_model_in_every_slicing(
    spec: StreamTableJoin,
    records: list[Record],
    cuts: set[int],
    advances: dict[int, int],
    is_single: bool,
    keys: JoinKeys,
    hashing: KeyHash,
) -> None:
    runner, model = Runner(spec, keys, hashing), expected(spec, records, advances)
    order = list(enumerate(records))
    inner = range(1, len(records)) if is_single else cuts | advances.keys()
    for start, stop in pairwise(sorted({0, len(records), *(cut for cut in inner if cut < len(records))})):
        runner.run(order[start:stop], BatchTime(position=2 * stop - 1, advance_ms=advances.get(stop, 0)))
        runner.restart(spec)
    assert runner.output == model.output
    assert +runner.counters == +model.counters
    assert sorted(runner.late) == sorted(model.late_rows)
    assert runner.join.buffered_rows == len(model.waiting)
    assert runner.join.clocks["w.table"] == model.table.clock


@settings(max_examples=examples(60), deadline=None)
@given(records=records, cut=st.integers(0, 50), graces=st.tuples(st.integers(0, 15), st.integers(0, 15)))
def test_a_changed_grace_holds_from_the_next_record_on(records: list[Record], cut: int, graces: tuple[int, int]) -> None:
    before, after = (
        StreamTableJoin("w", "left", 0, ("s.key",), ("w.key",), 20, grace, "join", "null", ("w.value",)) for grace in graces
    )
    runner = Runner(before, JoinKeys(is_stream_hashed=True, is_table_hashed=True))
    model = JoinModel("left", 20, graces[0], "join", "null")
    order = list(enumerate(records))
    runner.run(order[:cut], BatchTime(position=2 * cut))
    runner.restart(after)
    runner.run(order[cut:], BatchTime(position=2 * len(order)))
    for pos, (side, key, value, ts) in order:
        if pos == cut:
            model.grace_ms = graces[1]
        (model.put if side == "table" else model.record)(pos, key, value, ts)
    assert runner.output == model.output

"""A join equals the model of places, in every slicing, in any number of tasks and with a restart between any two batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.joins.stream_table import JoinKeys, StreamTableJoiner
from engine.operators.rescale.joins import stream_table
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property.hashings import hashings
from tests.property.join_model import JoinModel
from tests.property.layout import JoinRunner, Layout, released_together
from tests.property.task_shares import merged

STREAM = Schema((("s.key", STRING), ("s.value", STRING)))
TABLE = Schema((("w.key", STRING), ("w.value", STRING)))
Record = tuple[str, str | None, str | None, int]

record = st.tuples(
    st.sampled_from(["stream", "stream", "table"]),
    st.sampled_from(["a", "e", "e", None]),  # of different tasks, where there are two or three
    st.sampled_from(["x", "y", "z", None]),
    st.integers(0, 12) | st.integers(0, 40),
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


def frame(records: list[tuple[int, int, Record]], side: str, alias: str, hashing: KeyHash) -> pl.DataFrame:
    """The records of one input, given the position and offset of each."""
    rows = [(pos, ts, value is None, offset, key, value) for pos, offset, (where, key, value, ts) in records if where == side]
    schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_offset": pl.Int64, f"{alias}.key": pl.String}
    result = pl.DataFrame(rows, schema={**schema, f"{alias}.value": pl.String}, orient="row")
    result = released_together(result.with_columns(hashing.of(result, [f"{alias}.key"])))
    return result[[*SERVICE_COLUMNS, f"{alias}.key", f"{alias}.value"]]


def handle(model: JoinModel, layout: Layout) -> Iterator[tuple[int, int]]:
    """Let the model handle place after place; yields the first and the last offset of each."""
    for position, silence_ms, rows in layout.places():
        model.silence(position - silence_ms, silence_ms)
        own = [(offset, *record[1:]) for offset, record in rows]
        if rows[0][1][0] == "table":
            model.put(*own[0])
        else:
            model.place(position, own)
        yield own[0][0], own[-1][0]


class Runner(JoinRunner[StreamTableJoin, StreamTableJoiner]):
    """The tasks of a join of a stream with a table."""

    def __init__(self, spec: StreamTableJoin, keys: JoinKeys, hashing: KeyHash = UNSEEDED, tasks: int = 1) -> None:
        self._hash = hashing

        def make(spec: StreamTableJoin, state: dict[str, Any] | None, store: MemorySegmentStore) -> StreamTableJoiner:
            return StreamTableJoiner(spec, STREAM, TABLE, keys, state, store)

        super().__init__(spec, make, stream_table, ("s.key", "w.key"), hashing, tasks)

    def run(self, batch: list[tuple[int, int, Record]], silence_ms: int = 0) -> None:
        """Handle records with their positions and offsets, behind a silence."""
        first = self.position
        self.position = batch[-1][0] + 1 if batch else first + silence_ms
        stream, table = frame(batch, "stream", "s", self._hash), frame(batch, "table", "w", self._hash)
        moment = self.times.at([stream], {0: table}, first=first, silence_ms=silence_ms, position=self.position)
        results = self.handle(stream, table, 0, "w", moment)
        for result in results:
            self.late += result.late.select("reason", "event_time_ms", "offset").rows()
        columns = ["_pos", "_ts", "s.key", "s.value", "w.value", "w.$match"]
        self.output += merged([result.frame for result in results]).select(columns).rows()


@settings(max_examples=examples(150), deadline=None)
@given(
    spec=specs,
    records=records,
    cuts=st.sets(st.integers(1, 49)) | st.just(set(range(50))),
    silences=st.dictionaries(st.integers(0, 49), st.integers(0, 15), max_size=3),
    released=st.sets(st.integers(1, 49)),
    keys=st.builds(JoinKeys, st.booleans(), st.booleans()),
    hashing=hashings(),
    tasks=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_join_equals_the_model_in_every_slicing_and_any_numbers_of_tasks(
    spec: StreamTableJoin,
    records: list[Record],
    cuts: set[int],
    silences: dict[int, int],
    released: set[int],
    keys: JoinKeys,
    hashing: KeyHash,
    tasks: list[int],
) -> None:
    layout = Layout(records, "stream", silences, released)
    runner = Runner(spec, keys, hashing, tasks[0])
    model = JoinModel(spec.type, spec.history_retention_ms, spec.grace_ms, spec.late, spec.expired)
    order = layout.rows
    for place, (start, stop) in enumerate(pairwise(layout.bounds(cuts)), 1):
        runner.run(order[start:stop], layout.silences.get(start, 0))
        runner.restart(spec, tasks[place % len(tasks)])
    assert len(list(handle(model, layout))) <= len(records)
    assert runner.output == model.output
    assert +runner.counters == +model.counters
    assert sorted(runner.late) == sorted(model.late_rows)
    assert sum(join.buffered_rows for join in runner.joins) == len(model.waiting)


@settings(max_examples=examples(60), deadline=None)
@given(
    records=records,
    released=st.sets(st.integers(1, 49)),
    cut=st.integers(0, 50),
    graces=st.tuples(st.integers(0, 15), st.integers(0, 15)),
    tasks=st.integers(1, 3),
)
def test_a_changed_grace_holds_from_the_next_record_on(
    records: list[Record], released: set[int], cut: int, graces: tuple[int, int], tasks: int
) -> None:
    before, after = (
        StreamTableJoin("w", "left", 0, ("s.key",), ("w.key",), 20, grace, "join", "null", ("w.value",)) for grace in graces
    )
    runner = Runner(before, JoinKeys(is_stream_hashed=True, is_table_hashed=True), tasks=tasks)
    model = JoinModel("left", 20, graces[0], "join", "null")
    layout = Layout(records, "stream", {}, released)
    cut = max((bound for bound in layout.bounds(range(50)) if bound <= cut), default=0)
    runner.run(layout.rows[:cut])
    runner.restart(after)
    runner.run(layout.rows[cut:])
    if cut == 0:
        model.grace_ms = graces[1]
    for _, last in handle(model, layout):
        if last + 1 == cut:
            model.grace_ms = graces[1]
    assert runner.output == model.output


def test_rows_of_one_time_are_released_as_they_came_when_one_task_takes_over_those_of_two() -> None:
    spec = StreamTableJoin("w", "left", 0, ("s.key",), ("w.key",), 20, 5, "join", "null", ("w.value",))
    runner = Runner(spec, JoinKeys(is_stream_hashed=True, is_table_hashed=True), tasks=2)
    came: list[Record] = [("stream", key, str(place), 3) for place, key in enumerate("aeae")]
    layout = Layout([*came, ("stream", "a", "end", 90)], "stream", {}, set())
    runner.run(layout.rows[:4])
    runner.restart(spec, 1)
    runner.run(layout.rows[4:])
    assert [value for *_, value, _, _ in runner.output] == ["0", "1", "2", "3"]

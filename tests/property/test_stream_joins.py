"""A stream-stream join equals the record-by-record model, in every slicing, in any number of tasks, with restarts and silences."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.joins.stream_stream import StreamStreamJoiner
from engine.operators.rescale.joins import stream_stream
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import STREAMS
from tests.examples import examples
from tests.property.hashings import hashings
from tests.property.layout import JoinRunner, Layout, released_together
from tests.property.stream_join_model import Side, StreamJoinModel
from tests.property.task_shares import merged

LEFT = Schema((("l.key", STRING), ("l.value", STRING)))
RIGHT = Schema((("r.key", STRING), ("r.value", STRING)))
Record = tuple[Side, str | None, str | None, int]

record = st.tuples(
    st.sampled_from(["left", "right"]),
    st.sampled_from(["a", "a", "a", "e", "e", None]),  # of different tasks, where there are two or three
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
silences = st.dictionaries(st.integers(0, 59), st.integers(0, 15), max_size=3)


def frame(records: list[tuple[int, int, Record]], side: Side) -> pl.DataFrame:
    """The rows of one side, given the position and offset of each record."""
    alias = side[0]
    rows = [
        (pos, ts, value is None, None if key is None else 7, offset, key, value)
        for pos, offset, (where, key, value, ts) in records
        if where == side
    ]
    schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_key_hash": pl.UInt64, "_offset": pl.Int64}
    schema |= {f"{alias}.key": pl.String, f"{alias}.value": pl.String}
    return released_together(pl.DataFrame(rows, schema=schema, orient="row"))


def expected(spec: StreamStreamJoin, layout: Layout) -> StreamJoinModel:
    model = StreamJoinModel(spec.type, spec.before_ms, spec.after_ms, spec.grace_ms, spec.is_eager)
    for position, silence_ms, rows in layout.places():
        model.silence(position - silence_ms, silence_ms)
        model.place(position, [(offset, *record) for offset, record in rows])
    return model


class Runner(JoinRunner[StreamStreamJoin, StreamStreamJoiner]):
    """The tasks of a join of two streams."""

    def __init__(self, spec: StreamStreamJoin, hashing: KeyHash = UNSEEDED, tasks: int = 1) -> None:
        def make(spec: StreamStreamJoin, state: dict[str, Any] | None, store: MemorySegmentStore) -> StreamStreamJoiner:
            return StreamStreamJoiner(spec, LEFT, RIGHT, state, store)

        super().__init__(spec, make, stream_stream, ("l.key", "r.key"), hashing, tasks)

    def run(self, batch: list[tuple[int, int, Record]], silence_ms: int = 0) -> None:
        """Handle records with their positions and offsets, behind a silence."""
        first = self.position
        self.position = batch[-1][0] + 1 if batch else first + silence_ms
        left, right = frame(batch, "left"), frame(batch, "right")
        moment = self.times.at([left, right], first=first, silence_ms=silence_ms, position=self.position)
        results = self.handle(left, right, 1, "r", moment)
        names = self.joins[0].schema.names
        for result in results:
            assert result.frame.columns == [*SERVICE_COLUMNS, *names]
        states = (names[-1],) if "$state" in names[-1] else ()
        shown = merged([result.frame for result in results]).select("_pos", "_ts", "_offset", "l.value", "r.value", *states)
        self.output += shown.rows()
        late = pl.concat([result.late for result in results]).select("event_time_ms", "stream_time_ms", "offset")
        assert len(results) > 1 or late["offset"].is_sorted()
        self.late += late.sort("offset").rows()


def numbered(records: list[Record]) -> list[tuple[int, int, Record]]:
    """Records with their positions and offsets, one at a place."""
    return Layout(records, "left", {}, set()).rows


@settings(max_examples=examples(150), deadline=None)
@given(
    spec=specs | eager,
    records=records,
    cuts=st.sets(st.integers(1, 59)) | st.just(set(range(60))),
    silences=silences,
    released=st.sets(st.integers(1, 59)),
    restarts=st.booleans(),
    hashing=hashings(),
    tasks=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_join_equals_the_model_in_every_slicing_and_any_numbers_of_tasks(
    spec: StreamStreamJoin,
    records: list[Record],
    cuts: set[int],
    silences: dict[int, int],
    released: set[int],
    restarts: bool,
    hashing: KeyHash,
    tasks: list[int],
) -> None:
    layout = Layout(records, "left", silences, released)
    runner, model = Runner(spec, hashing, tasks[0]), expected(spec, layout)
    order = layout.rows
    for place, (start, stop) in enumerate(pairwise(layout.bounds(cuts)), 1):
        runner.run(order[start:stop], layout.silences.get(start, 0))
        if restarts:
            runner.restart(spec, tasks[place % len(tasks)])
    assert runner.output == model.output
    assert +runner.counters == +model.counters
    assert runner.late == model.late


@settings(max_examples=examples(60), deadline=None)
@given(spec=specs, records=records, cut=st.integers(0, 60), grace_ms=st.integers(0, 15))
def test_no_record_is_shown_with_nulls_and_a_partner_also_when_the_grace_changes(
    spec: StreamStreamJoin, records: list[Record], cut: int, grace_ms: int
) -> None:
    runner = Runner(spec)
    order = numbered([(side, key, f"{offset}", ts) for offset, (side, key, _, ts) in enumerate(records)])
    runner.run(order[:cut])
    after = StreamStreamJoin("r", spec.type, 1, ("l.key",), ("r.key",), spec.before_ms, spec.after_ms, grace_ms, ("r.value",))
    runner.restart(after)
    runner.run(order[cut:])
    runner.run([], 1_000)
    shown = [(left, right) for *_, left, right in runner.output]
    assert len(shown) == len(set(shown))
    for place in (0, 1):
        alone = {row[place] for row in shown if row[1 - place] is None}
        paired = {row[place] for row in shown if None not in row}
        assert not alone & paired
    if spec.type == "outer":
        late = {str(offset) for *_, offset in runner.late}
        assert {value for row in shown for value in row if value is not None} == {str(offset) for _, offset, _ in order} - late


@settings(max_examples=examples(40), deadline=None)
@given(spec=specs, records=records, silence_ms=st.integers(1, 60))
def test_the_due_time_is_the_first_at_which_silence_closes_something(
    spec: StreamStreamJoin, records: list[Record], silence_ms: int
) -> None:
    runner = Runner(spec)
    runner.run(numbered(records))
    due_ms = runner.joins[0].due_ms
    shown = len(runner.output)
    runner.run([], silence_ms)
    if due_ms is None or runner.times.times[STREAMS] < due_ms:
        assert len(runner.output) == shown


@settings(max_examples=examples(60), deadline=None)
@given(spec=eager, records=records, cuts=st.sets(st.integers(1, 59)))
def test_an_eager_join_shows_each_record_at_once_and_keeps_none_to_show_it_later(
    spec: StreamStreamJoin, records: list[Record], cuts: set[int]
) -> None:
    """SS5: every record that is not late is in a row of its own position; the matches are those of the join that waits."""
    runner, waiting = Runner(spec), Runner(replace(spec, is_eager=False))
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    order = numbered([(side, key, f"{offset}", ts) for offset, (side, key, _, ts) in enumerate(records)])
    for start, stop in pairwise(bounds):
        for each in (runner, waiting):
            each.run(order[start:stop])
        assert runner.joins[0].due_ms is None
    matches = [row[:5] for row in runner.output if None not in row[3:5]]
    assert matches == [row for row in waiting.output if None not in row[3:5]]
    late = {offset for *_, offset in runner.late}
    outer = ("left", "right") if spec.type == "outer" else (spec.type,)
    expected = {pos for pos, _, (side, *_) in order if side in outer} - late
    assert expected <= {row[0] for row in runner.output}
    states = {row[5] for row in runner.output if None not in row[3:5]}
    assert states <= {"final"}

"""Tasks: positions, the chain, what leaves a stage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.errors import StateCorrupt
from engine.expressions.types.types import BIGINT, BYTES, STRING, TIMESTAMP, Schema, parse_type
from engine.frames.frames import late_rows
from engine.frames.hashing import key_hash
from engine.operators.operators import Emission
from engine.operators.tasks.order import LaneReading
from engine.operators.tasks.query_times import STREAMS, QueryTimes
from engine.operators.tasks.slices import UPSTREAM, Slice
from engine.operators.tasks.task import build_task
from engine.plan.model import Feed, Input, LateRecords, Output, Plan, RelationSchema, Stage
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation
from engine.plan.operators.operator import Operator
from engine.plan.operators.row_operators import Filter, Projection
from engine.plan.operators.suppression import TimeLimitSuppression
from engine.plan.operators.windows import WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.lane_readings import Pipeline, lane_readings

COLUMNS = Schema((("key", STRING), ("n", BIGINT)))
ENTERING = Schema((("s.key", STRING), ("s.n", BIGINT)))
RELATION = RelationSchema("s", "stream", COLUMNS, ("key",), None, None, None, None, None)
INPUT = Input(0, "s", RELATION, Feed("log:s", "log", "s"), COLUMNS.names, ("key",))
PROJECTION = Projection((("key", "s.key"), ("twice", "s.n * 2")))


def plan(*stages: Stage, columns: Schema | None = None) -> Plan:
    output = Output("out", "stream", columns or Schema((("key", STRING), ("twice", BIGINT))), (), False, False, None)
    return Plan("q", 1, (INPUT,), stages, output, LateRecords(10, 10))


def stage(*operators: Operator, index: int = 0, schema: Schema = ENTERING, exchange: tuple[str, ...] = ()) -> Stage:
    emitted = schema if exchange else Schema()
    return Stage(index, schema, None if index else 0, operators, exchange, emitted)


def records(*rows: tuple[int, int, str | None, int | None], feed: str = "log:s", alias: str = "") -> Slice:
    """Rows are (offset, event time, key, n)."""
    schema = {"_offset": pl.Int64, "_ts": pl.Int64, f"{alias}key": pl.String, f"{alias}n": pl.Int64}
    frame = pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(pl.lit(0, pl.Int8).alias("_op"))
    return Slice(0, feed, 0, frame.with_columns(key_hash(frame, [f"{alias}key"])))


class Alone:
    """A task that has all records of a query of one task.

    Args:
        what: the query's plan.
        index: of the stage.
        state: what ``snapshot`` returned.
        store: where its segments are.
    """

    def __init__(
        self, what: Plan, index: int = 0, state: dict[str, Any] | None = None, store: MemorySegmentStore | None = None
    ) -> None:
        self.plan, self.times = what, QueryTimes()
        self.task = build_task(what.stages[index], what, state, store or MemorySegmentStore())

    def process(self, *slices: Slice, of: Sequence[Slice] | None = None) -> Emission:
        """Handle a batch; ``of``: the records that the query read, if they are not those that the task gets."""
        readings = lane_readings(slices if of is None else of, self.plan.inputs)
        order = self.times.order(self.plan, readings)
        self.times = self.times.behind(self.plan, order, readings)
        return self.task.process(slices, order, 0)


def test_a_last_stage_emits_exactly_the_output_columns() -> None:
    emission = Alone(plan(stage(Filter("s.n > 1"), PROJECTION))).process(records((0, 5, "a", 1), (1, 6, "b", 2)))
    assert emission.changes.columns == ["_ts", "_op", "key", "twice"]
    assert emission.changes.rows() == [(6, 0, "b", 4)]
    assert emission.causes.select("_head", "_pos", "_rank").rows() == [(6, 1, None)]
    assert emission.counters == {}


def test_a_condition_that_is_null_drops_the_row() -> None:
    assert Alone(plan(stage(Filter("s.n > 1"), PROJECTION))).process(records((0, 5, "a", None))).changes.is_empty()


def test_a_batch_without_records_emits_nothing_and_keeps_types() -> None:
    changes = Alone(plan(stage(PROJECTION))).process().changes
    assert changes.schema == {"_ts": pl.Int64, "_op": pl.Int8, "key": pl.String, "twice": pl.Int64}


def test_a_stage_before_an_exchange_emits_numbered_records_of_the_next_one() -> None:
    window = WindowAggregation("w", (("n", "s.n"),), 10, 10, 0, (AggregateColumn("rows", "count", None),), "changes")
    last = stage(window, Projection((("n", "n"), ("rows", "rows"))), index=1)
    what = plan(stage(Filter("true"), exchange=("s.n",)), last, columns=Schema((("n", BIGINT), ("rows", BIGINT))))
    store = MemorySegmentStore()
    first = Alone(what, store=store)
    first.process(records((0, 1, "a", 7)))
    again = Alone(what, state=json.loads(json.dumps(first.task.snapshot())), store=store)
    again.times = first.times
    read = records((1, 2, "b", 7), (2, 3, "c", None))
    changes = again.process(read).changes
    assert changes.columns == ["_key_hash", "_ts", "_offset", "_op", "_origin", "_pos", "_rank", "s.key", "s.n"]
    assert changes["_offset"].to_list() == changes["_origin"].to_list() == [1, 2]
    assert changes["_pos"].to_list() == [first.times.next_position, first.times.next_position + 1]
    assert changes["_key_hash"].to_list() == [key_hash(changes, ["s.n"])[0], None], "a null key stays one"

    second = Alone(what, 1, store=store)
    second.times = first.times
    emission = second.process(Slice(UPSTREAM, "", 3, changes), of=[read])
    assert emission.changes.rows() == [(2, 0, 7, 1)]
    assert emission.buffered == {"w": 1}


def test_a_task_without_records_has_something_to_do_when_time_lets_go_what_waits() -> None:
    limited = TimeLimitSuppression("suppress", ("s.key",), 5, None)
    alone = Alone(plan(stage(limited, PROJECTION)))
    assert alone.process(records((0, 1, "a", 1))).dues == {STREAMS: 6}
    for ts, is_due in ((5, False), (6, True)):
        order = alone.times.order(alone.plan, lane_readings([records((1, ts, "b", 1))], alone.plan.inputs))
        assert alone.task.is_due(order, 0) == is_due


def test_state_of_another_format_is_refused() -> None:
    what = plan(stage(PROJECTION))
    with pytest.raises(StateCorrupt):
        build_task(what.stages[0], what, {"format": 0}, MemorySegmentStore())


def test_a_late_row_shows_any_type_and_at_most_so_much() -> None:
    nested = parse_type("struct<a:array<bytes>,b:int>").polars
    frame = pl.DataFrame(
        {"_ts": [1, 2], "_offset": [0, 1], "b": [b"\x00\xff", None], "n": [{"a": [b"x"], "b": 1}, None], "s": ["é" * 9000, ""]},
        schema={"_ts": pl.Int64, "_offset": pl.Int64, "b": BYTES.polars, "n": nested, "s": pl.String},
    ).with_columns(pl.Series("_pos", [0, 1]), pl.lit(None, pl.Binary).alias("_rank"))
    first, second = late_rows(frame, "w", "late_dropped", None)["record"]
    assert first.startswith('{"b":"AP8=","n":{"a":["eA=="],"b":1},"s":"é')
    assert len(first) == 4096
    assert json.loads(second)["s"] == ""


def test_a_late_row_of_a_later_stage_has_the_offset_of_its_record_and_none_where_several_made_it() -> None:
    counted = AggregateColumn("rows", "count", None)
    late_for = WindowAggregation("w", (("n", "s.n"),), 10, 10, 0, (counted,), "final")
    columns = Schema((("n", BIGINT), ("rows", BIGINT)))
    last = Projection((("n", "n"), ("rows", "rows")))
    given = [records((40, 100, "a", 7), (41, 1, "b", 7))]
    plain = plan(stage(Filter("true"), exchange=("s.n",)), stage(late_for, last, index=1), columns=columns)
    late = Pipeline(plain, None, lambda _stage, _task: MemorySegmentStore()).process(given).late
    assert late.select("input", "event_time_ms", "offset").rows() == [("w", 1, 41)]

    sums = WindowAggregation("v", (("key", "s.key"),), 10, 10, 1_000, (counted,), "changes")
    after = Schema((("key", STRING), ("rows", BIGINT)))
    again = WindowAggregation("w", (("n", "rows"),), 10, 10, 0, (counted,), "final")
    made = plan(
        replace(stage(sums, exchange=("rows",)), emitted=after), stage(again, last, index=1, schema=after), columns=columns
    )
    late = Pipeline(made, None, lambda _stage, _task: MemorySegmentStore()).process(given).late
    assert late.select("input", "event_time_ms", "offset").rows() == [("w", 1, None)]


def test_a_task_reports_what_waits_since_when_and_how_much_it_weighs() -> None:
    counted = RunningAggregation("aggregate", (("key", "s.key"),), (AggregateColumn("rows", "count", None),))
    held = TimeLimitSuppression("suppress", ("key",), 1_000, None)
    columns = Schema((("key", STRING), ("rows", BIGINT)))
    what = plan(stage(counted, held, Projection((("key", "key"), ("rows", "rows")))), columns=columns)
    emission = Alone(what).process(records((0, 70, "a", 1), (1, 60, "b", 1)))
    assert (emission.buffered["suppress"], emission.oldest_ms) == (2, {"suppress": 60})
    assert emission.buffered_bytes["suppress"] > 0


def test_a_release_goes_through_all_operators_of_all_stages_without_a_record() -> None:
    windowed = WindowAggregation("window", (("key", "s.key"),), 10, 10, 50, (AggregateColumn("n", "count", None),), "final")
    shown = Schema((("key", STRING), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("n", BIGINT)))

    def of(grace_ms: int, limit_ms: int) -> Plan:
        first = TimeLimitSuppression("suppress", ("s.key",), limit_ms, None)
        second = stage(replace(windowed, grace_ms=grace_ms), index=1)
        return plan(stage(first, exchange=("s.key",)), second, columns=shown)

    stores: dict[tuple[int, int], MemorySegmentStore] = {}
    store = lambda *place: stores.setdefault(place, MemorySegmentStore())  # noqa: E731
    before = Pipeline(of(50, 20), None, store)
    assert not before.process([records((0, 1, "a", 1), (1, 12, "b", 1), (2, 25, "c", 1))]).changes
    after = Pipeline(of(0, 5), before.snapshot(), store)
    (first,) = after.process([], is_release=True).changes
    # The limit lets `b` go, and the time behind it is 25 - 5 (T1c): both windows close at that place, which makes no row of it late (T1b).
    assert first["key"].to_list() == ["a", "b"]
    assert not after.process([], is_release=True).changes


def test_the_first_mark_of_a_derived_stream_begins_its_silence() -> None:
    """T10: time from marks alone counts from then on like that of records."""
    what = replace(plan(stage(PROJECTION)), idle_after_ms=1_000)
    times = QueryTimes().at(50, None)
    nothing = np.empty(0, np.int64)
    marks = LaneReading("log:s", 0, 1, (np.array([0]), np.array([7])), {0: (np.array([0]), np.array([7]))}, nothing)
    times = times.behind(what, times.order(what, [marks]), [marks])
    assert (times.silent_since_ms, times.advanced_ms, times.reached_ms(what)) == (50, 0, 1_050)

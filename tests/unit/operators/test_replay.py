"""Late records go through a second time: joined as of their own time, judged by nobody, moving nothing."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal

import polars as pl
import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import InvariantBroken
from engine.expressions.types.types import Schema, parse_type
from engine.frames.frames import WHOLE_CHARS, late_rows
from engine.frames.hashing import key_hash
from engine.operators.operators import Emission
from engine.operators.tasks.query_times import QueryTimes
from engine.operators.tasks.replay import decoded
from engine.operators.tasks.slices import UPSTREAM, Slice
from engine.operators.tasks.task import Replays, Task, build_task
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.state.segments.memory import MemorySegmentStore
from tests.lane_readings import lane_readings

COLUMNS = {"key": "string", "n": "bigint", "at": "bigint"}
CATALOG = {
    "s": source_entry("s", StreamDefinition.model_validate({"key": ["key"], "columns": COLUMNS, "event_time": "at"})),
    "t": source_entry(
        "t",
        TableDefinition.model_validate(
            {"key": ["key"], "columns": COLUMNS, "event_time": "at", "versioned": {"history_retention": "1s"}}
        ),
    ),
}
VALUES: dict[str, Any] = {
    "boolean": True,
    "bigint": 2**62 + 1,
    "double": 0.1 + 0.2,
    "decimal(38,5)": Decimal("123456789012345678901234567890.12345"),
    "string": 'é"\\\n\u2028',
    "bytes": b"\x00\xff",
    "date": date(2020, 1, 2),
    "time": time(1, 2, 3, 4000),
    "timestamp": datetime(2020, 1, 1, 1, 2, 3, 456789, tzinfo=UTC),
    "array<bytes>": [b"a", None],
    "map<string,int>": [{"key": "a", "value": 1}],
    "struct<a:timestamp,b:bytes>": {"a": datetime(2020, 1, 1, tzinfo=UTC), "b": b"x"},
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_late_record_is_read_back_as_it_was(kind: str) -> None:
    declared = parse_type(kind)
    values = pl.Series("s.c", [VALUES[kind], None], dtype=declared.polars)
    frame = pl.DataFrame({"_ts": [1, 2], "_offset": [0, 1], "_pos": [5, 6], "_rank": [None, None], "s.c": values})
    late = late_rows(frame, "t", "late_diverted", None, WHOLE_CHARS)
    assert decoded(late["record"], Schema((("s.c", declared),)))["s.c"].to_list() == values.to_list()


def test_a_column_that_a_record_lacks_is_null() -> None:
    schema = Schema((("s.key", parse_type("string")), ("s.new", parse_type("bigint"))))
    assert decoded(pl.Series(['{"s.key":"a"}']), schema).rows() == [("a", None)]


def plan(join: dict[str, Any] | None = None, **more: Any) -> Plan:
    options = {"table": "t", "type": "left", "on": "s.key = t.key", "grace": "10ms", "late": "divert", **(join or {})}
    body = {"name": "q", "tasks": 1, "from": {"stream": "s"}, "joins": [options], **more}
    if "group_by" not in more:
        body |= {"select": {"key": "s.key", "n": "s.n", "found": "t.n"}, "into": {"stream": "out"}}
    return build_plan(QueryDefinition.model_validate(body), CATALOG)


def records(plan: Plan, alias: Literal["s", "t"], *rows: tuple[int, str, int]) -> Slice:
    """Rows are (event time, key, n)."""
    item = next(each for each in plan.inputs if each.alias == alias)
    schema = {"_ts": pl.Int64, "key": pl.String, "n": pl.Int64}
    frame = pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(
        pl.lit(0, pl.Int8).alias("_op"), pl.int_range(pl.len(), dtype=pl.Int64).alias("_offset"), pl.col("_ts").alias("at")
    )
    frame = frame.with_columns(key_hash(frame, ["key"]))
    return Slice(item.index, item.feed.name, 0, frame.select("_key_hash", "_ts", "_offset", "_op", *item.columns))


def replays(late: pl.DataFrame) -> Replays:
    return Replays([late.select(pl.col("event_time_ms").alias("_ts"), pl.col("input").alias("operator"), "record")])


class Query:
    """Runs tasks of a plan with the times of its query."""

    def __init__(self, what: Plan) -> None:
        self.plan = what
        self.times = QueryTimes()

    def run(self, task: Task, *slices: Slice, replays: Replays | None = None) -> Emission:
        lanes = lane_readings(slices, self.plan.inputs)
        order = self.times.order(self.plan, lanes)
        self.times = self.times.behind(self.plan, order, lanes)
        return task.process(slices, order, 0, replays=replays)


def task_of(what: Plan, stage: int = 0, state: Any = None, store: Any = None) -> Task:
    return build_task(what.stages[stage], what, state, store or MemorySegmentStore())


def test_a_diverted_record_is_joined_as_of_its_own_time_and_stands_apart() -> None:
    what, store = plan(), MemorySegmentStore()
    query = Query(what)
    task = task_of(what, store=store)
    first = query.run(task, records(what, "t", (50, "a", 7), (90, "a", 8)), records(what, "s", (100, "a", 1), (60, "a", 2)))
    assert first.late["reason"].to_list() == ["late_diverted"]
    task = task_of(what, 0, json.loads(json.dumps(task.snapshot())), store)
    again = query.run(task, replays=replays(first.late))
    assert again.changes.is_empty()
    assert again.replayed.rows() == [(60, 0, "a", 2, 7)]
    assert again.counters == {("t", "replayed"): 1}
    assert again.late.is_empty()
    assert again.buffered == first.buffered


def test_records_of_the_same_batch_are_unmarked_and_come_first() -> None:
    what = plan()
    query = Query(what)
    task = task_of(what)
    late = query.run(task, records(what, "s", (100, "a", 1), (60, "a", 2))).late
    batch = query.run(task, records(what, "t", (50, "a", 9)), records(what, "s", (110, "a", 3)), replays=replays(late))
    assert batch.changes["n"].to_list() == [1]
    assert batch.replayed.rows() == [(60, 0, "a", 2, 9)], "the put of the same batch is seen"


def test_a_miss_of_an_inner_join_is_counted_again_and_gives_nothing() -> None:
    what = plan({"type": "inner"})
    query = Query(what)
    task = task_of(what)
    late = query.run(task, records(what, "s", (100, "a", 1), (60, "a", 2))).late
    batch = query.run(task, replays=replays(late))
    assert batch.replayed.height == 0
    assert batch.counters == {("t", "replayed"): 1, ("t", "no_version"): 1}


def test_what_still_meets_expired_history_is_diverted_again() -> None:
    what = plan({"grace": "0s", "expired": "divert"})
    query = Query(what)
    task = task_of(what)
    query.run(task, records(what, "t", (5_000, "a", 1)))
    late = query.run(task, records(what, "s", (100, "a", 1))).late
    assert late["reason"].to_list() == ["expired_diverted"]
    assert query.run(task, replays=replays(late)).late["reason"].to_list() == ["expired_diverted"]


def test_a_later_stage_takes_what_was_replayed_and_keeps_it_apart() -> None:
    what = plan(group_by=["t.n"], aggregate={"rows": "count(*)"}, into={"table": "out"})
    query = Query(what)
    assert len(what.stages) == 2
    first, second = task_of(what), task_of(what, 1)
    late = query.run(first, records(what, "t", (50, "a", 7)), records(what, "s", (100, "a", 1), (60, "a", 2))).late
    replayed = query.run(first, replays=replays(late)).replayed
    batch = query.run(second, replays=Replays(slices=[Slice(UPSTREAM, "", 0, replayed)]))
    assert batch.changes.is_empty()
    assert batch.replayed["rows"].to_list() == [1]


def test_only_joins_with_tables_replay() -> None:
    what = plan(
        group_by=["s.key"], window={"type": "tumbling", "size": "10ms"}, aggregate={"rows": "count(*)"}, into={"table": "o"}
    )
    query = Query(what)
    late = pl.DataFrame({"_ts": [1], "operator": ["window"], "record": ["{}"]})
    with pytest.raises(InvariantBroken):
        query.run(task_of(what, len(what.stages) - 1), replays=Replays([late]))

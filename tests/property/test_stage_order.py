"""T1, T2, T3, P4, P6: results are those of the merge of the inputs, however it is cut into batches and whatever the number of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.frames.frames import POS, RANK
from engine.log.sequence import numbered
from engine.operators.tasks.order import LaneReading, Slice, declared_indices, lane_of
from engine.operators.tasks.pipeline import Pipeline
from engine.plan.build import build_plan
from engine.plan.model import Input, Plan
from engine.sources.lane_times import LaneTimes
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.stored.kinds import CATALOG, KINDS, MINUTE_MS, SOURCES

_REKEYED: dict[str, Any] = {
    "from": {"stream": "s"}, "joins": [{"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", "grace": "10m"}],
    "group_by": ["j.g"], "window": {"type": "tumbling", "size": "20m", "grace": "0s"},
    "aggregate": {"rows": "count(*)", "total": "sum(s.n)", "all": "collect_list(s.k)"}, "into": {"table": "out"},
}  # fmt: skip
"""What is late in the second stage hangs on the order in which the tasks of the first one let go."""

DEFINITIONS: dict[str, dict[str, Any]] = {
    "join_then_rekeyed_window": {**_REKEYED, "suppress": {"mode": "until_window_closes"}},
    "join_then_rekeyed_window_changes": _REKEYED,
    "streams_then_rekeyed_session": {
        "from": {"stream": "s"},
        "joins": [{"stream": "r", "as": "j", "on": "s.k = j.k", "within": {"before": "15m", "after": "15m", "grace": "5m"}}],
        "group_by": ["j.g"], "window": {"type": "session", "gap": "3m", "grace": "0s"},
        "aggregate": {"rows": "count(*)", "last_n": "last(s.n)"}, "suppress": {"mode": "until_window_closes"},
        "into": {"table": "out"},
    },
    "three_stages": {
        "from": {"stream": "s"},
        "joins": [
            {"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", "grace": "10m"},
            {"table": "d", "as": "i", "on": "j.g = i.g", "type": "left", "grace": "5m"},
        ],
        "group_by": ["i.n"], "window": {"type": "tumbling", "size": "10m", "grace": "0s"},
        "aggregate": {"rows": "count(*)", "total": "sum(s.n)"}, "suppress": {"mode": "until_window_closes"}, "into": {"table": "out"},
    },
    **{name: body for name, body in KINDS.items() if name not in ("wall_clock", "idle")},
}  # fmt: skip

SEVERAL_STAGES = [
    "join_then_rekeyed_window", "join_then_rekeyed_window_changes", "streams_then_rekeyed_session", "three_stages", "two_joins",
    "joined_windows", "foreign_key", "table_aggregate", "versioned_aggregate",
]  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A record with its place in the merge of all lanes."""

    relation: str
    partition: int
    offset: int
    head: int
    ts: int
    row: dict[str, Any]
    is_delete: bool


Rows = list[tuple[Any, ...]]

rows = st.fixed_dictionaries({
    "k": st.sampled_from("abc"), "g": st.sampled_from("XY"), "n": st.integers(0, 3), "x": st.sampled_from([0.5, 1.0]),
})  # fmt: skip
lanes = st.lists(st.tuples(st.integers(0, 25), rows, st.booleans()), max_size=16)


def planned(name: str, tasks: int) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", "tasks": tasks, **DEFINITIONS[name]}), CATALOG)


@st.composite
def merges(draw: st.DrawFn, plan: Plan) -> list[Record]:
    """Records of everything that a plan reads, in the order of the merge."""
    declared = declared_indices(plan.inputs)
    found: list[tuple[int, int, Record]] = []
    for name in sorted({item.relation.name for item in plan.inputs}):
        kind, body = SOURCES[name]
        for partition in range(draw(st.integers(1, 2))):
            given_records = draw(lanes)
            heads = accumulate((minute for minute, _, _ in given_records), max)
            for offset, (head, (minute, row, flag)) in enumerate(zip(heads, given_records, strict=True)):
                is_delete = kind == "table" and flag and row["n"] == 0
                own = {column: row[column] if column in body["key"] or not is_delete else None for column in body["columns"]}
                lane = lane_of(declared[CATALOG[name].feed.name], partition)
                found.append((head, lane, Record(name, partition, offset, head * MINUTE_MS, minute * MINUTE_MS, own, is_delete)))
    return [record for _, _, record in sorted(found, key=lambda each: (each[0], each[1], each[2].offset))]


def accepted(item: Input, partition: int, records: Sequence[Record]) -> pl.DataFrame | None:
    """What an input's relation has in one partition."""
    own = [each for each in records if each.relation == item.relation.name and each.partition == partition]
    if not own:
        return None
    return pl.DataFrame([each.row for each in own], schema=item.relation.columns.polars(), orient="row").with_columns(
        pl.Series("_ts", [each.ts for each in own], dtype=pl.Int64),
        pl.Series("_op", [int(each.is_delete) for each in own], dtype=pl.Int8),
        pl.Series("_offset", [each.offset for each in own], dtype=pl.Int64),
    )


def batch_of(plan: Plan, records: Sequence[Record]) -> tuple[list[Slice], list[LaneReading]]:
    """A batch as the readers hand it out: records, and where head and time rise, the heads those of the whole lane."""
    made, lanes = [], []
    for feed in dict.fromkeys(item.feed.name for item in plan.inputs):
        inputs = [item for item in plan.inputs if item.feed.name == feed]
        for partition in (0, 1):
            own = sorted(
                {
                    (each.offset, each.head)
                    for each in records
                    if CATALOG[each.relation].feed.name == feed and each.partition == partition
                }
            )
            if not own:
                continue
            times = LaneTimes(None, own[0][0])
            times.add_times(*(np.array(column, np.int64) for column in zip(*own, strict=True)))
            for item in inputs:
                frame = accepted(item, partition, records)
                if frame is not None:
                    times.add_records(item, frame)
                    made.append(Slice(item.index, feed, partition, for_input(frame, item)))
            lanes.append(times.reading(feed, partition, own[-1][0] + 1))
    return made, lanes


def made_of(plan: Plan, records: Sequence[Record], cuts: Sequence[int]) -> tuple[Rows, Rows]:
    """Return everything a query makes of batches: rows with their heads by number, and what is late, in its order."""
    pipeline = Pipeline(plan, None, lambda _stage, _task: MemorySegmentStore())
    reached_ms: int | None = None
    made, late = [], []
    for start, stop in pairwise([0, *cuts, len(records)]):
        slices, lanes = batch_of(plan, records[start:stop])
        step = pipeline.process(slices, lanes=lanes)
        numbers = numbered(step.causes, reached_ms, step.newest_head)
        reached_ms = numbers.reached_ms
        batch = [
            (number, head, *map(repr, row))
            for frame, own, heads in zip(step.changes, numbers.sequences, numbers.heads, strict=True)
            for number, head, row in zip(own.tolist(), heads.tolist(), frame.rows(), strict=True)
        ]
        assert sorted(number for number, *_ in batch) == list(range(len(batch)))
        made += [row for _, *row in sorted(batch)]
        late += [tuple(map(repr, row)) for row in step.late.drop("offset", POS, RANK).rows()]
    heads = [row[0] for row in made]
    assert heads == sorted(heads), "how far the merge has come never falls along the numbers"
    return [tuple(row) for row in made], late


def check_tasks_and_cuts(name: str, data: st.DataObject) -> None:
    """Neither the number of tasks nor where batches end shows in rows, their order, or what is late, nor its order (P4)."""
    records = data.draw(merges(planned(name, 1)), label="records")
    places = st.sets(st.integers(1, max(len(records) - 1, 1)), max_size=6)
    cuts = sorted(data.draw(places, label="cuts")) if len(records) > 1 else []
    expected = made_of(planned(name, 1), records, [])
    assert made_of(planned(name, 1), records, range(1, len(records))) == expected
    for tasks in (2, 3, 7):
        assert made_of(planned(name, tasks), records, cuts) == expected


@pytest.mark.parametrize("name", SEVERAL_STAGES)
@settings(max_examples=examples(15))
@given(st.data())
def test_results_of_several_stages_are_those_of_the_merge_record_by_record(name: str, data: st.DataObject) -> None:
    check_tasks_and_cuts(name, data)


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name not in SEVERAL_STAGES])
@settings(max_examples=examples(4))
@given(st.data())
def test_results_of_one_stage_too(name: str, data: st.DataObject) -> None:
    check_tasks_and_cuts(name, data)


def test_these_have_several_stages() -> None:
    assert [name for name in DEFINITIONS if len(planned(name, 2).stages) > 1] == SEVERAL_STAGES
    assert len(planned("three_stages", 2).stages) == 3

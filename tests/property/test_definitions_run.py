"""Whatever is planned runs: any combination of operators, any records, any cuts and restarts, and every slicing gives the same (T3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.errors import DefinitionInvalid
from engine.expressions.types.types import ColumnType
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.model import Feed, Plan, folded, needs_ticks
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.property.hashings import hashings
from tests.property.test_definitions import CATALOG, definitions

FEED = Feed("log:all", "log", "all")
"""All inputs share one feed: then the total order is that of the offsets, whatever the batches (T2)."""

_INSTANTS = [datetime(2020, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)]
_VALUES: dict[str, list[Any]] = {
    "string": ["a", "b", "JFK"], "int": [1, 2, -3], "bigint": [1, 2, 2**60], "double": [1.0, -0.0, 2.5], "timestamp": _INSTANTS,
    "array": [["x"], []],
}  # fmt: skip


class Record(NamedTuple):
    """One record of the feed."""

    relation: str
    row: dict[str, Any]
    ts: int
    op: int


@st.composite
def runs(draw: st.DrawFn) -> tuple[Plan, list[Record], list[int]]:
    """A plan, records of what it reads, and where their order is cut."""
    body = draw(definitions()) | {"tasks": 1}
    try:
        plan = build_plan(QueryDefinition.model_validate(body), CATALOG)
    except DefinitionInvalid:
        assume(False)
        raise
    plan = replace(plan, inputs=tuple(replace(item, feed=FEED, start="earliest") for item in plan.inputs))
    names = sorted({item.relation.name for item in plan.inputs})
    records = [record_of(draw, draw(st.sampled_from(names))) for _ in range(draw(st.integers(1, 25)))]
    return plan, records, sorted(draw(st.sets(st.integers(1, len(records)), max_size=6)))


def record_of(draw: st.DrawFn, name: str) -> Record:
    relation = CATALOG[name].relation
    is_delete = draw(st.integers(0, 4 if relation.kind == "table" else 9)) == 0

    def value(column: str, kind: ColumnType) -> Any:
        known = _VALUES[kind.kind]
        if column in relation.key:
            return draw(st.sampled_from(known[:2]))
        return None if is_delete else draw(st.sampled_from([*known, None]))

    row = {column: value(column, kind) for column, kind in relation.columns.items()}
    return Record(name, row, draw(st.integers(0, 12)) * 900_000, int(is_delete))


def run(
    plan: Plan, records: Sequence[Record], cuts: Sequence[int], *, restarts: bool = False, hashing: KeyHash = UNSEEDED
) -> list[tuple[Any, ...]]:
    """Every change of the result in order of emission."""
    stores: dict[tuple[int, int], MemorySegmentStore] = {}

    def store(stage: int, task: int) -> MemorySegmentStore:
        return stores.setdefault((stage, task), MemorySegmentStore(hashing))

    pipeline = Pipeline(plan, None, store)
    changes: list[tuple[Any, ...]] = []
    for start, stop in pairwise([0, *cuts, len(records)]):
        step = pipeline.process(_slices(plan, records[start:stop], start), now_ms=start * 40_000)
        for frame in step.changes:
            assert dict(frame.schema) == {"_ts": pl.Int64, "_op": pl.Int8, **plan.output.columns.polars()}
            changes += map(_comparable, frame.rows())
        if step.failure is not None:
            return changes
        if restarts:
            state = json.loads(json.dumps(pipeline.snapshot()))
            for each in stores.values():
                each.purge()
            pipeline = Pipeline(plan, state, store)
    return changes


def table(plan: Plan, changes: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Apply changes: what their sink shows at the end."""
    places = [2 + list(plan.output.columns).index(name) for name in plan.output.key]
    last = {tuple(change[place] for place in places): change for change in changes}
    return {key: change for key, change in last.items() if change[1] == "0"}


def _slices(plan: Plan, records: Sequence[Record], first: int) -> list[Slice]:
    slices = []
    for item in plan.inputs:
        own = [(first + place, record) for place, record in enumerate(records) if record.relation == item.relation.name]
        if own:
            frame = pl.DataFrame(
                [record.row for _, record in own], schema=item.relation.columns.polars(), orient="row"
            ).with_columns(
                pl.Series("_ts", [record.ts for _, record in own], dtype=pl.Int64),
                pl.Series("_op", [record.op for _, record in own], dtype=pl.Int8),
                pl.Series("_offset", [offset for offset, _ in own], dtype=pl.Int64),
            )
            slices.append(Slice(item.index, FEED.name, 0, for_input(frame, item)))
    return slices


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(repr(value) for value in row)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(runs(), hashings())
def test_what_is_planned_runs_and_gives_the_same_in_every_slicing_and_after_every_restart(
    given_run: tuple[Plan, list[Record], list[int]], hashing: KeyHash
) -> None:
    plan, records, cuts = given_run
    for operator in (operator for stage in plan.stages for operator in stage.operators):
        event(type(operator).__name__)
    whole = run(plan, records, [])
    sliced = run(plan, records, cuts, restarts=True, hashing=hashing)
    fewer = run(folded(plan), records, cuts, restarts=True)
    if needs_ticks(plan):
        return  # what a batch's wall clock and its end decide is a matter of slicing
    assert sliced == whole
    assert run(plan, records, range(1, len(records))) == whole
    assert len(fewer) <= len(whole)
    if plan.output.kind == "table":
        assert table(plan, fewer) == table(plan, whole)

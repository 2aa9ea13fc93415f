"""``"conflict": "latest_event_time"`` (V7): which puts of an unversioned table reach the operators."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.frames.hashing import key_hash
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan, state_fingerprint
from engine.plan.catalog import Catalog, source_entry
from engine.plan.model import Plan
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import named_segments
from tests.lane_readings import Pipeline


def table(key: list[str], conflict: str, **columns: str) -> TableDefinition:
    return TableDefinition.model_validate(
        {"key": key, "columns": {**columns, "at": "bigint"}, "event_time": "at", "conflict": conflict}
    )


def catalog(conflict: str = "latest_event_time") -> Catalog:
    definitions = {
        "t": table(["k"], conflict, k="bigint", v="string"),
        "pairs": table(["a", "b"], conflict, a="bigint", b="bigint", v="string"),
        "s": StreamDefinition.model_validate({"key": ["k"], "columns": {"k": "bigint"}}),
    }
    return {name: source_entry(name, definition) for name, definition in definitions.items()}


COPY = {"name": "q", "from": {"table": "t"}, "into": {"table": "out"}, "tasks": 1}
PAIRS = {**COPY, "from": {"table": "pairs"}}
JOINED = {
    **COPY, "from": {"stream": "s"}, "joins": [{"table": "t", "on": "s.k = t.k", "type": "left"}],
    "select": {"k": "s.k", "v": "t.v", "match": "t.$match"}, "into": {"stream": "out"},
}  # fmt: skip


class Run:
    """A plan at work; rows of ``t`` are (key, value or None for a delete, event time)."""

    def __init__(self, body: dict[str, Any], conflict: str = "latest_event_time") -> None:
        self.plan: Plan = build_plan(QueryDefinition.model_validate(body), catalog(conflict))
        self.stores: dict[tuple[int, int], MemorySegmentStore] = {}
        self.counters: dict[tuple[str, str], int] = {}
        self._offset = 0
        self._pipeline = self._pipeline_of(None)

    def put(self, *rows: tuple[int | None, str | None, int]) -> list[tuple[Any, ...]]:
        return self.give("t", *({"k": k, "v": v, "at": ts, "_ts": ts, "_op": int(v is None)} for k, v, ts in rows))

    def give(self, name: str, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
        source = next(item for item in self.plan.inputs if item.relation.name == name)
        schema = {**source.relation.columns.polars(), "_ts": pl.Int64(), "_op": pl.Int8()}
        frame = pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(
            pl.int_range(self._offset, self._offset + len(rows), dtype=pl.Int64).alias("_offset")
        )
        self._offset += len(rows)
        step = self._pipeline.process([Slice(source.index, source.feed.name, 0, for_input(frame, source))])
        self.counters = step.counters
        return [row for changes in step.changes for row in changes.rows()]

    def restart(self) -> None:
        state = json.loads(json.dumps(self._pipeline.snapshot()))
        for store in self.stores.values():
            store.purge()
            assert store.segment_ids == named_segments(state)
        self._pipeline = self._pipeline_of(state)

    def _pipeline_of(self, state: Any) -> Pipeline:
        return Pipeline(self.plan, state, lambda *place: self.stores.setdefault(place, MemorySegmentStore()))


def test_an_older_put_that_comes_later_is_ignored_and_counted() -> None:
    assert Run(COPY).put((1, "new", 20), (1, "old", 10), (2, "first", 5)) == [(20, 0, 1, "new", 20), (5, 0, 2, "first", 5)]


def test_what_is_ignored_is_counted_by_the_tables_alias() -> None:
    run = Run(COPY)
    run.put((1, "new", 20), (1, "old", 10), (1, None, 15))
    assert run.counters == {("t", "out_of_order_ignored"): 2}


def test_by_default_the_last_by_arrival_counts() -> None:
    assert [row[3] for row in Run(COPY, "latest_arrival").put((1, "new", 20), (1, "old", 10))] == ["new", "old"]


def test_of_equal_event_times_the_later_arrival_wins() -> None:
    run = Run(COPY)
    run.put((1, "first", 20))
    assert run.put((1, "second", 20)) == [(20, 0, 1, "second", 20)]


def test_an_older_delete_takes_no_newer_row_away() -> None:
    run = Run(COPY)
    run.put((1, "row", 20))
    assert run.put((1, None, 19)) == []


@pytest.mark.parametrize("between", range(1, 40, 13))
def test_an_older_put_never_brings_a_deleted_row_back_however_much_comes_between(between: int) -> None:
    run = Run(COPY)
    run.put((1, "row", 20), (1, None, 30))
    for place in range(between):
        run.put((100 + place, "other", 10**9 + place))
        run.restart()
    assert run.put((1, "late", 29)) == []


def test_a_put_at_the_time_of_a_delete_or_later_is_a_row_again() -> None:
    run = Run(COPY)
    run.put((1, None, 30))
    assert [row[3] for row in run.put((1, "again", 30))] == ["again"]


def test_a_change_without_a_key_is_left_to_its_reader_who_counts_it() -> None:
    run = Run({**COPY, "where": "v <> 'x'"})
    run.put((None, "a", 20), (None, "b", 10))
    assert run.counters == {("where", "null_key"): 2}


def test_a_stream_meets_the_row_with_the_latest_event_time_or_its_delete() -> None:
    run = Run(JOINED)
    run.put((1, "new", 20), (1, "old", 10), (2, None, 20), (2, "gone", 10))
    found = run.give("s", {"k": 1, "_ts": 21, "_op": 0}, {"k": 2, "_ts": 21, "_op": 0})
    assert [row[2:] for row in found] == [(1, "new", "matched"), (2, None, "deleted")]


def test_two_keys_that_share_a_hash_are_judged_apart() -> None:
    (one, other) = ({"a": 1, "b": 1}, {"a": 2, "b": -5986597001865693592})
    hashes = key_hash(pl.DataFrame([one, other]), ["a", "b"])
    assert hashes[0] == hashes[1]
    run = Run(PAIRS)
    run.give("pairs", {**one, "v": "x", "at": 20, "_ts": 20, "_op": 0})
    assert len(run.give("pairs", {**other, "v": "y", "at": 10, "_ts": 10, "_op": 0})) == 1
    run.restart()
    late = [{**key, "v": "z", "at": 15, "_ts": 15, "_op": 0} for key in (one, other)]
    assert [row[2:5] for row in run.give("pairs", *late)] == [(2, -5986597001865693592, "z")]


def test_readers_state_depends_on_who_decides_conflicts() -> None:
    assert state_fingerprint(Run(COPY).plan) != state_fingerprint(Run(COPY, "latest_arrival").plan)

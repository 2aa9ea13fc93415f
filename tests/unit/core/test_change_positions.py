"""Changes of a database's table (``engine.core.change_positions``): which of them reach the operators."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from engine.connectors.shaping import for_input
from engine.core.hashing import key_hash
from engine.core.order import Slice
from engine.core.pipeline import Pipeline
from engine.core.ports import named_segments
from engine.definition.queries import QueryDefinition
from engine.definition.relations import TableDefinition
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.state.memory import MemorySegmentStore

CONNECTOR = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": {"format": "debezium"}}
COPY = {"name": "q", "from": {"table": "t"}, "into": {"table": "out"}, "tasks": 1}
Change = tuple[dict[str, Any], str | None, str | None]
"""Key, value (None: a delete), position."""


class Run:
    """A table at work."""

    def __init__(self, columns: dict[str, str], key: list[str], **more: Any) -> None:
        definition = TableDefinition.model_validate(
            {"key": key, "columns": {**columns, "v": "string"}, "connector": CONNECTOR, **more}
        )
        self.plan: Plan = build_plan(QueryDefinition.model_validate(COPY), {"t": source_entry("t", definition)})
        self.stores: dict[tuple[int, int], MemorySegmentStore] = {}
        self.counters: dict[tuple[str, str], int] = {}
        self._offset = 0
        self._pipeline = self._pipeline_of(None)

    def give(self, *changes: Change, origin: str = "pg", is_exact: bool = True) -> list[str | None]:
        """Return the values of what passes; None for a delete."""
        source = self.plan.inputs[0]
        rows = [
            {
                **key, "v": value, "_ts": self._offset + place, "_op": int(value is None), "_offset": self._offset + place,
                "_position": position, "_origin": origin, "_is_exact": is_exact,
            }
            for place, (key, value, position) in enumerate(changes)
        ]  # fmt: skip
        schema = {
            **source.relation.columns.polars(), "_ts": pl.Int64(), "_op": pl.Int8(), "_offset": pl.Int64(),
            "_position": pl.String(), "_origin": pl.String(), "_is_exact": pl.Boolean(),
        }  # fmt: skip
        self._offset += len(rows)
        frame = for_input(pl.DataFrame(rows, schema=schema), source)
        step = self._pipeline.process([Slice(0, source.feed.name, 0, frame)])
        self.counters = step.counters
        return [value for made in step.changes for value in made.get_column("v").to_list()]

    def restart(self) -> None:
        state = json.loads(json.dumps(self._pipeline.snapshot()))
        for store in self.stores.values():
            store.purge()
            assert store.segment_ids == named_segments(state)
        self._pipeline = self._pipeline_of(state)

    def _pipeline_of(self, state: Any) -> Pipeline:
        return Pipeline(self.plan, state, lambda *place: self.stores.setdefault(place, MemorySegmentStore()))


def table(**more: Any) -> Run:
    return Run({"k": "bigint"}, ["k"], **more)


def of(key: int, value: str | None, position: str | None) -> Change:
    return {"k": key}, value, position


HISTORY = [of(1, "a", "1"), of(2, "b", "2"), of(1, "c", "3"), of(2, None, "4"), of(1, None, "5"), of(1, "d", "6")]
RESENT = [*HISTORY, *HISTORY[1:], of(2, "e", "7"), *HISTORY[3:], of(2, "e", "7")]


@pytest.mark.parametrize("cut", range(1, len(RESENT)))
def test_what_comes_again_changes_nothing_however_it_is_cut(cut: int) -> None:
    run, made = table(), []
    for first, last in pairwise([0, cut, len(RESENT)]):
        made += run.give(*RESENT[first:last])
        run.restart()
    assert made == ["a", "b", "c", None, None, "d", "e"]


def test_what_is_left_out_is_counted_by_the_tables_alias() -> None:
    run = table()
    run.give(*HISTORY, *HISTORY)
    assert run.counters == {("t", "out_of_order_ignored"): 6}


def test_an_older_change_never_brings_a_deleted_row_back() -> None:
    run = table()
    run.give(of(1, "a", "1"), of(1, None, "9"))
    for key in range(100, 140):
        run.give(of(key, "other", "5"))
        run.restart()
    assert run.give(of(1, "old", "8")) == []
    assert run.give(of(1, "new", "91")) == ["new"]


def test_positions_of_another_log_are_not_compared() -> None:
    run = table()
    assert run.give(of(1, "a", "9"), origin="old") == ["a"]
    assert run.give(of(1, "b", "1"), origin="new") == ["b"]
    run.restart()
    assert run.give(of(1, "late", "8"), origin="old") == []


def test_of_a_log_that_gives_many_changes_one_position_all_count() -> None:
    run = table()
    assert run.give(of(1, "a", "9"), of(1, "b", "9"), of(1, "old", "8"), is_exact=False) == ["a", "b"]
    assert run.give(of(1, "c", "9"), is_exact=False) == ["c"]


def test_a_change_without_a_position_counts() -> None:
    run = table()
    assert run.give(of(1, "a", "9"), of(1, "b", None), of(1, "old", "8")) == ["a", "b"]


def test_a_versioned_table_gets_no_change_twice() -> None:
    run = table(versioned={"history_retention": "1h"})
    assert run.give(*RESENT) == ["a", "b", "c", None, None, "d", "e"]


def test_two_keys_that_share_a_hash_are_judged_apart() -> None:
    one, other = {"a": 1, "b": 1}, {"a": 2, "b": -5986597001865693592}
    hashes = key_hash(pl.DataFrame([one, other]), ["a", "b"])
    assert hashes[0] == hashes[1]
    run = Run({"a": "bigint", "b": "bigint"}, ["a", "b"])
    assert run.give((one, "x", "9"), (other, "y", "1")) == ["x", "y"]
    run.restart()
    assert run.give((one, "old", "5"), (other, "z", "5")) == ["z"]

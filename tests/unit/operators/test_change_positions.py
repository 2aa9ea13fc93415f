"""Changes of a database's table (``engine.operators.rows.change_positions``): which of them reach the operators."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import TableDefinition
from engine.formats.debezium.positions import without_older
from engine.frames.hashing import key_hash
from engine.frames.position_columns import POSITION_COLUMNS
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from engine.state.segments.ports import named_segments
from tests.lane_readings import Pipeline

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

    def give(
        self, *changes: Change, origin: str = "pg", is_exact: bool = True, commits: Sequence[int | None] = ()
    ) -> list[str | None]:
        """Return the values of what passes; None for a delete. ``commits``: when each change was committed; empty: nobody says it."""
        source = self.plan.inputs[0]
        rows = [
            {
                **key, "v": value, "_ts": self._offset + place, "_op": int(value is None), "_offset": self._offset + place,
                "_position": position, "_origin": origin, "_is_exact": is_exact, "_committed_us": commits[place] if commits else None,
            }
            for place, (key, value, position) in enumerate(changes)
        ]  # fmt: skip
        schema = {
            **source.relation.columns.polars(), "_ts": pl.Int64(), "_op": pl.Int8(), "_offset": pl.Int64(),
            **POSITION_COLUMNS,
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


WAITED: list[tuple[Change, int | None]] = [
    (of(1, "a", "10"), 1_000), (of(1, None, "30"), 2_000), (of(1, "waited for its key", "20"), 3_000), (of(1, "b", "40"), 4_000),
]  # fmt: skip
"""Postgres logs an insert before it waits for the transaction that has its key."""


@pytest.mark.parametrize("cut", range(1, 2 * len(WAITED)))
def test_an_insert_that_waited_for_its_key_counts_by_its_commit_once(cut: int) -> None:
    run, made = table(), []
    sent = [*WAITED, *WAITED]
    for first, last in pairwise([0, cut, len(sent)]):
        changes, commits = zip(*sent[first:last], strict=True)
        made += run.give(*changes, commits=commits)
        run.restart()
    assert made == ["a", None, "waited for its key", "b"]


def test_a_row_of_a_snapshot_has_no_commit_and_comes_before_a_change_that_was_open_then() -> None:
    run = table()
    assert run.give(of(1, "snapshot", "50"), commits=[None]) == ["snapshot"]
    run.restart()
    assert run.give(of(1, "was open", "40"), of(1, "snapshot", "50"), commits=[2_000, None]) == ["was open"]


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


@pytest.mark.parametrize("seed", range(12))
def test_over_http_and_from_topics_the_same_changes_count_however_they_are_cut(seed: int) -> None:
    chance, run, made, at = random.Random(seed), table(), list[str | None](), 0
    places = [None, *(f"{place:03}" for place in range(8))]
    sent = [
        (chance.randrange(3), f"v{place}", chance.choice(places), chance.choice([None, *range(1_000, 1_008)]))
        for place in range(40)
    ]
    columns = {"k": pl.Int64(), "v": pl.String(), "_position": pl.String(), "_committed_us": pl.Int64()}
    beside = [pl.lit("pg").alias("_origin"), pl.lit(seed % 3 > 0).alias("_is_exact")]
    frame = pl.DataFrame(sent, schema=columns, orient="row").with_columns(beside)
    posted, newest = list[str | None](), None
    while at < len(sent):
        part = frame[at : at + chance.randrange(1, 9)]
        counting, newest = without_older(part, ["k"], newest)
        posted += counting.get_column("v").to_list()
        changes = [of(*row) for row in part.select("k", "v", "_position").iter_rows()]
        made += run.give(*changes, is_exact=seed % 3 > 0, commits=part.get_column("_committed_us").to_list())
        run.restart()
        at += part.height
    assert made == posted == without_older(frame, ["k"])[0].get_column("v").to_list()

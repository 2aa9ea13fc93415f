"""The three operators of a foreign-key join equal the record-by-record model: in every slicing, through restarts, in many tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import BIGINT, INT, STRING, ColumnType, Schema
from engine.frames.frames import SERVICE_COLUMNS, empty_frame
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.joins.foreign_key import ForeignKeyAnswerer, ForeignKeyResolver, ForeignKeySubscriber
from engine.operators.operators import BatchTime, Operator
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.foreign_keys import answer_schema, foreign_key_columns, subscription_schema
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property.foreign_key_model import Change, ForeignKeyModel, Output
from tests.property.hashings import hashings

LEFT = Schema((("o.key", STRING), ("o.fk", STRING), ("o.value", STRING)))
RIGHT = Schema((("c.key", STRING), ("c.value", STRING)))
LONG_RETENTION = 1_000

change = st.builds(
    lambda side, ts, key, foreign_key, value, is_delete: (
        Change(side, ts, key, None if is_delete else foreign_key, None if is_delete else value, is_delete)
        if side == "left"
        else Change(side, ts, foreign_key, None, None if is_delete else value, is_delete)
    ),
    st.sampled_from(["left", "left", "right"]),
    st.integers(0, 30),
    st.sampled_from(["a", "b", "b", "aa", "é", "\U0001f600", "\uffff", None]),
    st.sampled_from(["f", "f", "g", "h", None]),
    st.sampled_from(["x", "y", "z", None]),
    st.sampled_from([False, False, False, True]),
)
changes = st.lists(change, min_size=1, max_size=15) | st.lists(change, min_size=30, max_size=60)  # long ones are rare otherwise
types = st.sampled_from(["inner", "left"])
retentions = st.tuples(st.none() | st.integers(0, 20), st.none() | st.integers(0, 20))


class Chain:
    """The three steps of one task each, or of several tasks behind exchanges; every task has its own store."""

    def __init__(
        self,
        type_: Any,
        retentions: tuple[int | None, int | None],
        schemas: tuple[Schema, Schema] = (LEFT, RIGHT),
        foreign_key: tuple[str, ...] = ("o.fk",),
        right_key: tuple[str, ...] = ("c.key",),
        tasks: int = 1,
        hashing: KeyHash = UNSEEDED,
    ) -> None:
        self.hashing = hashing
        left, self.right = schemas
        key = left.names[:1]
        subscription = ForeignKeySubscription("c", type_, key, foreign_key, retentions[0], left.names)
        lookup = ForeignKeyLookup("c", type_, 7, key, right_key, retentions[1], left.names, self.right.names)
        result = ForeignKeyResult("c", type_, key, (*left.names, *self.right.names))
        between = subscription_schema(subscription, left)
        answers = answer_schema(lookup, between, self.right)
        self.left, self.left_key, self.right_key, self.exchange = left, key, right_key, foreign_key_columns(subscription)
        self._makers = (
            lambda state, store: ForeignKeySubscriber(subscription, left, state, store),
            lambda state, store: ForeignKeyAnswerer(lookup, between, self.right, state, store),
            lambda state, store: ForeignKeyResolver(result, answers, state, store),
        )
        self.stores = [[MemorySegmentStore(hashing) for _ in range(tasks)] for _ in self._makers]
        self.stages: list[list[Operator]] = [
            [make(None, store) for store in stores] for make, stores in zip(self._makers, self.stores, strict=True)
        ]
        self.counters: Counter[tuple[int, str]] = Counter()
        self.late: list[tuple[int, int]] = []

    def restart(self) -> None:
        for place, make in enumerate(self._makers):
            states = [json.loads(json.dumps(operator.snapshot())) for operator in self.stages[place]]
            for store in self.stores[place]:
                store.purge()
            self.stages[place] = [make(state, store) for state, store in zip(states, self.stores[place], strict=True)]

    def process(self, place: int, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], task: int = 0) -> pl.DataFrame:
        operator = self.stages[place][task]
        result = operator.process(frame, inputs, BatchTime())
        assert result.frame.schema == empty_frame(operator.schema).schema
        assert result.frame["_pos"].is_sorted()
        for (name, reason), count in result.counters.items():
            assert name == "c"
            self.counters[place, reason] += count
        self.late += [(place, offset) for offset in result.late["offset"]]
        return result.frame

    def exchanged(self, frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
        return frame.with_columns(self.hashing.of(frame, key))

    def split(self, frame: pl.DataFrame, key: Sequence[str], tasks: int) -> list[pl.DataFrame]:
        """The rows of each task; those with a null key go to task 0."""
        places = self.hashing.of(frame, key).fill_null(0).to_numpy() % tasks
        return [frame.filter(pl.Series(places == task)) for task in range(tasks)]

    def run(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """One batch through one task a step; positions between the steps are other ones of the same order."""
        messages = self.process(0, left, {})
        messages = self.exchanged(messages, self.exchange).with_columns(pl.col("_pos") * 3)
        puts = {7: right.with_columns(pl.col("_pos") * 3)} if right.height else {}
        answers = self.exchanged(self.process(1, messages, puts), self.left_key).with_columns(pl.col("_pos") * 2)
        return self.process(2, answers, {}).with_columns(pl.col("_pos") // 6)

    def run_tasks(self, left: pl.DataFrame, right: pl.DataFrame, random: Random, *, is_shuffled: bool) -> pl.DataFrame:
        """One batch through several tasks a step. Between the last two, upstream tasks meet in a random order.

        Args:
            left: the left side's changes.
            right: the right side's.
            random: chooses the order.
            is_shuffled: the tasks between the first two steps meet in a random order too, not in that of the records.
        """
        tasks = len(self.stages[0])
        count = left.height + right.height
        messages = [self.process(0, part, {}, task) for task, part in enumerate(self.split(left, self.left_key, tasks))]
        told = [self.split(self.exchanged(part, self.exchange), self.exchange, tasks) for part in messages]
        puts = self.split(right, self.right_key, tasks)
        answered = []
        for task in range(tasks):
            parts = [part[task] for part in told]
            if is_shuffled:
                frame, own = shuffled(parts, random, 10 * count), puts[task].with_columns(pl.col("_pos") * 10 + 5)
                own = own.with_columns(
                    pl.Series("_pos", sorted(random.sample(range(1, 20 * count, 2), own.height)), dtype=pl.Int64)
                )
                frame = frame.with_columns(pl.col("_pos") * 2)
            else:
                frame, own = pl.concat(parts).sort("_pos", maintain_order=True), puts[task]
            answered.append(self.process(1, frame, {7: own} if own.height else {}, task))
        shown = [self.split(self.exchanged(part, self.left_key), self.left_key, tasks) for part in answered]
        answers = [
            shuffled([part[task] for part in shown], random, sum(part.height for part in answered)) for task in range(tasks)
        ]
        return pl.concat([self.process(2, frame, {}, task) for task, frame in enumerate(answers)])


def shuffled(parts: list[pl.DataFrame], random: Random, positions: int) -> pl.DataFrame:
    """The rows of several upstream tasks in a random order that keeps each one's own; new positions."""
    turns = [place for place, part in enumerate(parts) for _ in range(part.height)]
    random.shuffle(turns)
    rows, starts = [0] * len(turns), np.cumsum([0, *(part.height for part in parts)]).tolist()
    for number, place in enumerate(turns):
        rows[number] = starts[place]
        starts[place] += 1
    numbers = pl.Series("_pos", sorted(random.sample(range(positions + 1), len(turns))), dtype=pl.Int64)
    return pl.concat(parts)[np.array(rows, np.int64)].with_columns(numbers)


def frames(batch: Sequence[tuple[int, Change]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    left = [(pos, c.ts, c.is_delete, None, pos, c.key, c.foreign_key, c.value) for pos, c in batch if c.side == "left"]
    right = [(pos, c.ts, c.is_delete, None, pos, c.key, c.value) for pos, c in batch if c.side == "right"]
    return table(left, LEFT), table(right, RIGHT)


def table(rows: Sequence[tuple[Any, ...]], columns: Schema) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={**SERVICE_COLUMNS, **columns.polars()}, orient="row")


def outputs(frame: pl.DataFrame) -> list[Output]:
    rows = frame.select("_offset", "_ts", pl.col("_op") == 1, "o.key", "o.fk", "o.value", "c.value").rows()
    return [Output(*row) for row in rows]


def cut(count: int, cuts: set[int], *, is_single: bool) -> list[int]:
    return list(range(count + 1)) if is_single else sorted({0, count, *(place for place in cuts if place < count)})


def expected(type_: str, retentions: tuple[int | None, int | None], records: Sequence[Change]) -> ForeignKeyModel:
    model = ForeignKeyModel(type_, *retentions)
    for pos, change in enumerate(records):
        model.handle(pos, change)
    return model


@settings(max_examples=examples(100), deadline=None)
@given(
    type_=types,
    retentions=retentions,
    records=changes,
    cuts=st.sets(st.integers(1, 59)),
    is_single=st.booleans(),
    hashing=hashings(),
)
def test_join_equals_the_model_in_every_slicing(
    type_: str,
    retentions: tuple[int | None, int | None],
    records: list[Change],
    cuts: set[int],
    is_single: bool,
    hashing: KeyHash,
) -> None:
    chain, model = Chain(type_, retentions, hashing=hashing), expected(type_, retentions, records)
    order = list(enumerate(records))
    found: list[Output] = []
    for start, stop in pairwise(cut(len(records), cuts, is_single=is_single)):
        output = chain.run(*frames(order[start:stop]))
        assert output["_pos"].to_list() == output["_offset"].to_list()
        found += outputs(output)
        chain.restart()
    assert found == model.output
    sides = {(0, reason): count for reason, count in model.left.counters.items()}
    names = {"null_key": "table_null_key"}
    sides |= {(1, names.get(reason, reason)): count for reason, count in model.right.counters.items()}
    assert chain.counters == sides
    rejected = [count for (_, reason), count in sides.items() if reason == "table_history_expired"]
    assert len(chain.late) == sum(rejected)
    assert chain.stages[0][0].clocks == {"c": model.left.clock}
    assert chain.stages[1][0].clocks == {"c.table": model.right.clock}


@settings(max_examples=examples(100), deadline=None)
@given(
    type_=types,
    is_versioned=st.tuples(st.booleans(), st.booleans()),
    records=st.lists(change, min_size=30, max_size=60),
    cuts=st.sets(st.integers(1, 59), max_size=4),
    tasks=st.integers(2, 4),
    is_shuffled=st.booleans(),
    seed=st.integers(0, 1_000_000),
    hashing=hashings(),
)
def test_many_tasks_end_at_the_same_table_as_one(
    type_: str,
    is_versioned: tuple[bool, bool],
    records: list[Change],
    cuts: set[int],
    tasks: int,
    is_shuffled: bool,
    seed: int,
    hashing: KeyHash,
) -> None:
    random = Random(seed)
    retentions = (LONG_RETENTION if is_versioned[0] else None, LONG_RETENTION if is_versioned[1] else None)
    chain, model = Chain(type_, retentions, tasks=tasks, hashing=hashing), ForeignKeyModel(type_, *retentions)
    order = list(enumerate(records))
    shown: dict[str, Output] = {}
    for start, stop in pairwise(cut(len(records), cuts, is_single=False)):
        for pos, change in order[start:stop]:
            model.handle(pos, change)
        for row in outputs(chain.run_tasks(*frames(order[start:stop]), random, is_shuffled=is_shuffled)):
            assert not row.is_delete or row.key in shown
            shown.pop(row.key, None)
            if not row.is_delete:
                shown[row.key] = row
        chain.restart()
        content = slice(3, None) if is_shuffled else slice(1, None)  # a missing right row has the time of what came last
        assert {key: row[content] for key, row in shown.items()} == {key: row[content] for key, row in model.shown.items()}


def test_answers_to_one_change_come_by_value_of_a_numeric_key() -> None:
    left = Schema((("o.key", BIGINT), ("o.region", STRING), ("o.number", INT)))
    right = Schema((("c.region", STRING), ("c.number", BIGINT), ("c.value", STRING)))
    chain = Chain("inner", (None, None), (left, right), ("o.region", "o.number + 1"), ("c.region", "c.number"))
    keys = [10, -3, 9, 2_000_000_000_000, 0]
    rows = [(pos, 5, 0, None, pos, key, "north", 1) for pos, key in enumerate(keys)]
    others = [(5, 5, 0, None, 5, 7, "north", 2), (6, 5, 0, None, 6, 8, None, 1), (7, 5, 0, None, 7, 6, "south", 1)]
    output = chain.run(table([*rows, *others], left), table([(8, 4, 0, None, 8, "north", 2, "met")], right))
    assert output["o.key"].to_list() == sorted(keys)
    assert output["c.value"].unique().to_list() == ["met"]
    assert output["_ts"].unique().to_list() == [5]


def test_changes_that_share_a_position_are_handled_one_after_the_other() -> None:
    chain = Chain("left", (None, None))
    left = [(3, 10, 0, None, 3, "a", "f", "1"), (3, 11, 0, None, 3, "a", "g", "2"), (3, 12, 0, None, 3, "a", "f", "3")]
    output = chain.run(table(left, LEFT), table([(1, 5, 0, None, 1, "f", "x")], RIGHT))
    assert output.select("_pos", "_ts", "o.value", "c.value").rows() == [(3, 10, "1", "x"), (3, 11, "2", None), (3, 12, "3", "x")]


def test_payload_of_any_type_passes_and_deletes_have_the_key_only() -> None:
    nested = ColumnType("array", element=ColumnType("struct", fields=(("n", INT),)))
    left = Schema((("o.key", STRING), ("o.fk", STRING), ("o.items", nested)))
    right = Schema((("c.key", STRING), ("c.items", nested)))
    chain = Chain("inner", (10, 10), (left, right))
    items = [{"n": 1}, {"n": None}]
    puts = [(0, 1, 0, None, 0, "f", items), (2, 3, 1, None, 2, "f", None)]
    output = chain.run(table([(1, 2, 0, None, 1, "a", "f", items)], left), table(puts, right))
    assert output.select("_ts", "_op", "o.key", "o.fk", "o.items", "c.key", "c.items").rows() == [
        (2, 0, "a", "f", items, "f", items),
        (3, 1, "a", None, None, None, None),
    ]


def test_what_is_deleted_is_forgotten_by_every_step() -> None:
    chain = Chain("inner", (None, 5))
    for pos in range(0, 900, 3):
        left = [
            (pos, pos, 0, None, pos, f"k{pos}", "f" if pos % 2 else f"f{pos}", "v"),
            (pos + 2, pos, 1, None, pos + 2, f"k{pos}", None, None),
        ]
        puts = [(pos + 1, pos, pos % 2, None, pos + 1, f"f{pos}", None if pos % 2 else "x")]
        chain.run(table(left, LEFT), table(puts, RIGHT))
        chain.restart()
    held = [sum(store.load(segment).height for segment in store.segment_ids) for (store,) in chain.stores]
    assert held[0] < 20
    assert held[2] < 20
    assert sum(entry["rows"] for entry in chain.stages[1][0].snapshot()["subscriptions"]) < 20

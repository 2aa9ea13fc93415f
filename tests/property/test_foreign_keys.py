"""The three operators of a foreign-key join equal the record-by-record model: in every slicing, through restarts, in any number of tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import BIGINT, INT, STRING, ColumnType, Schema
from engine.frames.frames import POS, RANK, SERVICE_COLUMNS, empty_frame
from engine.frames.hashing import UNSEEDED, KeyHash, key_hash
from engine.frames.places import apart, is_further, ordinals, place_order
from engine.operators.joins.foreign_key import ForeignKeyAnswerer, ForeignKeyResolver, ForeignKeySubscriber
from engine.operators.operators import BatchTime, Operator
from engine.plan.operators.foreign_key_join import ForeignKeyLookup, ForeignKeyResult, ForeignKeySubscription
from engine.plan.operators.foreign_keys import answer_schema, foreign_key_columns, subscription_schema
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes, unranked
from tests.examples import examples
from tests.property.foreign_key_model import Change, ForeignKeyModel, Output
from tests.property.hashings import hashings

LEFT = Schema((("o.key", STRING), ("o.fk", STRING), ("o.value", STRING)))
RIGHT = Schema((("c.key", STRING), ("c.value", STRING)))

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
    """The three steps, each in as many tasks, with exchanges between them; every task has its own store."""

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
        self.tasks = tasks
        self.times = RunningTimes()
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

    def run(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """One batch."""
        movers = [rows.with_columns(self.hashing.of(rows, key)) for rows, key in ((left, self.left_key), (right, self.right_key))]
        moment = self.times.at(movers[:1], {7: movers[1]}, is_table=True)
        puts = self._split(right, self.right_key)
        messages = self._step(0, self._split(left, self.left_key), [{}] * self.tasks, moment)
        inputs = [{7: own} if own.height else {} for own in puts]
        answers = self._step(1, self._split(messages, self.exchange), inputs, moment)
        return self._step(2, self._split(answers, self.left_key), [{}] * self.tasks, moment)

    def _step(
        self, place: int, frames: list[pl.DataFrame], inputs: list[dict[int, pl.DataFrame]], moment: BatchTime
    ) -> pl.DataFrame:
        """What the tasks of a step make, in the order of places."""
        made = []
        for operator, frame, own in zip(self.stages[place], frames, inputs, strict=True):
            result = operator.process(frame, own, moment)
            assert result.frame.schema == empty_frame(operator.schema).schema
            assert place_order(result.frame).tolist() == list(range(result.frame.height))
            for (name, reason), count in result.counters.items():
                assert name == "c"
                self.counters[place, reason] += count
            self.late += [(place, offset) for offset in result.late["offset"]]
            made.append(result.frame)
        together = pl.concat(made)
        return together[place_order(together)]

    def _split(self, frame: pl.DataFrame, key: Sequence[str]) -> list[pl.DataFrame]:
        """The rows of each task, with the hash of their key; those with a null key go to task 0."""
        frame = frame.with_columns(self.hashing.of(frame, key))
        owners = key_hash(frame, key).fill_null(0).to_numpy() % self.tasks
        return [frame.filter(pl.Series(owners == task)) for task in range(self.tasks)]


def frames(batch: Sequence[tuple[int, Change]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    left = [(pos, c.ts, c.is_delete, None, pos, c.key, c.foreign_key, c.value) for pos, c in batch if c.side == "left"]
    right = [(pos, c.ts, c.is_delete, None, pos, c.key, c.value) for pos, c in batch if c.side == "right"]
    return table(left, LEFT), table(right, RIGHT)


def table(rows: Sequence[tuple[Any, ...]], columns: Schema) -> pl.DataFrame:
    """Rows without ranks; those that share a position are further rows of one record."""
    service = {name: dtype for name, dtype in SERVICE_COLUMNS.items() if name != RANK}
    frame = unranked(pl.DataFrame(rows, schema={**service, **columns.polars()}, orient="row"))[empty_frame(columns).columns]
    return apart(frame, ordinals(frame[POS].to_numpy()))


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


@settings(max_examples=examples(150), deadline=None)
@given(
    type_=types,
    retentions=retentions,
    records=changes,
    cuts=st.sets(st.integers(1, 59)),
    is_single=st.booleans(),
    hashing=hashings(),
    tasks=st.integers(1, 4),
)
def test_join_equals_the_model_in_every_slicing_and_number_of_tasks(
    type_: str,
    retentions: tuple[int | None, int | None],
    records: list[Change],
    cuts: set[int],
    is_single: bool,
    hashing: KeyHash,
    tasks: int,
) -> None:
    chain, model = Chain(type_, retentions, hashing=hashing, tasks=tasks), expected(type_, retentions, records)
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


def test_answers_to_one_change_come_by_value_of_a_numeric_key() -> None:
    left = Schema((("o.key", BIGINT), ("o.region", STRING), ("o.number", INT)))
    right = Schema((("c.region", STRING), ("c.number", BIGINT), ("c.value", STRING)))
    chain = Chain("inner", (None, None), (left, right), ("o.region", "o.number + 1"), ("c.region", "c.number"))
    keys = [10, -3, 9, 2_000_000_000_000, 0]
    rows = [(pos, 5, 0, None, pos, key, "north", 1) for pos, key in enumerate(keys)]
    others = [(5, 5, 0, None, 5, 7, "north", 2), (6, 5, 0, None, 6, 8, None, 1), (7, 5, 0, None, 7, 6, "south", 1)]
    output = chain.run(table([*rows, *others], left), table([(8, 4, 0, None, 8, "north", 2, "met")], right))
    assert output["o.key"].to_list() == sorted(keys)
    further = is_further(output["_rank"])
    assert further is not None
    assert further.tolist() == [False, True, True, True, True]
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

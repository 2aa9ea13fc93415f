"""What runs a scenario's steps: the engine's own task, its total order, its versioned table. Every batch is one call."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Protocol

import polars as pl

from engine.core.frames import OP, TS
from engine.core.hashing import key_hash
from engine.core.order import Slice, order_batch
from engine.core.task import build_task
from engine.definition.types import STRING, ColumnType, Schema
from engine.plan.model import Feed, Input, RelationSchema
from engine.state.memory import MemorySegmentStore
from tests.conformance.plans import FEED, plan_of, value_type

Step = dict[str, Any]


class Machine(Protocol):
    """Runs consecutive steps of one scenario as one batch."""

    def run(self, start: int, end: int) -> list[Any]:
        """Return the outputs of the steps ``start..end-1``, in order; a store returns one result per step."""
        ...

    def restart(self) -> None:
        """Stop cleanly and start again from the kept state."""
        ...


class TaskMachine:
    """A stream-table join or a window aggregation: a task of the engine, built from a plan."""

    def __init__(self, op: dict[str, Any], steps: Sequence[Step]) -> None:
        self._op = op
        self._plan = plan_of(op)
        self._store = MemorySegmentStore()
        self._task = build_task(self._plan.stages[0], self._plan, None, self._store)
        sides = {item.index: "table" if item.relation.kind == "table" else "stream" for item in self._plan.inputs}
        self._places = {index: [i for i, step in enumerate(steps) if step.get("in") == side] for index, side in sides.items()}
        self._frames = {index: self._frame(sides[index], places, steps) for index, places in self._places.items()}

    def run(self, start: int, end: int) -> list[Any]:
        slices = []
        for index, places in self._places.items():
            first, last = bisect_left(places, start), bisect_left(places, end)
            if last > first:
                slices.append(Slice(index, FEED.name, 0, self._frames[index].slice(first, last - first)))
        changes = self._task.process(slices, 0).changes
        return [self._output(row) for row in changes.iter_rows(named=True)]

    def restart(self) -> None:
        state = json.loads(json.dumps(self._task.snapshot()))
        self._store.purge()
        self._task = build_task(self._plan.stages[0], self._plan, state, self._store)

    def _frame(self, side: str, places: list[int], steps: Sequence[Step]) -> pl.DataFrame:
        values = [steps[i]["value"] for i in places]
        if side == "table" and self._op.get("table_filter"):
            # F1: a table row that fails a filter is a delete; tables of later releases filter inside the plan
            prefix = self._op["table_filter"]["drop_prefix"]
            values = [None if value is not None and value.startswith(prefix) else value for value in values]
        return canonical([(i, steps[i]["key"], steps[i]["ts"]) for i in places], values, value_type(self._op))

    def _output(self, row: dict[str, Any]) -> dict[str, Any]:
        value = row["value"] if row[OP] == 0 else None
        if self._op["kind"] == "stream_table_join":
            return {"key": row["key"], "value": value, "ts": row[TS]}
        start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
        return {"key": {"key": row["key"], "start": start, "end": end}, "value": value, "ts": row[TS]}


class MergeMachine:
    """The total order of the inputs of one task. A step is a whole fetch, hence a batch."""

    def __init__(self, op: dict[str, Any], steps: Sequence[Step]) -> None:
        self._steps = steps
        columns = Schema((("value", STRING),))
        self._inputs = [
            Input(i, name, RelationSchema(name, "stream", columns, (), None, None, None, None, None), _feed(name), ("value",), ())
            for i, name in enumerate(op["inputs"])
        ]
        self._position = 0
        self._offset = 0

    def run(self, start: int, end: int) -> list[Any]:
        return [output for step in self._steps[start:end] for output in self._fetch(step["fetch"])]

    def restart(self) -> None:
        """The order starts afresh in every batch: there is nothing to keep but the position."""

    def _fetch(self, records: list[Step]) -> list[Any]:
        slices = []
        for item in self._inputs:
            own = [(self._offset + i, record) for i, record in enumerate(records) if record["in"] == item.alias]
            if own:
                rows = [(offset, None, record["ts"]) for offset, record in own]
                frame = canonical(rows, [record["value"] for _, record in own], STRING).drop("key")
                slices.append(Slice(item.index, item.feed.name, 0, frame))
        ordered = order_batch(slices, self._inputs, self._position)
        self._position += len(records)
        self._offset += len(records)
        taken = [
            (row["_pos"], {"key": self._inputs[index].alias, "value": row[f"{self._inputs[index].alias}.value"], "ts": row[TS]})
            for index, frame in ordered.items()
            for row in frame.to_dicts()
        ]
        return [output for _, output in sorted(taken, key=lambda each: each[0])]


def canonical(rows: list[tuple[int, str | None, int]], values: list[Any], type_: ColumnType) -> pl.DataFrame:
    """Rows of (offset, key, event time) and their values as a connector would give them; a null value is a delete."""
    if type_ != STRING:
        values = [None if value is None else int(value) for value in values]
    frame = pl.DataFrame(
        {
            "_ts": pl.Series([ts for _, _, ts in rows], dtype=pl.Int64),
            "_offset": pl.Series([offset for offset, _, _ in rows], dtype=pl.Int64),
            "_op": pl.Series([int(value is None) for value in values], dtype=pl.Int8),
            "key": pl.Series([key for _, key, _ in rows], dtype=pl.String),
            "value": pl.Series(values, dtype=type_.polars),
        }
    )
    return frame.with_columns(key_hash(frame, ["key"]))


def _feed(name: str) -> Feed:
    return Feed(f"log:{name}", "log", name)

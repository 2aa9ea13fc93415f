"""What runs a scenario's steps: the engine's own task, its total order, its versioned table. Every batch is one call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import polars as pl

from engine.core.frames import TS
from engine.core.hashing import key_hash
from engine.core.order import Slice, order_batch
from engine.core.task import build_task
from engine.definition.types import STRING, ColumnType, Schema
from engine.plan.model import Feed, Input, RelationSchema
from engine.state.memory import MemorySegmentStore
from tests.conformance.plans import FEED, plan_of, value_type

Step = dict[str, Any]


class Machine(Protocol):
    """Runs consecutive steps as one batch."""

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Return the outputs in order; a store returns one result per step."""
        ...

    def restart(self) -> None:
        """Stop cleanly and start again from the kept state."""
        ...


class TaskMachine:
    """A stream-table join or a window aggregation: a task of the engine, built from a plan."""

    def __init__(self, op: dict[str, Any]) -> None:
        self._op = op
        self._plan = plan_of(op)
        self._store = MemorySegmentStore()
        self._task = build_task(self._plan.stages[0], self._plan, None, self._store)
        self._type = value_type(op)
        self._offset = 0

    def run(self, steps: Sequence[Step]) -> list[Any]:
        slices = []
        for item in self._plan.inputs:
            side = "table" if item.relation.kind == "table" else "stream"
            rows = [(self._offset + i, step) for i, step in enumerate(steps) if step["in"] == side]
            if rows:
                slices.append(Slice(item.index, FEED.name, 0, self._frame(side, rows)))
        self._offset += len(steps)
        changes = self._task.process(slices, 0).changes
        return [self._output(row) for row in changes.to_dicts()]

    def restart(self) -> None:
        state = json.loads(json.dumps(self._task.snapshot()))
        self._task = build_task(self._plan.stages[0], self._plan, state, self._store)

    def _frame(self, side: str, rows: list[tuple[int, Step]]) -> pl.DataFrame:
        values = [step["value"] for _, step in rows]
        if side == "table" and self._op.get("table_filter"):
            # F1: a table row that fails a filter is a delete; tables of later releases filter inside the plan
            prefix = self._op["table_filter"]["drop_prefix"]
            values = [None if value is not None and value.startswith(prefix) else value for value in values]
        return canonical([(offset, step["key"], step["ts"]) for offset, step in rows], values, self._type)

    def _output(self, row: dict[str, Any]) -> dict[str, Any]:
        if self._op["kind"] == "stream_table_join":
            return {"key": row["key"], "value": row["value"], "ts": row[TS]}
        start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
        return {"key": {"key": row["key"], "start": start, "end": end}, "value": row["value"], "ts": row[TS]}


class MergeMachine:
    """The total order of the inputs of one task. A step is a whole fetch, hence a batch."""

    def __init__(self, op: dict[str, Any]) -> None:
        columns = Schema((("value", STRING),))
        self._inputs = [
            Input(i, name, RelationSchema(name, "stream", columns, (), None, None, None, None, None), _feed(name), ("value",), ())
            for i, name in enumerate(op["inputs"])
        ]
        self._position = 0
        self._offset = 0

    def run(self, steps: Sequence[Step]) -> list[Any]:
        return [output for step in steps for output in self._fetch(step["fetch"])]

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

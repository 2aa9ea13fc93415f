"""What runs a scenario's steps: whole queries, the total order, the versioned table. Every batch is one call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Protocol

import polars as pl

from engine.errors import BufferFull
from engine.expressions.types.types import STRING, ColumnType, Schema
from engine.frames.frames import OFFSET, OP, SERVICE_COLUMNS, TS
from engine.frames.hashing import key_hash
from engine.operators.rows.table_filter import LATE_END
from engine.operators.tasks.order import BatchOrder
from engine.operators.tasks.slices import Slice, placed
from engine.plan.model import Feed, Input, RelationSchema
from tests.batch_times import plan_reading
from tests.conformance.queries import case_of
from tests.lane_readings import lane_readings

Step = dict[str, Any]

ERROR_NAMES = {BufferFull: "StreamsException"}
"""Our errors by the names that the corpora have for them."""


class Machine(Protocol):
    """Runs consecutive steps of one scenario as one batch."""

    def run(self, start: int, end: int) -> list[Any] | None:
        """Return the outputs of the steps ``start..end-1``, in order; a store returns one result per step. None: it failed before."""
        ...

    def restart(self) -> None:
        """Stop cleanly and start again from the kept state."""
        ...


class QueryMachine:
    """Everything that a user can write as a query: planned from its definition, run by the workbench of ``slackwater test``."""

    def __init__(self, op: dict[str, Any], steps: Sequence[Step]) -> None:
        self._case = case_of(op)
        self._bench = self._case.workbench()
        self._name = self._case.queries[-1]["name"]
        self._is_windowed = self._bench.plan(self._name).output.is_windowed
        self._places: dict[str, list[int]] = {relation: [] for relation in self._case.sides.values()}
        for place, step in enumerate(steps):
            if "in" in step:
                self._places[self._case.sides[step["in"]]].append(place)
        self._frames = {relation: self._frame(relation, places, steps) for relation, places in self._places.items()}

    def run(self, start: int, end: int) -> list[Any] | None:
        if self._bench.outcome(self._name).failure is not None:
            return None
        records = {}
        for relation, places in self._places.items():
            first, last = bisect_left(places, start), bisect_left(places, end)
            records[relation] = self._frames[relation].slice(first, last - first)
        changes = self._bench.process(records).get(self._name)
        told = [] if changes is None else changes.filter(pl.col(OP) != LATE_END).iter_rows(named=True)
        found = [self._output(row) for row in told]
        failure = self._bench.outcome(self._name).failure
        return found if failure is None else [*found, {"error": ERROR_NAMES[type(failure)]}]

    def restart(self) -> None:
        self._bench.restart()

    def _frame(self, relation: str, places: list[int], steps: Sequence[Step]) -> pl.DataFrame:
        columns = self._bench.catalog[relation].relation.columns
        records = [self._case.record(steps[i]["in"], steps[i]["key"], steps[i]["value"]) for i in places]
        rows = [{**dict.fromkeys(columns.names), **record} for record in records]
        given = ["value" if "value" in record else "payload" for record in records]
        is_delete = [
            steps[i]["value"] is None or record[name] is None for i, record, name in zip(places, records, given, strict=True)
        ]
        service = {TS: [steps[i]["ts"] for i in places], OFFSET: places, OP: [int(each) for each in is_delete]}
        frame = pl.DataFrame(rows, schema=columns.polars(), orient="row")
        return frame.with_columns(pl.Series(name, values, dtype=SERVICE_COLUMNS[name]) for name, values in service.items())

    def _output(self, row: dict[str, Any]) -> dict[str, Any]:
        value = row["value"] if row[OP] == 0 else None
        if not self._is_windowed:
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
        batch = BatchOrder.of(plan_reading(self._inputs), lane_readings(slices, self._inputs), self._position, {}, 0)
        ordered = placed(slices, self._inputs, batch)
        self._position = batch.end
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

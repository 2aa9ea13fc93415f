"""From a scenario's ``op`` to the plan that the engine's task is built from, and to the definition a user would write."""

from __future__ import annotations

from typing import Any

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.definition.types import BIGINT, STRING, TIMESTAMP, ColumnType, Schema
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import (
    AggregateColumn,
    Feed,
    Filter,
    Input,
    LateRecords,
    Operator,
    Output,
    Plan,
    Projection,
    RelationSchema,
    Stage,
    StreamTableJoin,
    WindowAggregation,
)

FEED = Feed("log:steps", "log", "steps")
"""Both sides of a join share one feed, so a batch keeps the order of the steps whatever their times (T2)."""

_NUMERIC = ("sum", "min", "max")


def plan_of(op: dict[str, Any]) -> Plan:
    """Return the plan of a stream-table join or a window aggregation."""
    return _join_plan(op) if op["kind"] == "stream_table_join" else _window_plan(op)


def value_type(op: dict[str, Any]) -> ColumnType:
    """Return the type of the steps' values: decimal integers for the aggregates that need numbers."""
    return BIGINT if op.get("agg") in _NUMERIC else STRING


def validate(op: dict[str, Any]) -> None:
    """Build the plan of the definition a user would write for a join. Raises DefinitionInvalid where it is refused."""
    columns = {"key": "string", "value": "string"}
    table: dict[str, Any] = {"key": ["key"], "columns": columns}
    if op["table"]["versioned"]:
        table["versioned"] = {"history_retention": f"{op['table']['history_retention_ms']}ms"}
    join: dict[str, Any] = {"table": "t", "type": op["join"], "on": "s.key = t.key"}
    if op["grace_ms"] is not None:
        join["grace"] = f"{op['grace_ms']}ms"
    query = {
        "name": "scenario",
        "from": {"stream": "s"},
        "joins": [join],
        "select": {"key": "s.key", "value": "t.value"},
        "into": {"stream": "out"},
    }
    stream = StreamDefinition.model_validate({"key": ["key"], "columns": columns})
    catalog = {"s": source_entry("s", stream), "t": source_entry("t", TableDefinition.model_validate(table))}
    build_plan(QueryDefinition.model_validate(query), catalog)


def _join_plan(op: dict[str, Any]) -> Plan:
    table = op["table"]
    retention = table["history_retention_ms"] if table["versioned"] else None
    inputs = (_input(0, "t", "table", STRING, retention), _input(1, "s", "stream", STRING))
    schema = Schema((("t.key", STRING), ("t.value", STRING), ("s.key", STRING), ("s.value", STRING)))
    join = StreamTableJoin("t", op["join"], 0, ("s.key",), ("t.key",), retention, op["grace_ms"], "join", "null", ("t.value",))
    joined = "s.value || '|' || coalesce(t.value, 'null')"
    operators = (join, Projection((("key", "s.key"), ("value", joined))))
    return _plan(inputs, Stage(0, schema, 1, operators), Schema((("key", STRING), ("value", STRING))))


def _window_plan(op: dict[str, Any]) -> Plan:
    window, type_ = op["window"], value_type(op)
    function = op["agg"]
    aggregate = AggregateColumn("value", function, None if function == "count" else "s.value")
    emit = "changes" if op["emit"] == "changes" else "final"
    advance_ms = window.get("advance_ms", window["size_ms"])
    group = (("key", "s.key"),)
    operators: list[Operator] = []
    if op.get("stream_filter"):
        operators.append(Filter(f"s.value not like '{op['stream_filter']['drop_prefix']}%'"))
    operators.append(WindowAggregation("w", group, window["size_ms"], advance_ms, op["grace_ms"], (aggregate,), emit))
    result = {"count": BIGINT, "concat": STRING}.get(function, type_)
    output = Schema((("key", STRING), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("value", result)))
    stage = Stage(0, Schema((("s.key", STRING), ("s.value", type_))), 0, tuple(operators))
    return _plan((_input(0, "s", "stream", type_),), stage, output)


def _input(index: int, alias: str, kind: Any, type_: ColumnType, retention_ms: int | None = None) -> Input:
    columns = Schema((("key", STRING), ("value", type_)))
    relation = RelationSchema(alias, kind, columns, ("key",), None, None, None, None, retention_ms)
    return Input(index, alias, relation, FEED, ("key", "value"), ("key",))


def _plan(inputs: tuple[Input, ...], stage: Stage, columns: Schema) -> Plan:
    output = Output("out", "stream", columns, (), is_windowed=False, is_final=False, retention_ms=None)
    return Plan("scenario", 1, inputs, (stage,), output, LateRecords(100, 1))

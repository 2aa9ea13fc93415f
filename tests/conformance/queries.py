"""From a scenario's operator to what a user would write: sources and queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.expressions.aggregates.aggregates import AggregateFunction
from engine.expressions.types.types import STRING
from engine.plan.build import build_plan
from engine.plan.model import Plan
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation, TableAggregation
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation

Json = dict[str, Any]

INTERNAL_AGGREGATES: dict[str, AggregateFunction] = {"concat": "concat", "trace": "trace"}
"""Aggregates that only the corpora know. The definition says ``min`` or ``count`` in their place, the plan is changed."""


@dataclass(frozen=True)
class Case:
    """A scenario as a user would write it.

    Attributes:
        sources: relation → definition. All of them share one feed, so that the scenario's order is theirs.
        queries: the last one gives the outputs.
        sides: the scenario's name of an input → relation.
        record: makes the columns of a record from a step's side, key and value; a null value is a delete.
        aggregate: the last query's aggregate where it is one of ``INTERNAL_AGGREGATES``.
    """

    sources: dict[str, SourceDefinition]
    queries: list[Json]
    sides: dict[str, str]
    record: Callable[[str, Any, Any], Json]
    aggregate: str | None = None

    def workbench(self) -> Workbench:
        """Plan the queries. Raises DefinitionInvalid where one is refused."""
        bench = Workbench(self.sources)
        for query in self.queries:
            bench.add_plan(self._adapted(build_plan(QueryDefinition.model_validate(query), bench.catalog)))
        return bench

    def _adapted(self, plan: Plan) -> Plan:
        """Put an internal aggregate where its stand-in is."""
        function = INTERNAL_AGGREGATES.get(self.aggregate or "")
        if function is None or plan.query != self.queries[-1]["name"]:
            return plan
        stages = tuple(
            replace(stage, operators=tuple(_with_function(operator, function) for operator in stage.operators))
            for stage in plan.stages
        )
        columns = type(plan.output.columns)(
            tuple((name, STRING if name == "value" else kind) for name, kind in plan.output.columns.items())
        )
        return replace(plan, stages=stages, output=replace(plan.output, columns=columns))


def _with_function(operator: Any, function: AggregateFunction) -> Any:
    kinds = (WindowAggregation, SessionAggregation, SlidingAggregation, RunningAggregation, TableAggregation)
    if not isinstance(operator, kinds):
        return operator
    columns: tuple[AggregateColumn, ...] = operator.aggregates
    return replace(operator, aggregates=tuple(replace(column, function=function) for column in columns))


def case_of(op: Json) -> Case:
    """Translate an operator. Its kind is none of ``versioned_store`` and ``merge_order``, which are no queries."""
    return _CASES[op["kind"]](op)


def _connector() -> Json:
    return {"type": "log", "feed": "scenario", "partitions": 1}


def _stream(**columns: str) -> StreamDefinition:
    return StreamDefinition.model_validate({"key": ["key"], "columns": columns, "connector": _connector()})


def _table(given: Json | None, **columns: str) -> TableDefinition:
    definition: Json = {"key": ["key"], "columns": columns, "connector": _connector()}
    if given is not None and given["versioned"]:
        definition["versioned"] = {"history_retention": f"{given['history_retention_ms']}ms"}
    return TableDefinition.model_validate(definition)


def _query(name: str, **parts: Any) -> Json:
    return {"name": name, "tasks": 1, **parts}


def _plain(_: str, key: Any, value: Any) -> Json:
    return {"key": key, "value": value}


def _split(_: str, key: Any, value: Any) -> Json:
    """``group|payload``; an empty group is none."""
    group, _, payload = (value or "").partition("|")
    return {"key": key, "grp": group or None, "payload": payload}


def _stream_table_join(op: Json) -> Case:
    columns = {"key": "string", "value": "string"}
    join: Json = {"table": "t", "type": op["join"], "on": "s.key = t.key"}
    if op["grace_ms"] is not None:
        join["grace"] = f"{op['grace_ms']}ms"
    select = {"key": "s.key", "value": "s.value || '|' || coalesce(t.value, 'null')"}
    query = _query("q", **{"from": {"stream": "s"}}, joins=[join], select=select, into={"stream": "out"})
    prefix = (op.get("table_filter") or {}).get("drop_prefix")

    def record(side: str, key: Any, value: Any) -> Json:
        # F1: a table row that fails a filter is a delete
        is_dropped = side == "table" and prefix is not None and value is not None and value.startswith(prefix)
        return _plain(side, key, None if is_dropped else value)

    return Case({"s": _stream(**columns), "t": _table(op["table"], **columns)}, [query], {"stream": "s", "table": "t"}, record)


def _table_table_join(op: Json) -> Case:
    columns = {"key": "string", "value": "string"}
    query = _query(
        "q",
        **{"from": {"table": "l"}},
        joins=[{"table": "r", "type": op["join"], "on": "l.key = r.key"}],
        select={"key": "l.key", "value": "coalesce(l.value, 'null') || '|' || coalesce(r.value, 'null')"},
        into={"table": "out"},
    )
    sources: dict[str, SourceDefinition] = {"l": _table(op["left"], **columns), "r": _table(op["right"], **columns)}
    return Case(sources, [query], {"left": "l", "right": "r"}, _plain)


def _foreign_key_join(op: Json) -> Case:
    query = _query(
        "q",
        **{"from": {"table": "l"}},
        joins=[{"table": "r", "type": op["join"], "on": "l.grp = r.key"}],
        select={"key": "l.key", "value": "coalesce(l.grp, '') || '|' || l.payload || '|' || coalesce(r.payload, 'null')"},
        into={"table": "out"},
    )
    columns = {"key": "string", "grp": "string", "payload": "string"}
    sources: dict[str, SourceDefinition] = {"l": _table(op["left"], **columns), "r": _table(op["right"], **columns)}

    def record(side: str, key: Any, value: Any) -> Json:
        return _split(side, key, value) if side == "left" else {"key": key, "grp": None, "payload": value}

    return Case(sources, [query], {"left": "l", "right": "r"}, record)


_NUMERIC = ("sum", "min", "max")


def _table_aggregate(op: Json) -> Case:
    if op.get("source") == "stream_count":
        counts = _query(
            "counts", **{"from": {"stream": "s"}}, group_by=["key"], aggregate={"n": "count(*)"},
            select={"key": "key", "n": "n", "grp": "'all'"}, into={"table": "counts"},
        )  # fmt: skip
        total = _query(
            "q", **{"from": {"table": "counts"}}, group_by=["grp"], aggregate={"value": "count(*)"},
            select={"key": "grp", "value": "value"}, into={"table": "out"},
        )  # fmt: skip
        return Case({"s": _stream(key="string", value="string")}, [counts, total], {"stream": "s"}, _plain)
    kind = "bigint" if op["agg"] in _NUMERIC else "string"
    aggregate = {"count": "count(*)", "sum": "sum(payload)", "trace": "count(payload)"}[op["agg"]]
    query = _query(
        "q", **{"from": {"table": "t"}}, group_by=["grp"], aggregate={"value": aggregate},
        select={"key": "grp", "value": "value"}, into={"table": "out"},
    )  # fmt: skip
    table = _table(op["table"], key="string", grp="string", payload=kind)

    def record(side: str, key: Any, value: Any) -> Json:
        row = _split(side, key, value)
        return {**row, "payload": int(row["payload"]) if row["payload"] else None} if kind == "bigint" else row

    return Case({"t": table}, [query], {"table": "t"}, record, op["agg"])


def _table_filter(op: Json) -> Case:
    into: Json = {"table": "out"}
    materialized = op["materialized"]
    if materialized is not None and materialized["versioned"]:
        into["versioned"] = {"history_retention": f"{materialized['history_retention_ms']}ms"}
    elif materialized is None and op["table"]["versioned"]:
        into["versioned"] = {"history_retention": f"{op['table']['history_retention_ms']}ms"}
    query = _query("q", **{"from": {"table": "t"}}, where=f"value not like '{op['drop_prefix']}%'", into=into)
    return Case({"t": _table(op["table"], key="string", value="string")}, [query], {"table": "t"}, _plain)


def _suppress_time_limit(op: Json) -> Case:
    suppress: Json = {"mode": "until_time_limit", "limit": f"{op['limit_ms']}ms"}
    if op["max_records"] is not None:
        when_full = {"emit_early": "emit_early", "shut_down": "stop"}[op["when_full"]]
        suppress["buffer"] = {"max_rows": op["max_records"], "when_full": when_full}
    columns = {"key": "string", "value": "string"}
    parts: Json = {"from": {"table": "t"}, "suppress": suppress, "into": {"table": "out"}}
    if op.get("source") == "count_by_value":
        parts |= {"group_by": ["value"], "aggregate": {"n": "count(*)"}, "select": {"key": "value", "value": "n"}}
    queries = [_query("q", **parts)]
    if op.get("then") == "trace":
        queries.append(
            _query(
                "traced", **{"from": {"table": "out"}}, group_by=["key"], aggregate={"value": "count(value)"},
                into={"table": "traced"},
            )
        )  # fmt: skip
    return Case({"t": _table(op.get("table"), **columns)}, queries, {"table": "t"}, _plain, op.get("then"))


def _window_aggregate(op: Json) -> Case:
    kind = "bigint" if op["agg"] in _NUMERIC else "string"
    window = {name.removesuffix("_ms"): f"{value}ms" for name, value in op["window"].items() if name.endswith("_ms")}
    window |= {"type": op["window"]["type"], "grace": f"{op['grace_ms']}ms"}
    function = {"count": "count(*)", "concat": "min(value)"}.get(op["agg"], f"{op['agg']}(value)")
    mode = "none" if op["emit"] == "changes" else "until_window_closes"
    parts: Json = {"from": {"stream": "s"}}
    if op.get("stream_filter"):
        parts["where"] = f"value not like '{op['stream_filter']['drop_prefix']}%'"
    query = _query(
        "q",
        **parts,
        group_by=["key"],
        window=window,
        aggregate={"value": function},
        suppress={"mode": mode},
        into={"table": "out"},
    )

    def record(side: str, key: Any, value: Any) -> Json:
        return _plain(side, key, int(value) if kind == "bigint" and value is not None else value)

    return Case({"s": _stream(key="string", value=kind)}, [query], {"stream": "s"}, record, op["agg"])


_CASES: dict[str, Callable[[Json], Case]] = {
    "stream_table_join": _stream_table_join,
    "table_table_join": _table_table_join,
    "foreign_key_join": _foreign_key_join,
    "table_aggregate": _table_aggregate,
    "table_filter": _table_filter,
    "suppress_time_limit": _suppress_time_limit,
    "window_aggregate": _window_aggregate,
}

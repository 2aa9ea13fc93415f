"""Any definition is planned or refused with its problems, and what is planned fits together."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.plan.build import build_plan, normalise, state_fingerprint
from engine.plan.catalog import Catalog, derived_entry, source_entry
from engine.plan.model import Plan
from tests.examples import examples
from tests.property.plan_walk import walk

_COLUMNS = {
    "id": "string", "origin": "string", "n": "int", "big": "bigint", "x": "double", "at": "timestamp", "tags": "array<string>",
}  # fmt: skip


def _catalog() -> Catalog:
    streams: dict[str, dict[str, Any]] = {
        "s": {"key": ["id"], "columns": _COLUMNS},
        "other": {"key": ["id", "n"], "columns": _COLUMNS},
        "bare": {"columns": {"x": "double", "origin": "string", "at": "timestamp"}},
    }
    versioned = {"versioned": {"history_retention": "2h"}}
    tables: dict[str, dict[str, Any]] = {
        "t": {"key": ["id"], "columns": _COLUMNS},
        "v": {"key": ["id"], "columns": _COLUMNS, **versioned},
        "u": {"key": ["id"], "columns": {"id": "string", "y": "double", "origin": "string"}, **versioned},
        "pair": {"key": ["origin", "n"], "columns": _COLUMNS, **versioned},
        "swap": {"key": ["n", "origin"], "columns": _COLUMNS, "conflict": "latest_event_time"},
        "numbered": {"key": ["big"], "columns": {"big": "bigint", "z": "int"}},
    }
    made = {name: source_entry(name, StreamDefinition.model_validate(body)) for name, body in streams.items()}
    made |= {name: source_entry(name, TableDefinition.model_validate(body)) for name, body in tables.items()}
    counts = {
        "name": "counts", "from": {"stream": "s"}, "group_by": ["origin"], "window": {"type": "tumbling", "size": "1h"},
        "aggregate": {"records": "count(*)"}, "into": {"table": "counted", "versioned": {"history_retention": "2d"}},
    }  # fmt: skip
    return {**made, "counted": derived_entry(build_plan(QueryDefinition.model_validate(counts), made))}


CATALOG = _catalog()
OUTPUTS: list[dict[str, Any]] = [
    {"type": "files", "path": "it's", "format": "ndjson", "every": "0s"},
    {"type": "delta", "path": "lake/out", "partition_by": "date", "start": "latest"},
    {"type": "kafka", "connection": "broker", "topic": "Out.1", "guarantee": "at_least_once"},
    {"type": "kafka", "connection": "broker", "topic": "out", "value": {"format": "avro", "schema": '{"type": "record"}', "has_key": True},
     "create": {"partitions": 3, "cleanup_policy": "compact"}},
]  # fmt: skip
_lengths = st.sampled_from(["0s", "1s", "1m", "1h", "3h"])
_odd = st.sampled_from(
    [
        None, "", "nope", "0s", "1h", "t", "s", "a", "id", "a.id", "a.tags", "lower(a.id)", "a.id = b.id", "a.n > 1", "count(*)", "outer",
        "right", "left", "session", "until_time_limit", "complete", "drop", True, 0, [], {}, ["a.tags"], {"after": "1m"},
        {"stream": "out"}, {"table": "out"}, {"table": "v", "as": "z"}, {"stream": "bare"}, {"history_retention": "1s"},
        {"before": "1m", "after": "0s"}, {"at_most": "1m"}, {"type": "session", "gap": "1m"},
    ]
)  # fmt: skip
_FIELDS = (
    "as", "where", "type", "on", "grace", "late", "expired", "hold", "history", "unversioned_ok", "within", "group_by", "window", "aggregate",
    "having", "suppress", "select", "idle", "clock", "versioned", "size", "advance", "difference", "gap", "retention", "mode", "limit", "buffer",
    "event_driven", "stream", "table", "from", "into", "start",
)  # fmt: skip


@dataclass
class _Inputs:
    """What a definition in the making reads."""

    names: list[tuple[str, str]]

    def columns(self, *kinds: str) -> list[str]:
        """Return the columns of these types (default: of all that can be compared)."""
        found = []
        for alias, name in self.names:
            columns = CATALOG[name].relation.columns.items()
            found += [f"{alias}.{column}" for column, kind in columns if kind.kind in kinds or not (kinds or kind.is_nested)]
        return found

    def value(self, draw: st.DrawFn, kind: str = "string") -> str:
        """Draw an expression of a type: mostly a column."""
        found = draw(st.sampled_from(self.columns(kind) or ["'JFK'" if kind == "string" else "1"]))
        form = draw(st.sampled_from(["{}", "{}", "{}", "lower({})" if kind == "string" else "{} + 1"]))
        return form.format(found)

    def condition(self, draw: st.DrawFn) -> str:
        """Draw a condition."""
        column = draw(st.sampled_from(self.columns()))
        time = self.time(draw)
        forms = [f"{column} IS NOT NULL", f"coalesce(cast({column} as string), 'x') <> 'JFK'", f"{time} % 1800000 = 0"]
        return draw(st.sampled_from(forms))

    def time(self, draw: st.DrawFn) -> str:
        """Draw an event time: of the rows or of a relation's records."""
        return draw(st.sampled_from(["$event_time_ms", *(f"{alias}.$event_time_ms" for alias, _ in self.names)]))


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _named(kind: str) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(name for name, entry in CATALOG.items() if entry.relation.kind == kind))


def _join(draw: st.DrawFn, inputs: _Inputs, alias: str, kind: str) -> dict[str, Any]:
    """Draw a join that fits what is there."""
    name = draw(_named(draw(st.sampled_from(["table", kind]))))
    relation = CATALOG[name].relation
    join: dict[str, Any] = {relation.kind: name, "as": alias}
    key = relation.key or ("origin",)
    equal = [f"{inputs.value(draw, relation.columns[column].kind)} = {alias}.{column}" for column in key]
    if kind == "table" and draw(st.booleans()):
        equal = [f"a.{column} = {alias}.{column}" for column in key]
    join["on"] = " AND ".join(draw(st.permutations(equal)))
    if relation.kind == "stream":
        join["within"] = draw(
            st.fixed_dictionaries(
                {"before": _lengths, "after": _lengths},
                optional={"grace": _lengths, "unmatched": st.sampled_from(["eager", "when_closed"])},
            )
        )
        return join | {"type": draw(st.sampled_from(["inner", "left", "outer"]))}
    if kind == "table":
        return join | {"type": draw(st.sampled_from(["inner", "left", "left", "outer"]))}
    join["type"] = draw(st.sampled_from(["inner", "left"]))
    if relation.history_retention_ms is not None and draw(st.booleans()):
        join |= {"grace": draw(st.sampled_from(["0s", "1m"])), "late": draw(st.sampled_from(["join", "drop", "divert"]))}
        hold = st.fixed_dictionaries({"at_most": st.just("5m")}, optional={"slack": _lengths, "until": st.just("caught_up")})
        join |= draw(_some(hold=hold))
    return join


def _aggregation(draw: st.DrawFn, inputs: _Inputs, kind: str) -> dict[str, Any]:
    """Draw an aggregation that suits a stream or a table."""
    functions = ["count", "sum", "avg", *(("min", "first", "collect_list") if kind == "stream" else ())]
    call = f"{draw(st.sampled_from(functions))}({inputs.value(draw, draw(st.sampled_from(['int', 'double'])))})"
    body: dict[str, Any] = {"aggregate": {"records": "count(*)", "value": call}} | draw(_some(having=st.just("records > 1")))
    body["group_by"] = [inputs.value(draw) for _ in range(draw(st.integers(1, 2)))]
    if draw(st.booleans()):
        body["aggregate"]["times"] = f"sum({inputs.time(draw)})"
    if draw(st.integers(0, 4)) == 0:
        body["group_by"].append(inputs.time(draw))
    if kind == "table" or draw(st.booleans()):
        return body
    sizes = {"tumbling": ["size"], "hopping": ["size", "advance"], "sliding": ["difference"], "session": ["gap"]}
    window = draw(st.sampled_from(sorted(sizes)))
    body["window"] = {"type": window, **dict.fromkeys(sizes[window], "1h")} | draw(_some(grace=_lengths))
    return body


def _suppress(draw: st.DrawFn, *, is_windowed: bool) -> dict[str, Any]:
    modes = ["none", "until_time_limit", "until_wall_clock_time_limit"]
    mode = draw(st.sampled_from([*modes, *(("until_window_closes", "window_end_then_corrections") if is_windowed else ())]))
    if "limit" not in mode:
        return {"mode": mode}
    buffer = _some(max_rows=st.just(5), max_bytes=st.just(99), when_full=st.sampled_from(["emit_early", "stop"]))
    return {"mode": mode, "limit": draw(_lengths)} | draw(_some(buffer=buffer))


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a definition whose parts suit each other, mostly."""
    kind = draw(st.sampled_from(["stream", "table"]))
    source = draw(_named(kind))
    inputs = _Inputs([("a", source)])
    joins = []
    for alias in ("b", "c", "d")[: draw(st.integers(0, 3))]:
        joins.append(_join(draw, inputs, alias, kind))
        inputs.names.append((alias, next(joins[-1][side] for side in ("table", "stream") if side in joins[-1])))
    body: dict[str, Any] = {"name": "q", "from": {kind: source, "as": "a"}, "joins": joins, "into": {}}
    if draw(st.integers(0, 3)) == 0:
        body["from"]["where"] = _Inputs([("a", source)]).condition(draw)
    if draw(st.booleans()):
        body["where"] = inputs.condition(draw)
    if is_aggregating := draw(st.booleans()):
        body |= _aggregation(draw, inputs, kind)
    else:
        body["select"] = {name: f"a.{name}" for name in CATALOG[source].relation.key} | {"value": inputs.value(draw)}
        if kind == "stream" and inputs.columns("array") and draw(st.integers(0, 3)) == 0:
            body["select"] |= {"tag": f"explode({draw(st.sampled_from(inputs.columns('array')))})"}
        body["select"] |= draw(_some(at=st.just(inputs.time(draw))))
    body["into"][draw(st.sampled_from(["stream", "table", "table"]))] = "out"
    body["into"] |= draw(_some(connector=st.sampled_from(OUTPUTS)))
    if kind == "stream" and "select" in body and "stream" in body["into"]:
        body["into"] |= draw(_some(key=st.lists(st.sampled_from(sorted(body["select"])), max_size=2)))
    if "at" in body.get("select", {}):
        body["into"] |= draw(_some(event_time=st.just("at")))
    if is_aggregating or kind == "table":
        body["suppress"] = _suppress(draw, is_windowed="window" in body)
        body["into"] |= draw(_some(versioned=st.just({"history_retention": "5h"}))) if "table" in body["into"] else {}
    return body | draw(
        _some(idle=st.just({"after": "1m"}), clock=st.sampled_from(["fastest", "slowest"]), tasks=st.integers(1, 3))
    )


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    """Put something odd somewhere into a definition."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        name = draw(st.sampled_from([*value, draw(st.sampled_from(_FIELDS))]))
        return {**value, name: _spoil(draw, value.get(name))}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], _spoil(draw, value[index]), *value[index + 1 :]]
    return draw(_odd)


@st.composite
def _spoilt(draw: st.DrawFn) -> dict[str, Any]:
    body = draw(definitions())
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([*body, draw(st.sampled_from(_FIELDS))]))
        body = {**body, name: _spoil(draw, body.get(name))}
    return body


def _planned(body: dict[str, Any]) -> Plan | list[Problem]:
    """Return the plan, or what a user is told; any other exception is a defect."""
    try:
        return build_plan(QueryDefinition.model_validate(body), CATALOG)
    except ValidationError as error:
        return problems_of(error)
    except DefinitionInvalid as error:
        return list(error.problems)


def _check(body: dict[str, Any]) -> None:
    plan = _planned(body)
    if isinstance(plan, list):
        assert plan
        for problem in plan:
            assert problem.code
            assert problem.detail
            assert problem.pointer.startswith("/")
            event(problem.code)
        return
    for operator in walk(plan):
        event(type(operator).__name__)
    event(f"planned in {len(plan.stages)} stages")
    stored = json.loads(normalise(QueryDefinition.model_validate(body)).model_dump_json(by_alias=True))
    again = build_plan(QueryDefinition.model_validate(stored), CATALOG)
    assert again == plan
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own bytes
    assert state_fingerprint(again) == state_fingerprint(plan)
    assert derived_entry(plan).relation.history_retention_ms == plan.output.history_retention_ms


@settings(max_examples=examples(100), deadline=None)
@given(definitions())
def test_a_sound_definition_is_planned_or_refused_and_its_plan_fits_together(body: dict[str, Any]) -> None:
    _check(body)


@settings(max_examples=examples(100), deadline=None)
@given(_spoilt())
def test_an_odd_definition_is_planned_or_refused_and_its_plan_fits_together(body: dict[str, Any]) -> None:
    _check(body)

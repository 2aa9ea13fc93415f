"""The lists of functions, aggregates, operators and types are whole, and their examples give what they say."""

from __future__ import annotations

import ast
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

from engine.expressions import expressions
from engine.expressions.aggregate_calls import parse_aggregate
from engine.expressions.aggregates.aggregates import AGGREGATES, ENTRIES, Aggregate, AggregateFunction, AggregateName
from engine.expressions.documented import TYPES, Example
from engine.expressions.expressions import compile_scalar
from engine.expressions.library.entry import Function
from engine.expressions.library.function_list import ELSEWHERE, FUNCTIONS, KSQLDB
from engine.expressions.library.operator_list import OPERATORS
from engine.expressions.syntax import parse
from engine.expressions.types.types import Kind, Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid
from engine.operators.aggregation.aggregate import ACCUMULATORS
from engine.sql.tree import Column, Star
from tests.conftest import ROOT
from tests.unit.app.testing.cases import failures_of

EXAMPLES = [example for listed in (*FUNCTIONS.values(), *OPERATORS) for example in listed.examples]


def shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        is_map = bool(value) and isinstance(value[0], dict) and set(value[0]) == {"key", "value"}
        return {each["key"]: shown(each["value"]) for each in value} if is_map else [shown(each) for each in value]
    return float(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.expression)
def test_an_example_gives_what_it_says(example: Example) -> None:
    scalar = compile_scalar(example.expression, Schema())
    found = shown(pl.DataFrame({"x": [1]}).select(scalar.expr.alias("found"))["found"].to_list()[0])
    assert (type(found), found) == (type(example.gives), example.gives)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda function: function.name)
def test_a_function_says_what_it_takes_and_gives(function: Function) -> None:
    assert function.doc
    assert function.result
    assert function.arguments or function.most == 0
    assert function.examples
    assert any(function.name + "(" in example.expression for example in function.examples)
    if function.most is not None:
        too_many = ", ".join("1" for _ in range(function.most + 1))
        with pytest.raises(ExpressionInvalid, match=r"takes .* argument") as caught:
            compile_scalar(f"{function.name}({too_many})", Schema())
        assert f"{function.name}({function.takes})" in caught.value.detail


def test_names_of_other_systems_lead_to_a_function_or_to_advice() -> None:
    for name, instead in ELSEWHERE.items():
        assert name not in FUNCTIONS
        with pytest.raises(ExpressionInvalid) as caught:
            compile_scalar(f"{name}(1)", Schema())
        assert caught.value.code == "unknown_function"
        assert instead in caught.value.detail


def test_a_name_of_ksqldb_leads_to_one_function() -> None:
    names = [name for function in FUNCTIONS.values() for name in function.ksqldb]
    assert sorted(names) == sorted(KSQLDB)
    assert all(name == name.upper() for name in names)
    assert KSQLDB["LCASE"] == "lower"


def test_the_operators_show_every_node_that_is_compiled() -> None:
    nodes = {type(node) for example in EXAMPLES for node in parse(example.expression).walk()}
    assert set(expressions._BUILDERS) - nodes - {Column, Star} == set()


def test_every_aggregate_is_computed() -> None:
    assert set(ACCUMULATORS) == set(ENTRIES) == set(get_args(AggregateFunction))


def test_nobody_asks_for_an_aggregate_or_a_function_by_its_name() -> None:
    """What differs from one to the other is a property of its entry: a list of names elsewhere would be forgotten with the next one."""
    entries = {
        "engine/expressions/library/function_list.py",
        "engine/expressions/aggregates/aggregate_entries.py",
        "engine/operators/aggregation/aggregate.py",
    }
    names = set(FUNCTIONS) | set(ENTRIES)
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("definition", "expressions", "frames", "plan", "operators")
        for path in (ROOT / "engine" / folder).rglob("*.py")
        if path.relative_to(ROOT).as_posix() not in entries and "library" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if _asks_by_name(node, names)
    }
    assert found == set()


def _asks_by_name(node: ast.AST, names: set[str]) -> bool:
    """Whether a node compares a function's name, or lists several of them."""
    if isinstance(node, ast.Compare):
        return any(isinstance(each, ast.Attribute) and each.attr == "function" for each in (node.left, *node.comparators))
    given = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Set | ast.List | ast.Tuple) else []
    texts = [each.value for each in given if isinstance(each, ast.Constant)]
    return len(names & {text for text in texts if isinstance(text, str)}) > 2


@pytest.mark.parametrize(
    "text",
    ["column.function == 'concat'", "x.function in ('a',)", "{'count', 'sum', 'avg'}", "{'sqrt': 1, 'ln': 2, 'exp': 3}"],
)  # fmt: skip
def test_a_question_for_a_name_is_found(text: str) -> None:
    assert any(_asks_by_name(node, {*FUNCTIONS, *ENTRIES}) for node in ast.walk(ast.parse(text)))


def test_every_aggregate_and_every_type_is_listed() -> None:
    assert set(AGGREGATES) == set(get_args(AggregateName))
    kinds = {parse_type(each.form).kind for each in TYPES}
    literals = {kind for part in get_args(Kind) for kind in (get_args(part) or (part,))}
    assert kinds == literals
    assert all(json.dumps(each.example) and each.doc for each in TYPES)


@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=lambda aggregate: aggregate.name)
def test_the_example_of_an_aggregate_gives_what_it_says(aggregate: Aggregate, tmp_path: Path) -> None:
    assert aggregate.doc
    assert aggregate.takes
    assert aggregate.result
    example = aggregate.example
    assert example.call.startswith(aggregate.form.partition("(")[0] + "(")
    records = [{"g": "a", "x": x, "at": at} for at, x in enumerate(example.values)]
    case = {
        "streams": {"s": {"columns": {"g": "string", "x": example.type, "at": "bigint"}, "event_time": "at"}},
        "queries": [
            {
                "name": "q",
                "from": {"stream": "s"},
                "group_by": ["g"],
                "aggregate": {"found": example.call},
                "into": {"table": "t"},
            }
        ],
        "steps": [{"s": records}],
        "expect": {"q": {"rows": [{"g": "a", "found": example.gives}]}},
    }
    assert failures_of(tmp_path, json.dumps(case)) == []


@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=lambda aggregate: aggregate.name)
def test_every_name_of_an_aggregate_is_read(aggregate: Aggregate) -> None:
    schema = Schema((("x", parse_type(aggregate.example.type)),))
    first = parse_aggregate(aggregate.example.call, schema)
    assert first.function == aggregate.name
    for alias in aggregate.aliases:
        assert parse_aggregate(aggregate.example.call.replace(aggregate.name, alias), schema) == first

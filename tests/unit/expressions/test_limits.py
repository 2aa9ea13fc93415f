"""Bounds of definitions: what is beyond them is refused with the field, the number and the bound."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.access.keys.routes import ApiKeyBody
from app.catalog.stored.catalog import read_definition
from app.lateness.record_routes import ReplayBody
from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.expressions.expressions import ExpressionInvalid, compile_scalar
from engine.expressions.limits import MAX_DEFINITION_CHARS, MAX_PROBLEMS, MAX_PROBLEMS_READ
from engine.expressions.syntax import parse
from engine.expressions.types.types import BIGINT, STRING, Schema
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry

QUERY: dict[str, Any] = {"name": "q", "from": {"stream": "s"}, "into": {"stream": "out"}}
JOIN = {"table": "t", "on": "s.k = t.k"}


def columns(count: int) -> dict[str, str]:
    return {f"c{number}": "bigint" for number in range(count)}


@pytest.mark.parametrize(
    ("model", "given", "pointer", "code", "count", "bound"),
    [
        (StreamDefinition, {"columns": columns(1_501)}, "/columns", "too_many_columns", "1,501", "1,500"),
        (TableDefinition, {"key": [f"c{n}" for n in range(101)], "columns": columns(102)}, "/key", "too_many_key_columns", "101", "100"),
        (QueryDefinition, {**QUERY, "joins": [JOIN] * 33}, "/joins", "too_many_joins", "33", "32"),
        (QueryDefinition, {**QUERY, "select": {f"a{n}": "1" for n in range(1_501)}}, "/select", "too_many_columns", "1,501", "1,500"),
        (QueryDefinition, {**QUERY, "group_by": ["k"] * 101}, "/group_by", "too_many_group_columns", "101", "100"),
        (
            QueryDefinition,
            {**QUERY, "aggregate": {f"a{n}": "count(*)" for n in range(501)}},
            "/aggregate", "too_many_aggregates", "501", "500",
        ),
        (QueryDefinition, {**QUERY, **columns(98)}, "", "too_many_fields", "101", "100"),
        (QueryDefinition, {**QUERY, "from": {"stream": "s", **columns(100)}}, "/from", "too_many_fields", "101", "100"),
        (QueryDefinition, {**QUERY, "joins": [{**JOIN, **columns(99)}]}, "/joins/0", "too_many_fields", "101", "100"),
        (StreamDefinition, columns(101), "", "too_many_fields", "101", "100"),
        (ApiKeyBody, columns(101), "", "too_many_fields", "101", "100"),
        (ReplayBody, {"filter": columns(101)}, "/filter", "too_many_fields", "101", "100"),
        (QueryDefinition, {**QUERY, "where": "k" * 10_001}, "/where", "expression_too_long", "10,001", "10,000"),
        (
            QueryDefinition,
            {**QUERY, "select": {f"a{n}": "1+" * 4_000 + "1" for n in range(6)}},
            "", "expressions_too_long", "48,006", f"{MAX_DEFINITION_CHARS:,}",
        ),
    ],
)  # fmt: skip
def test_too_much_is_refused_with_field_number_and_bound(
    model: type[BaseModel], given: dict[str, Any], pointer: str, code: str, count: str, bound: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(given)
    (problem,) = problems_of(refused.value)
    assert (problem.pointer, problem.code) == (pointer, code)
    assert count in problem.detail
    assert bound in problem.detail


def test_faults_that_are_far_too_many_are_counted_and_not_made_one_by_one() -> None:
    with pytest.raises(ValidationError) as refused:
        ReplayBody.model_validate({"ids": ["x"] * (MAX_PROBLEMS_READ + 1)})
    (problem,) = problems_of(refused.value)
    assert (problem.pointer, problem.code) == ("", "too_many_problems")
    assert "5,001 faults" in problem.detail


def test_what_is_stored_is_valid_whatever_the_bounds_are() -> None:
    given = {**QUERY, "select": {f"a{n}": "1" for n in range(1_600)}, "where": "k" * 10_001}
    assert len(read_definition(QueryDefinition, given).select or {}) == 1_600


@pytest.mark.parametrize(
    ("text", "count", "bound"),
    [
        ("n in (" + "1," * 2_000 + "1)", "2,001", "2,000"),
        ("concat(" + "k," * 500 + "k)", "501", "500"),
        ("case " + "when n=1 then 2 " * 501 + "end", "501", "500"),
    ],
)
def test_lists_of_an_expression_have_a_bound(text: str, count: str, bound: str) -> None:
    with pytest.raises(ExpressionInvalid) as refused:
        compile_scalar(text, Schema((("k", STRING), ("n", BIGINT))))
    assert count in refused.value.detail
    assert bound in refused.value.detail


@pytest.mark.parametrize(
    "where", ["n in (" + ",".join(map(str, range(1_900))) + ")", "concat(" + "k," * 499 + "k) = ''", " and ".join(["n<>1"] * 900)]
)
def test_an_expression_within_its_bounds_is_planned_though_its_full_names_make_it_longer(where: str) -> None:
    source = StreamDefinition.model_validate({"columns": {"k": "string", "n": "bigint"}})
    name = "a_stream_with_a_long_name"
    query = QueryDefinition.model_validate({**QUERY, "from": {"stream": name}, "where": where})
    (operator, _) = build_plan(query, {name: source_entry(name, source)}).stages[0].operators
    assert len(operator.condition) > len(where)  # type: ignore[union-attr]


def test_faults_are_listed_up_to_a_bound_that_is_told() -> None:
    source = StreamDefinition.model_validate({"columns": columns(3)})
    query = QueryDefinition.model_validate({**QUERY, "select": {f"a{n}": f"absent_{n}" for n in range(300)}})
    with pytest.raises(DefinitionInvalid) as refused:
        build_plan(query, {"s": source_entry("s", source)})
    assert len(refused.value.problems) == MAX_PROBLEMS + 1
    assert refused.value.problems[-1].code == "too_many_problems"


@pytest.mark.timeout(20)
def test_a_long_number_in_an_interval_is_refused_before_the_parser_looks_for_its_end() -> None:
    with pytest.raises(ExpressionInvalid, match="epoch_ms"):
        parse(f"interval '{'9' * 400_000}' day")  # the parser's time is the square of the length

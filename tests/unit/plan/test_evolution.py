"""What may change of columns while there are records of them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.expressions.types.types import Schema, parse_type
from engine.plan.appending import is_wider
from engine.plan.build import build_plan, column_faults, state_fingerprint, with_columns_named
from engine.plan.catalog import source_entry

BEFORE = {"id": "int", "n": "bigint", "price": "decimal(9,2)"}


def schema(**columns: str) -> Schema:
    return Schema(tuple((name, parse_type(kind)) for name, kind in columns.items()))


@pytest.mark.parametrize(
    ("narrow", "wide", "is_held"),
    [
        ("int", "bigint", True),
        ("int", "double", True),
        ("bigint", "double", False),
        ("bigint", "int", False),
        ("int", "decimal(10,0)", True),
        ("int", "decimal(11,2)", False),
        ("bigint", "decimal(19,0)", True),
        ("decimal(9,2)", "decimal(10,3)", True),
        ("decimal(9,2)", "decimal(10,4)", False),
        ("decimal(9,2)", "double", False),
        ("array<int>", "array<bigint>", True),
        ("struct<a:int>", "struct<b:string,a:bigint>", True),
        ("struct<a:int,b:int>", "struct<a:int>", False),
        ("map<string,int>", "map<string,bigint>", True),
        ("date", "timestamp", False),
        ("int", "string", False),
        ("int", "int", False),
    ],
)
def test_a_wider_type_holds_all_values_exactly(narrow: str, wide: str, is_held: bool) -> None:
    assert is_wider(parse_type(narrow), parse_type(wide)) is is_held


@pytest.mark.parametrize(
    ("after", "pointers"),
    [
        ({**BEFORE, "note": "string"}, []),
        ({"note": "string", **BEFORE, "n": "bigint", "price": "decimal(12,4)"}, []),
        ({**BEFORE, "id": "bigint"}, []),
        ({**BEFORE, "id": "double"}, ["/columns/id"]),
        ({"id": "int", "n": "string"}, ["/columns/n", "/columns/price"]),
        ({**BEFORE, "price": "decimal(5,2)"}, ["/columns/price"]),
    ],
)
def test_records_stay_records_of_more_or_wider_columns(after: dict[str, str], pointers: list[str]) -> None:
    assert [fault.pointer for fault in column_faults(schema(**BEFORE), schema(**after), ("id",))] == pointers


@pytest.mark.parametrize("into", [{"stream": "out"}, {"stream": "out", "event_time": "n", "key": ["n"]}])
def test_a_reader_of_all_columns_can_name_those_it_has(into: dict[str, Any]) -> None:
    definition = QueryDefinition.model_validate({"name": "q", "from": {"stream": "s"}, "into": into})
    before, after = (
        {"s": source_entry("s", StreamDefinition.model_validate({"key": ["id"], "columns": columns}))}
        for columns in (BEFORE, {**BEFORE, "note": "string"})
    )
    named = with_columns_named(definition, before)
    assert named.select == {"id": '"s"."id"', "n": '"s"."n"', "price": '"s"."price"'}
    kept = state_fingerprint(build_plan(definition, before))
    assert state_fingerprint(build_plan(named, after)) == kept != state_fingerprint(build_plan(definition, after))

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.expressions.types.types import Schema, parse_type
from engine.formats.json.json_schema_columns import fields_of_schema
from engine.formats.json.json_writer import json_schema_of
from engine.formats.shapes import SchemaNotRead

MONEY = json.dumps({"type": "object", "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}}})


def found(properties: dict[str, Any], *references: tuple[str, str], **more: Any) -> dict[str, str | None] | None:
    fields = fields_of_schema(json.dumps({"type": "object", "properties": properties, **more}), references)
    return None if fields is None else {name: None if declared is None else str(declared) for name, declared in fields}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "connect.type": "int32"}, "int"),
        ({"type": "number"}, "double"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "time"}, "time"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "contentEncoding": "base64"}, "bytes"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "string"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"enum": ["open", "closed"]}, "string"),
        ({"const": "order"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"properties": {"x": {"type": "integer"}, "a b": {"type": "string"}}}, 'struct<x:bigint,"a b":string>'),
    ],
)
def test_a_property_has_the_type_that_its_schema_names(schema: dict[str, Any], expected: str) -> None:
    assert found({"v": schema}) == {"v": expected}


@pytest.mark.parametrize(
    "schema",
    [
        {}, True, {"type": ["integer", "string"]}, {"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"enum": [1, "a"]},
        {"type": "null"}, {"type": "object"}, {"type": "array"}, {"type": "array", "items": [{"type": "string"}]},
        {"properties": {"x": {}}}, {"type": "object", "additionalProperties": False},
        {"type": "number", "connect.type": "bytes", "title": "org.apache.kafka.connect.data.Decimal", "oneOf": []},
    ],
)  # fmt: skip
def test_a_property_without_one_type_has_no_column(schema: Any) -> None:
    assert found({"v": schema, "w": {"type": "string"}}) == {"v": None, "w": "string"}


def test_references_are_followed_inside_and_by_name() -> None:
    inside = {"price": {"$ref": "#/definitions/Money"}, "old": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/a~1b%25"}]}}
    definitions = {"definitions": {"Money": json.loads(MONEY)}, "$defs": {"a/b%": {"type": "integer"}}}
    assert found(inside, **definitions) == {"price": "struct<amount:double,currency:string>", "old": "bigint"}
    by_name = {"price": {"$ref": "money.json"}, "currency": {"$ref": "money.json#/properties/currency"}}
    assert found(by_name, ("money.json", MONEY)) == {"price": "struct<amount:double,currency:string>", "currency": "string"}


def test_a_definition_may_be_used_twice_but_not_hold_itself() -> None:
    node = {"type": "object", "properties": {"id": {"type": "integer"}, "next": {"$ref": "#/definitions/Node"}}}
    with pytest.raises(SchemaNotRead, match="holds itself"):
        found({"first": {"$ref": "#/definitions/Node"}}, definitions={"Node": node})
    leaf = {"type": "object", "properties": {"id": {"type": "integer"}}}
    twice = {"a": {"$ref": "#/definitions/Leaf"}, "b": {"$ref": "#/definitions/Leaf"}}
    assert found(twice, definitions={"Leaf": leaf}) == {"a": "struct<id:bigint>", "b": "struct<id:bigint>"}


def test_definitions_that_multiply_are_given_up() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for number in range(1, 25):
        inner = {"$ref": f"#/definitions/d{number - 1}"}
        definitions[f"d{number}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    with pytest.raises(SchemaNotRead, match="use each other"):
        found({"v": {"$ref": "#/definitions/d24"}}, definitions=definitions)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"), ("[" * 100_000, "no JSON"), ('{"properties": {"v": {"$ref": "#/definitions/x"}}}', "not there"),
        ('{"properties": {"v": {"$ref": "other.json"}}}', "references: none"),
        ('{"$ref": "#"}', "holds itself"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str, says: str) -> None:
    with pytest.raises(SchemaNotRead, match=says):
        fields_of_schema(text)


@pytest.mark.parametrize("text", ["true", "7", '{"type": "string"}', '{"type": "object"}', '{"oneOf": [{}, {}]}'])
def test_a_schema_that_is_not_of_an_object_names_no_columns(text: str) -> None:
    assert fields_of_schema(text) is None


def test_the_schema_of_results_says_the_types_of_their_columns() -> None:
    types = {
        "a": "boolean", "b": "int", "c": "bigint", "d": "double", "e": "string", "f": "bytes", "g": "date", "h": "time",
        "i": "timestamp", "j": "array<bigint>", "k": "map<string,int>", "l": "struct<x:double,y:array<string>>",
    }  # fmt: skip
    fields = fields_of_schema(json_schema_of(Schema(tuple((name, parse_type(text)) for name, text in types.items()))))
    assert fields is not None
    assert {name: str(declared) for name, declared in fields} == types

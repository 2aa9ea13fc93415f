"""Avro as ``fastavro`` reads and writes it: drawn schemas and values, damaged bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.expressions.types.types import Schema
from engine.formats.avro.reader import AvroReader
from engine.formats.avro.schema import parse_schema

LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=8)),
    ("bytes", st.binary(max_size=8)),
    ({"type": "fixed", "size": 4}, st.binary(min_size=4, max_size=4)),
    ({"type": "fixed", "size": 20}, st.binary(min_size=20, max_size=20)),
    ({"type": "fixed", "size": 5}, st.binary(min_size=5, max_size=5)),
    ({"type": "enum", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw a type and its values; names are given afterwards."""
    kind = draw(st.sampled_from(["leaf"] * 4 + (["array", "map", "record", "optional"] if depth else [])))
    if kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind == "record":
        fields = draw(st.lists(typed(depth - 1), min_size=1, max_size=3))
        schema = {"type": "record", "fields": [{"name": f"c{i}", "type": each} for i, (each, _) in enumerate(fields)]}
        return schema, st.fixed_dictionaries({f"c{i}": values for i, (_, values) in enumerate(fields)})
    inner, values = draw(typed(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    if isinstance(inner, list):
        return inner, values
    is_first = draw(st.booleans())
    return (["null", inner] if is_first else [inner, "null"]), st.none() | values


def named(schema: Any, count: list[int]) -> Any:
    if isinstance(schema, list):
        return [named(each, count) for each in schema]
    if not isinstance(schema, dict):
        return schema
    count[0] += 1
    given = {"name": f"N{count[0]}"} if schema["type"] in ("record", "enum", "fixed") else {}
    inside = {key: named(schema[key], count) for key in ("items", "values") if key in schema}
    fields = {"fields": [{**each, "type": named(each["type"], count)} for each in schema["fields"]]} if "fields" in schema else {}
    return {**schema, **given, **inside, **fields}


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Any], list[bytes]]:
    fields = draw(st.lists(typed(), min_size=1, max_size=4))
    schema = named({"type": "record", "fields": [{"name": f"c{i}", "type": each} for i, (each, _) in enumerate(fields)]}, [0])
    values = draw(st.lists(st.fixed_dictionaries({f"c{i}": each for i, (_, each) in enumerate(fields)}), min_size=1, max_size=5))
    return json.dumps(schema), values, [encoded(schema, value) for value in values]


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def reader(text: str) -> AvroReader:
    schema = parse_schema(text)
    columns = [(name, shape.column_type()) for name, shape in schema.shape.fields]
    return AvroReader(Schema(tuple((name, kind) for name, kind in columns if kind is not None)), schema)


def plain(value: Any) -> Any:
    """Maps as frames have them."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def folded(value: Any, schema: Any) -> Any:
    """What ``fastavro`` would read, with maps as lists of entries."""
    if isinstance(schema, list):
        return None if value is None else folded(value, next(each for each in schema if each != "null"))
    if isinstance(schema, dict) and schema["type"] == "map":
        return [{"key": key, "value": folded(each, schema["values"])} for key, each in value.items()]
    if isinstance(schema, dict) and schema["type"] == "array":
        return [folded(each, schema["items"]) for each in value]
    if isinstance(schema, dict) and schema["type"] == "record":
        return {each["name"]: folded(value[each["name"]], each["type"]) for each in schema["fields"]}
    return value


@given(cases())
def test_payloads_are_read_as_fastavro_reads_them(case: tuple[str, list[Any], list[bytes]]) -> None:
    text, values, payloads = case
    raw, rejects = reader(text).read(pl.Series(payloads, dtype=pl.Binary))
    assert rejects.rows() == []
    assert raw.drop("_offset").to_dicts() == [folded(value, json.loads(text)) for value in values]


@given(cases(), st.data())
def test_damaged_payloads_are_rejects_or_read_as_fastavro_reads_them(
    case: tuple[str, list[Any], list[bytes]], data: st.DataObject
) -> None:
    text, values, payloads = case
    place = data.draw(st.integers(0, len(payloads) - 1))
    payload = bytearray(payloads[place])
    if payload and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
    else:
        payload = payload[: data.draw(st.integers(0, len(payload)))]
    damaged = [*payloads[:place], bytes(payload), *payloads[place + 1 :]]
    raw, rejects = reader(text).read(pl.Series(damaged, dtype=pl.Binary))
    assert set(rejects["offset"].to_list()) <= {place}
    others = [row for row in raw.to_dicts() if row.pop("_offset") != place]
    assert others == [folded(value, json.loads(text)) for index, value in enumerate(values) if index != place]


@pytest.mark.parametrize("payload", [b"\xff" * 11, b"\x80" * 9 + b"\x01", b"\x01" * 40, b"\x02\x02" + b"\xfe" * 30])
@given(cases())
def test_hostile_lengths_end_at_once(payload: bytes, case: tuple[str, list[Any], list[bytes]]) -> None:
    text, _, _ = case
    raw, rejects = reader(text).read(pl.Series([payload], dtype=pl.Binary))
    assert raw.height + rejects.height == 1

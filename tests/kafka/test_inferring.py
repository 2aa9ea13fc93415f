"""``"columns": "infer"`` of topics: by a registry's schema, by the one that is given, by the newest records."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from engine.errors import DefinitionInvalid
from engine.formats.port import RegisteredSchema
from engine.formats.registry.wire import header_of
from engine.postgres.postgres import Connection
from engine.records.inferred import Inferred
from engine.sources.connector_kinds import control_of
from engine.sources.control import ServiceContext
from tests.kafka.changes import Database, avro, described, plain
from tests.kafka.registries import Connected, Registered
from tests.kafka.test_reading import Source
from tests.kafka.topics import Cluster, Sent

WIDE = {"a": "bigint", "b": "string", "c": "decimal(10,2)", "d": "array<bigint>", "e": "struct<x:double>", "f": "timestamp"}
PROTO = 'syntax = "proto3"; message Other { string x = 1; } message Row { string v = 1; repeated int64 n = 2; }'


def inferred(source: Source, key: tuple[str, ...] = ()) -> Inferred:
    return control_of(source.feed).infer(source.feed, ServiceContext(None, source.connection.info.dsn), key)


def found(source: Source, key: tuple[str, ...] = ()) -> dict[str, str]:
    return {name: str(declared) for name, declared in inferred(source, key).columns.items()}


def topic(connection: Connection, mock: Cluster, **connector: Any) -> Source:
    return Source(connection, mock, columns={"any": "string"}, connector=connector)


def faults(source: Source, key: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        inferred(source, key)
    return [(each.pointer, each.code) for each in caught.value.problems]


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_registry_says_what_the_columns_are_also_of_an_empty_topic(
    form: str, connection: Connection, mock: Cluster, any_registry: Connected
) -> None:
    side = {"format": form, "registry": any_registry.name}
    source = topic(connection, mock, key=side, value=side, record_columns={"place": "offset", "trace": "header:trace"})
    assert faults(source) == [("/columns", "columns_not_inferred")]
    any_registry.payloads(form, source.topic, [{"k": 1}], {"k": "bigint"}, "key")
    any_registry.payloads(form, source.topic, [], WIDE)
    # Results have decimals as texts there, for which Protocol Buffers have no type.
    texts = {"c": "string"} if form == "protobuf" else {}
    assert found(source) == {"k": "bigint", **WIDE, **texts, "place": "bigint", "trace": "string"}
    assert inferred(source).key == ("k",)


def test_a_json_schema_in_a_registry_says_what_the_columns_are_also_of_an_empty_topic(
    connection: Connection, mock: Cluster, any_registry: Connected
) -> None:
    side = {"format": "json", "registry": any_registry.name}
    source = topic(connection, mock, value=side)
    any_registry.payloads("json", source.topic, [], WIDE)
    # Results have decimals as texts there, for which JSON has no type.
    assert found(source) == {**WIDE, "c": "string"}


def test_what_a_json_schema_does_not_say_the_newest_records_do(
    connection: Connection, mock: Cluster, any_registry: Connected
) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {}}})
    source = topic(connection, mock, value={"format": "json", "registry": any_registry.name})
    header = header_of(any_registry.store.register(f"{source.topic}-value", RegisteredSchema(0, "JSON", schema)))
    mock.send(source.topic, [Sent(header + b'{"a": "of another type", "b": 1.5, "d": 1}')])
    assert found(source) == {"a": "bigint", "b": "double"}
    assert [name for name, _ in inferred(source).left_out] == ["c"]


def test_json_whose_schema_no_registry_has_is_read_for_its_columns(
    connection: Connection, mock: Cluster, any_registry: Connected
) -> None:
    source = topic(connection, mock, value={"format": "json", "registry": any_registry.name})
    mock.send(source.topic, [Sent(header_of(999_999) + b'{"a": 1}')])
    assert found(source) == {"a": "bigint"}


def test_of_another_subject_the_newest_record_names_the_schema(
    connection: Connection, mock: Cluster, any_registry: Connected
) -> None:
    source = topic(connection, mock, value={"format": "avro", "registry": any_registry.name})
    old = any_registry.payloads("avro", "elsewhere", [{"a": 1}], {"a": "bigint"})
    any_registry.permit_all()
    new = any_registry.payloads("avro", "elsewhere", [{"a": 1, "b": "x"}], {"a": "bigint", "b": "string"})
    mock.send(source.topic, [Sent(each) for each in (*old, *new)])
    assert found(source) == {"a": "bigint", "b": "string"}


def test_a_schema_that_is_given_says_it(connection: Connection, mock: Cluster) -> None:
    value = {"format": "protobuf", "schema": PROTO, "message": "Row"}
    source = topic(connection, mock, key={"format": "avro", "schema": '"string"'}, value=value)
    assert found(source, ("k",)) == {"k": "string", "v": "string", "n": "array<bigint>"}
    assert faults(source) == [("/key", "columns_not_inferred")]


def test_the_newest_records_say_what_json_holds(connection: Connection, mock: Cluster) -> None:
    source = topic(connection, mock, key={"format": "kafka"}, value={"format": "json", "has_key": True})
    values = [
        {"k": 1, "n": 1, "x": 1, "s": {"a": None}, "l": [], "b": True, "_id": 7},
        {"n": None, "x": 0.5, "s": {"a": [1, 2.5], "b": "t"}, "l": [{"y": 1}], "never": None, "big": 2**70},
    ]
    records = [Sent(json.dumps(value).encode(), struct.pack(">q", place)) for place, value in enumerate(values)]
    mock.send(source.topic, [Sent(b"no json", b"\0" * 8), *records, Sent(None, b"\0" * 8)])
    assert found(source, ("k",)) == {
        "k": "bigint", "n": "bigint", "x": "double", "s": "struct<a:array<double>,b:string>", "l": "array<struct<y:bigint>>",
        "b": "boolean", "big": "decimal(38,0)",
    }  # fmt: skip
    assert [name for name, _ in inferred(source, ("k",)).left_out] == ["_id", "never"]


def test_values_that_do_not_agree_or_have_no_names_are_told(connection: Connection, mock: Cluster) -> None:
    source = topic(connection, mock, value={"format": "json"})
    assert faults(source) == [("/columns", "columns_not_inferred")]
    mock.send(source.topic, [Sent(b'{"v": {"w": 1}}'), Sent(b'{"v": {"w": "x"}}')])
    with pytest.raises(DefinitionInvalid, match=r"v\.w is bigint in one place and string in another"):
        inferred(source)
    for value in ({"format": "string"}, {"format": "delimited"}):
        assert faults(topic(connection, mock, topic=source.topic, value=value)) == [("/columns", "columns_not_inferred")]
    assert faults(topic(connection, mock, value={"format": "avro", "registry": "nobody"})) == [
        ("/connector/value/registry", "connection_missing")
    ]


@pytest.mark.parametrize("form", ["json", "json with schemas", "avro"])
def test_change_events_say_what_their_rows_hold(form: str, connection: Connection, mock: Cluster, registry: Registered) -> None:
    database = Database()
    database.put(1, "a")
    database.put(2, None)
    database.delete(1)
    said = {"encoding": "avro", "registry": registry.name} if form == "avro" else {}
    source = topic(connection, mock, value={"format": "debezium", **said})
    write = {"json": plain, "json with schemas": described, "avro": lambda event: avro(event, registry)}[form]
    key = registry.payloads("avro", source.topic, [{"id": 1}], {"id": "bigint"}, "key")[0] if form == "avro" else b'{"id": 1}'
    mock.send(source.topic, [Sent(write(event), key) for event in database.log])
    moment = "bigint" if form == "json" else "timestamp"
    assert found(source) == {"id": "bigint", "name": "string", "at": moment}
    assert inferred(source).key == ("id",)

"""Schemas that change while a topic is read: columns stay, what is new is left out, what is gone is null, what is unknown is a reject."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from engine.expressions.types.types import Schema, parse_type
from engine.formats.avro.schema import parse_schema
from engine.formats.avro.writer import AvroWriter
from engine.formats.format_list import reader_of, writer_of
from engine.formats.port import RegistryRefused, RegistryUnavailable, SideConfig
from engine.formats.protobuf.compiling import compile_proto
from engine.formats.protobuf.reader import message_path, path_bytes
from engine.formats.protobuf.schema import message_of, parse_message
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import RegistrySettings
from engine.formats.registry.wire import header_of, with_header
from engine.records.canonical import canonicalise
from tests.unit.formats.registry_server import FakeRegistry, serving
from tests.unit.records.relations import NOW_MS, relation


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        yield registry


@pytest.fixture
def store(server: FakeRegistry) -> Iterator[Registry]:
    registry = Registry(RegistrySettings((server.url,), deadline_seconds=0.3))
    yield registry
    registry.close()


def columns_of(**types: str) -> Schema:
    return Schema(tuple((name, parse_type(text)) for name, text in types.items()))


def record(**types: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in types.items()]})


def avro(number: int, text: str, *rows: dict[str, Any]) -> list[bytes]:
    return with_header(AvroWriter(parse_schema(text)).write(pl.DataFrame(rows)), header_of(number)).to_list()


def test_records_of_several_schemas_are_read_in_their_order(server: FakeRegistry, store: Registry) -> None:
    old, new, less = record(a="long", b="string"), record(new="double", b="string", a="int"), record(a="long")
    numbers = [server.add("t-value", text) for text in (old, new, less)]
    first = avro(numbers[0], old, {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    second = avro(numbers[1], new, {"a": 3, "b": "z", "new": 0.5})
    third = avro(numbers[2], less, {"a": 4})
    config = SideConfig("avro", columns_of(a="bigint", b="string"), has_registry=True)
    raw, rejects = reader_of(config, store).read(pl.Series([first[0], *third, *second, first[1]]))
    assert rejects.rows() == []
    assert raw.select("_offset", "a", "b").rows() == [(0, 1, "x"), (1, 4, None), (2, 3, "z"), (3, 2, "y")]


def test_a_schema_that_changes_a_type_refuses_what_does_not_fit(server: FakeRegistry, store: Registry) -> None:
    old, new = record(a="long"), record(a="string")
    numbers = [server.add("t-value", text) for text in (old, new)]
    payloads = avro(numbers[0], old, {"a": 1}) + avro(numbers[1], new, {"a": "17"}, {"a": "x"})
    config = SideConfig("avro", columns_of(a="bigint"), has_registry=True)
    raw, rejects = reader_of(config, store).read(pl.Series(payloads))
    assert raw.select("_offset", "a").rows() == [(0, 1), (1, 17)]
    assert rejects.select("offset", "reason").rows() == [(2, "wrong_type")]


def test_fields_of_structs_that_are_not_declared_are_left_out(server: FakeRegistry, store: Registry) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]}
    text = record(s=inner, l={"type": "array", "items": "I"})
    number = server.add("t-value", text)
    payloads = avro(number, text, {"s": {"x": 1, "y": "q"}, "l": [{"x": 2, "y": "r"}]})
    types = {"s": "struct<x:bigint,z:string>", "l": "array<struct<x:bigint>>"}
    raw, _ = reader_of(SideConfig("avro", columns_of(**types), has_registry=True), store).read(pl.Series(payloads))
    accepted, refused = canonicalise(raw, relation(types), NOW_MS)
    assert refused.rows() == []
    assert accepted.select("s", "l").rows() == [({"x": 1, "z": None}, [{"x": 2}])]


def test_an_unknown_schema_is_a_reject_of_its_records(server: FakeRegistry, store: Registry) -> None:
    text = record(a="long")
    number = server.add("t-value", text)
    [good] = avro(number, text, {"a": 1})
    payloads = pl.Series([good, header_of(99) + good[5:], b"\x01" + good[1:], b"\x00\x00", good])
    raw, rejects = reader_of(SideConfig("avro", columns_of(a="bigint"), has_registry=True), store).read(payloads)
    assert raw["_offset"].to_list() == [0, 4]
    assert rejects.select("offset", "reason").rows() == [(1, "unknown_schema"), (2, "no_schema_id"), (3, "no_schema_id")]


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_a_schema_of_another_language_is_a_reject(server: FakeRegistry, store: Registry, kind: str) -> None:
    number = server.add("t-value", "{}", kind)
    _, rejects = reader_of(SideConfig("avro", columns_of(a="bigint"), has_registry=True), store).read(
        pl.Series([header_of(number) + b"\x02"])
    )
    assert rejects["reason"].to_list() == ["schema_not_read"]


def test_a_registry_that_is_away_ends_the_batch_and_not_the_record(server: FakeRegistry, store: Registry) -> None:
    server.failures = 10_000
    with pytest.raises(RegistryUnavailable):
        reader_of(SideConfig("avro", columns_of(a="bigint"), has_registry=True), store).read(pl.Series([header_of(1) + b"\x02"]))


def test_a_schema_with_references_is_read(server: FakeRegistry, store: Registry) -> None:
    inner = json.dumps({"type": "record", "name": "I", "namespace": "n", "fields": [{"name": "x", "type": "long"}]})
    server.add("i", inner)
    number = server.add("t", record(s="n.I"), references=[{"name": "n.I", "subject": "i", "version": 1}])
    raw, rejects = reader_of(SideConfig("avro", columns_of(s="struct<x:bigint>"), has_registry=True), store).read(
        pl.Series([header_of(number) + b"\x04"])
    )
    assert rejects.rows() == []
    assert raw["s"].to_list() == [{"x": 2}]


def test_results_that_do_not_fit_the_subject_are_refused(server: FakeRegistry, store: Registry) -> None:
    server.add("out-value", record(a="string"))
    writer = writer_of(SideConfig("avro", columns_of(a="bigint"), has_registry=True, subject="out-value"), store)
    with pytest.raises(RegistryRefused, match="incompatible"):
        writer.write(pl.DataFrame({"a": [1]}))


PROTO = """syntax = "proto3";
import "common.proto";
message Other { string text = 1; message Inner { int64 a = 1; } }
message Value { int64 a = 1; n.Common c = 2; Value itself = 3; }
"""
COMMON = 'syntax = "proto3"; package n; message Common { int32 x = 1; }'


def message(path: tuple[int, ...], **fields: Any) -> bytes:
    found = message_of(compile_proto(PROTO, (("common.proto", COMMON),)), path=path)
    from google.protobuf import message_factory

    return path_bytes(path) + message_factory.GetMessageClass(found)(**fields).SerializeToString()


def test_messages_by_their_place_in_the_file(server: FakeRegistry, store: Registry) -> None:
    server.add("common", COMMON, "PROTOBUF")
    number = server.add("t-value", PROTO, "PROTOBUF", [{"name": "common.proto", "subject": "common", "version": 1}])
    bodies = [
        message((1,), a=1, c={"x": 2}),
        message((0, 0), a=3),
        message((0,), text="q"),
        b"",
        b"\xff\xff\xff\xff\xff\xff",
        path_bytes((7,)),
        path_bytes((1,)) + b"\x08",
    ]
    config = SideConfig("protobuf", columns_of(a="bigint", c="struct<x:int>"), has_registry=True)
    raw, rejects = reader_of(config, store).read(pl.Series([header_of(number) + body for body in bodies]))
    accepted, refused = canonicalise(raw, relation({"a": "bigint", "c": "struct<x:int>"}), NOW_MS)
    assert refused.rows() == []
    assert accepted.select("_offset", "a", "c").rows() == [(0, 1, {"x": 2}), (1, 3, None), (2, None, None)]
    assert rejects["offset"].to_list() == [3, 4, 5, 6]


@pytest.mark.parametrize("described", [(True, True), (True, False), (False, True)])
def test_schemas_that_the_registry_keeps_as_descriptors_are_read(
    described: tuple[bool, bool], server: FakeRegistry, store: Registry
) -> None:
    """As Confluent's client for Python registers them, which registries other than Confluent's give out as they were given."""
    files = compile_proto(PROTO, (("common.proto", COMMON),)).file
    both = [base64.b64encode(each.SerializeToString()).decode() if is_described else text
            for each, text, is_described in zip(files, (COMMON, PROTO), described, strict=True)]  # fmt: skip
    server.add("common", both[0], "PROTOBUF")
    number = server.add("t-value", both[1], "PROTOBUF", [{"name": "common.proto", "subject": "common", "version": 1}])
    config = SideConfig("protobuf", columns_of(a="bigint", c="struct<x:int>"), has_registry=True)
    raw, rejects = reader_of(config, store).read(pl.Series([header_of(number) + message((1,), a=1, c={"x": 2})]))
    assert rejects.rows() == []
    assert raw.select("a", "c").rows() == [(1, {"x": 2})]


@pytest.mark.parametrize("descriptor", [b"", b"\xff" * 40, b"\x22\x03\x0a\x01M" * 2, b"\x1a\x07x.proto"])
def test_a_descriptor_that_is_none_or_does_not_hold_is_refused(descriptor: bytes) -> None:
    with pytest.raises(ValueError, match=r"refuses the schema|has no message"):
        message_of(compile_proto(base64.b64encode(descriptor).decode()))


def test_a_field_that_holds_itself_is_refused_only_where_it_is_a_column() -> None:
    found = message_of(compile_proto(PROTO, (("common.proto", COMMON),)), path=(1,))
    assert [name for name, _ in parse_message(found, frozenset({"a"})).shape.fields] == ["a"]
    with pytest.raises(ValueError, match="holds itself"):
        parse_message(found)


@pytest.mark.parametrize("path", [(0,), (1,), (0, 0), (200, 3, 1)])
def test_places_of_messages_round_trip(path: tuple[int, ...]) -> None:
    assert message_path(path_bytes(path) + b"rest") == (path, len(path_bytes(path)))


@pytest.mark.parametrize("name", ["../evil.proto", "/etc/x.proto", "x.txt", "a\x00.proto"])
def test_names_of_imported_files_stay_inside_their_folder(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a file"):
        compile_proto('syntax = "proto3"; message M {}', ((name, "x"),))


def test_a_schema_that_protoc_refuses_says_where() -> None:
    with pytest.raises(ValueError, match="line 1"):
        compile_proto('syntax = "proto3"; message M { int64 a }')

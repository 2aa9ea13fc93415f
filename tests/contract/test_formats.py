"""One suite over every format: what a side's writer wrote its reader reads, judged as JSON is; what is none is a reject of its own record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from engine.expressions.types.types import Schema, parse_type
from engine.formats.avro.derived import derived_schema
from engine.formats.format_list import FORMATS, reader_of, writer_of
from engine.formats.port import Format, FormatInvalid, SideConfig, ValueNotWritable
from engine.formats.protobuf.writer import derived_proto
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import RegistrySettings
from engine.records.canonical import canonicalise
from tests.unit.formats.registry_server import FakeRegistry, serving
from tests.unit.records.relations import NOW_MS, relation

FLAT = {
    "flag": "boolean", "small": "int", "big": "bigint", "real": "double", "text": "string", "raw": "bytes", "day": "date",
    "at": "timestamp", "clock": "time", "price": "decimal(12,2)",
}  # fmt: skip
NESTED = FLAT | {
    "list": "array<bigint>", "names": "map<string,string>", "inner": "struct<x:int,price:decimal(5,1),at:timestamp>",
    "rows": "array<struct<a:string,b:array<int>>>" ,
}  # fmt: skip
SINGLE = {"string": {"k": "string"}, "bytes": {"k": "bytes"}, "kafka": {"k": "bigint"}}

ROW: dict[str, Any] = {
    "flag": True, "small": -(2**31), "big": 2**62 + 1, "real": 0.1, "text": 'ä "q", x', "raw": b"\xff\x00", "day": dt.date(1969, 12, 31),
    "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC), "clock": dt.time(23, 59, 59, 999_999), "price": Decimal("-1234567890.12"),
    "list": [1, 2**62], "names": [{"key": "a", "value": "b"}],
    "inner": {"x": 1, "price": Decimal("1.5"), "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)},
    "rows": [{"a": "x", "b": [1, 2]}, {"a": None, "b": []}],
}  # fmt: skip
EMPTY: dict[str, Any] = {"list": [], "names": [], "rows": []}
SINGLE_VALUES = {"string": ["x", ""], "bytes": [b"\xff", b""], "kafka": [-(2**63), 5]}
MULTI = [name for name in FORMATS if name not in SINGLE]
STRICT = [name for name in MULTI if name != "json_lenient"]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(FakeRegistry()) as server:
        store = Registry(RegistrySettings((server.url,)))
        yield store
        store.close()


def columns_of(types: dict[str, str]) -> Schema:
    return Schema(tuple((name, parse_type(text)) for name, text in types.items()))


def config_of(name: str, types: dict[str, str], **more: Any) -> SideConfig:
    columns = columns_of(types)
    config = SideConfig(name, columns, subject="out-value", **more)
    if config.has_registry or name not in ("avro", "protobuf"):
        return config
    text = derived_schema(columns, "out_value", is_key=False) if name == "avro" else derived_proto(columns, "out_value")
    return replace(config, schema=text)


def written(config: SideConfig, frame: pl.DataFrame, store: Any = None) -> pl.Series:
    of_writer = replace(config, schema=None) if config.format == "protobuf" else config
    return writer_of(of_writer, *([store] if store else [])).write(frame)


def types_for(name: str) -> dict[str, str]:
    return FLAT if name == "delimited" else NESTED


def rows_for(name: str) -> list[dict[str, Any]]:
    nothing = dict.fromkeys(types_for(name))
    absent = nothing | EMPTY if name == "protobuf" else nothing
    return [{k: v for k, v in ROW.items() if k in types_for(name)}, {k: v for k, v in absent.items() if k in types_for(name)}]


@pytest.mark.parametrize("name", STRICT)
@pytest.mark.parametrize("has_registry", [False, True])
def test_what_was_written_is_read(name: str, has_registry: bool, registry: Registry) -> None:
    if has_registry and not FORMATS[name].takes_registry:
        pytest.skip("the format has no schemas")
    types = types_for(name)
    config = config_of(name, types, has_registry=has_registry)
    frame = pl.DataFrame(rows_for(name) * 40, schema=columns_of(types).polars())
    raw, rejects = reader_of(config, registry).read(written(config, frame, registry))
    accepted, refused = canonicalise(raw, relation(types, max_future_skew_ms=None), NOW_MS)
    assert rejects.rows() == []
    assert refused.rows() == []
    assert accepted.select(list(types)).to_dicts() == frame.to_dicts()


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_column_that_was_written_is_read(name: str) -> None:
    config = SideConfig(name, columns_of(SINGLE[name]), side="key")
    frame = pl.DataFrame({"k": SINGLE_VALUES[name]}, schema=config.columns.polars())
    raw, rejects = reader_of(config).read(writer_of(config).write(frame))
    assert raw["k"].to_list() == SINGLE_VALUES[name]
    assert rejects.rows() == []


@pytest.mark.parametrize("name", ["avro", "json"])
def test_an_unwrapped_column_that_was_written_is_read(name: str) -> None:
    schema = '"long"' if name == "avro" else None
    config = SideConfig(name, columns_of({"k": "bigint"}), side="key", is_unwrapped=True, schema=schema)
    payloads = writer_of(config).write(pl.DataFrame({"k": [1, -(2**62)]}))
    assert reader_of(config).read(payloads).raw["k"].to_list() == [1, -(2**62)]


POISON = [b"", b"\x00", b"\xff" * 40, b"{", b'{"small": ', b"[]", b"null", b'"x"', b"\x00\x00\x00\x00\x09x", b"\xfe\xff" * 9]


@pytest.mark.parametrize("name", MULTI)
@pytest.mark.parametrize("has_registry", [False, True])
def test_a_bad_payload_is_a_reject_and_its_neighbours_are_read(name: str, has_registry: bool, registry: Registry) -> None:
    if has_registry and not FORMATS[name].takes_registry:
        pytest.skip("the format has no schemas")
    types = {"small": "int", "text": "string", "real": "double"}
    config = config_of(name, types, has_registry=has_registry)
    row = {"small": 7, "text": "x", "real": 1.5}
    good = written(config, pl.DataFrame([row], schema=columns_of(types).polars()), registry)[0]
    for poison in POISON:
        payloads = pl.Series([good] * 60 + [poison] + [good] * 60, dtype=pl.Binary)
        raw, rejects = reader_of(config, registry).read(payloads)
        accepted, refused = canonicalise(raw, relation(types), NOW_MS)
        places = {*rejects["offset"].to_list(), *refused["offset"].to_list()}
        if (name, poison) in LEGAL:
            continue
        assert places == {60}, (poison, rejects.rows(), refused.rows())
        assert accepted["_offset"].to_list() == [*range(60), *range(61, 121)]
        assert accepted.select(list(types)).unique().to_dicts() == [row]
        assert all(len(text) <= 1024 for text in rejects["excerpt"])


LEGAL = {("protobuf", b""), ("json_lenient", b"null")}
"""A message without fields has no bytes; a null of ksqlDB's is a row of nulls here, for tombstones are told before."""


@pytest.mark.parametrize("name", MULTI)
def test_a_batch_of_nothing_but_poison_is_all_rejects(name: str) -> None:
    config = config_of(name, {"small": "int", "text": "string"})
    payloads = pl.Series([b"\xff\xff\xff\xff"] * 300, dtype=pl.Binary)
    raw, rejects = reader_of(config).read(payloads)
    assert raw.height == 0
    assert rejects["offset"].to_list() == list(range(300))


@pytest.mark.parametrize("name", FORMATS)
def test_reading_nothing_gives_nothing(name: str) -> None:
    types = SINGLE.get(name, {"small": "int"})
    raw, rejects = reader_of(config_of(name, types)).read(pl.Series([], dtype=pl.Binary))
    assert raw.height == rejects.height == 0
    assert canonicalise(raw, relation(types), NOW_MS)[0].height == 0


@pytest.mark.parametrize("name", ["string", "bytes", "kafka"])
def test_a_null_that_a_format_cannot_say_is_refused(name: str) -> None:
    config = SideConfig(name, columns_of(SINGLE[name]))
    with pytest.raises(ValueNotWritable, match="'k'"):
        writer_of(config).write(pl.DataFrame({"k": [None]}, schema=config.columns.polars()))


@pytest.mark.parametrize("name", ["string", "bytes", "kafka"])
def test_several_columns_in_a_plain_format_are_refused(name: str) -> None:
    with pytest.raises(FormatInvalid, match="one column"):
        reader_of(SideConfig(name, columns_of({"a": "string", "b": "string"})))


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(FormatInvalid, match="registry"):
        reader_of(SideConfig("string", columns_of({"a": "string"}), has_registry=True))
    with pytest.raises(FormatInvalid, match="a format is"):
        reader_of(SideConfig("xml", columns_of({"a": "string"})))
    for name in ("avro", "protobuf"):
        with pytest.raises(FormatInvalid, match="needs a schema"):
            reader_of(SideConfig(name, columns_of({"a": "string"})))


@pytest.mark.parametrize("entry", FORMATS.values(), ids=lambda entry: entry.name)
def test_every_entry_has_its_own_name(entry: Format) -> None:
    assert FORMATS[entry.name] is entry

"""Debezium's change events: what each does, in which order, whatever comes twice."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import fastavro
import polars as pl
import pytest

from engine.definition.sources.connector import ChangeRules
from engine.expressions.types.types import Schema, parse_type
from engine.formats.debezium.fields import DebeziumSettings, row_of_events
from engine.formats.debezium.json_splitting import split
from engine.formats.debezium.reader import ChangeReader, DebeziumReader
from engine.formats.port import FormatInvalid
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import RegistrySettings
from engine.formats.registry.wire import header_of
from engine.records.canonical import canonicalise
from tests.unit.formats.registry_server import FakeRegistry, serving
from tests.unit.records.relations import relation

TYPES = {"id": "bigint", "name": "string", "price": "decimal(10,2)", "at": "timestamp", "day": "date"}
TS = 1_700_000_000_123
SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "field": side,
            "type": "struct",
            "fields": [
                {"field": "id", "type": "int64"},
                {
                    "field": "price",
                    "type": "bytes",
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "parameters": {"scale": "2"},
                },
                {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
                {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
            ],
        }
        for side in ("before", "after")
    ],
}


def row(number: int, name: str = "a") -> dict[str, Any]:
    return {"id": number, "name": name, "price": "BNI=", "at": 1_700_000_000_000_001, "day": 19_000, "unknown": [1]}


def event(op: str | None, before: Any = None, after: Any = None, lsn: int | None = None, **source: Any) -> dict[str, Any]:
    where = {"version": "3.2", "connector": "postgresql", "ts_ms": TS, "ts_us": TS * 1000 + 7, "lsn": lsn, "table": "t"} | source
    return {"before": before, "after": after, "source": where, "op": op, "ts_ms": TS + 50, "transaction": None}


def text(value: Any, *, has_schema: bool = True) -> bytes:
    return json.dumps({"schema": SCHEMA, "payload": value} if has_schema else value, separators=(",", ":")).encode()


def settings(**more: Any) -> DebeziumSettings:
    return DebeziumSettings(Schema(tuple((name, parse_type(kind)) for name, kind in TYPES.items())), ("id",), **more)


def read(payloads: list[bytes | None], newest: pl.DataFrame | None = None, **more: Any) -> Any:
    return DebeziumReader(settings(**more)).read(pl.Series(payloads, dtype=pl.Binary), newest)


def ops(changes: Any) -> list[tuple[int, str, int, str | None]]:
    return changes.raw.select("_offset", "$op", "id", "name").rows()


@pytest.mark.parametrize("has_schema", [True, False])
def test_each_operation_with_and_without_schemas(has_schema: bool) -> None:
    events = [
        event("r", after=row(1)), event("c", after=row(2), lsn=10), event("u", after=row(2, "b"), lsn=20),
        event("u", row(1), row(1, "c"), lsn=30), event("d", {"id": 2}, lsn=40),
    ]  # fmt: skip
    changes = read(
        [text(each, has_schema=has_schema) for each in events], **({} if has_schema else {"time_unit": "us", "decimals": "bytes"})
    )
    assert ops(changes) == [
        (0, "upsert", 1, "a"),
        (1, "upsert", 2, "a"),
        (2, "upsert", 2, "b"),
        (3, "upsert", 1, "c"),
        (4, "delete", 2, None),
    ]
    assert changes.rejects.rows() == []
    accepted, refused = canonicalise(changes.raw, relation(TYPES, kind="table", key=("id",)), TS + 1_000)
    assert refused.rows() == []
    assert accepted["_ts"].to_list() == [TS] * 5
    assert [str(value) for value in accepted.row(0, named=True).values()][-3:] == [
        "12.34",
        "2023-11-14 22:13:20.000001+00:00",
        "2022-01-08",
    ]


def test_an_older_change_never_wins_over_a_newer_one() -> None:
    events = [event("u", after=row(1, name), lsn=lsn) for name, lsn in [("x", 30), ("old", 20), ("same", 30), ("y", 40)]]
    changes = read([text(each) for each in [*events, event("u", after=row(2, "other"), lsn=5)]])
    assert [name for *_, name in ops(changes)] == ["x", "y", "other"]
    assert changes.older == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"lsn": 1048}, {"lsn": 976}, id="an insert that waited is logged before"),
        pytest.param({"file": "bin.000900", "pos": 7}, {"file": "bin.000001", "pos": 4}, id="a replica's binlog begins low"),
        pytest.param({"change_lsn": "0025:0d98:0003"}, {"change_lsn": "0025:0d98:0002"}, id="SQL Server"),
    ],
)
def test_a_change_that_was_committed_later_counts_whatever_its_position(first: dict[str, Any], second: dict[str, Any]) -> None:
    events = [
        event("u", after=row(1, "first"), ts_us=TS * 1_000, **first),
        event("u", after=row(1, "second"), ts_us=TS * 1_000 + 3, **second),
    ]
    changes = read([text(each) for each in [*events, *events]])
    assert [name for *_, name in ops(changes)] == ["first", "second"]
    assert changes.older == 2
    assert read([text(each) for each in events], changes.newest).older == 2


def test_a_row_of_a_snapshot_counts_by_its_position_alone() -> None:
    late = {"ts_us": TS * 1_000 + 900}
    events = [
        event("r", after=row(1, "read"), lsn=50, **late), event("u", after=row(1, "open meanwhile"), lsn=40, ts_us=TS * 1_000 + 10),
        event("r", after=row(1, "read again"), lsn=45, **late), event("r", after=row(1, "and again"), lsn=60),
    ]  # fmt: skip
    assert [name for *_, name in ops(read([text(each) for each in events]))] == ["read", "open meanwhile", "and again"]


def test_positions_of_sql_server_count_commits_before_changes() -> None:
    def at(name: str, commit: str, change: str | None, op: str = "u") -> bytes:
        return text(event(op, after=row(1, name), ts_us=None, ts_ms=None, commit_lsn=commit, change_lsn=change))

    events = [at("read", "0010:0001", None, "r"), at("a", "0010:0002", "0009:0009"), at("older", "0010:0001", "0010:0000")]
    assert [name for *_, name in ops(read(events))] == ["read", "a"]


def absent(payloads: list[bytes | None], **more: Any) -> list[list[str] | None]:
    found: list[list[str] | None] = (
        DebeziumReader(settings(**more)).rows(pl.Series(payloads, dtype=pl.Binary)).raw["_absent"].to_list()
    )
    return found


@pytest.mark.parametrize("has_schema", [True, False])
def test_columns_that_a_row_does_not_have_are_told_from_nulls(has_schema: bool) -> None:
    lacking = {name: value for name, value in row(1).items() if name not in ("name", "day")}
    rows = [row(1), {**row(1), "name": None, "day": None}, lacking, {**row(1), "name": '"day": "name":', "day": None}]
    events = [*(event("u", row(1), each) for each in rows), event("d", {"id": 1})]
    more = {} if has_schema else {"time_unit": "us", "decimals": "bytes"}
    found = absent([text(each, has_schema=has_schema) for each in events], **more)
    assert found == [None, None, ["name", "day"], None, None], "name is also a field of the source"


def test_a_row_of_a_name_elsewhere_in_the_event_does_not_have_it() -> None:
    lacking = event("u", {**row(1)}, {"id": 1})
    del lacking["before"]["price"]
    (found,) = absent([text(lacking, has_schema=False)], time_unit="us", decimals="bytes")
    assert found == ["name", "price", "at", "day"]


@pytest.mark.parametrize(
    "after",
    [
        {"id": 1},
        {"id": 1, "shape": {"price": 1, "at": 2, "day": 3}},
        {"id": 1, "all": [{"price": 1, "at": 2, "day": 3}]},
        {"after": {"day": 1}},
    ],
)
@pytest.mark.parametrize("before", [None, row(1), {**row(1), "after": 1}, {**row(1), "after": {"after": 1}}])
@pytest.mark.parametrize("beside", [{}, {"transaction": {"day": 1}}, {"source": None}])
@pytest.mark.parametrize("is_turned", [True, False])
def test_a_name_elsewhere_is_never_taken_for_the_rows(after: dict[str, Any], before: Any, beside: Any, is_turned: bool) -> None:
    whole = {**event("u", before, {"id": 1, "name": "x", **after}), **beside}
    payload = text(dict(reversed(whole.items())) if is_turned else whole, has_schema=False)
    assert absent([payload], time_unit="us", decimals="bytes") == [["price", "at", "day"]]


def test_a_replay_after_a_restart_does_not_bring_back_a_deleted_row() -> None:
    first = read([text(each) for each in (event("c", after=row(1), lsn=10), event("d", {"id": 1}, lsn=20))])
    again = read([text(each) for each in (event("c", after=row(1), lsn=10), event("u", after=row(1, "n"), lsn=21))], first.newest)
    assert ops(again) == [(1, "upsert", 1, "n")]
    assert again.older == 1
    assert read([text(event("u", after=row(1, "late"), lsn=19))], again.newest).raw.height == 0


def test_positions_do_not_sort_as_texts_of_different_length() -> None:
    events = [event("u", after=row(1, name), lsn=lsn) for name, lsn in [("a", 9), ("b", 10), ("c", 100)]]
    assert len(ops(read([text(each) for each in events]))) == 3


def test_positions_of_mysql_count_files_before_places() -> None:
    places = [("binlog.000009", 900), ("binlog.000010", 5), ("binlog.000009", 950)]
    events = [event("u", after=row(1, str(pos)), file=file, pos=pos) for file, pos in places]
    assert [name for *_, name in ops(read([text(each) for each in events]))] == ["900", "5"]


def test_a_changed_key_deletes_the_old_row_first() -> None:
    changes = read([text(event("u", row(1), row(7, "n"), lsn=1))])
    assert ops(changes) == [(0, "delete", 1, "a"), (0, "upsert", 7, "n")]


def test_tombstones_are_left_out() -> None:
    changes = read([None, text(event("c", after=row(1))), None])
    assert ops(changes) == [(1, "upsert", 1, "a")]
    assert changes.rejects.rows() == []


def test_what_is_no_change_of_a_row_is_a_reject_with_its_reason() -> None:
    payloads = [
        text(event("t")), text(event("m")), text({"ts_ms": 1}, has_schema=False), text(event("d")), text(event("c", row(1))), b"garbage", b"[]",
        b'{"schema":', b'{"schema":{},"payload":null}', text(event("c", after={**row(1), "id": "x"})),
    ]  # fmt: skip
    changes = read([*payloads, text(event("c", after=row(5)))])
    reasons = dict(changes.rejects.select("offset", "reason").rows())
    assert reasons == {
        0: "table_truncated", 1: "not_a_change", 2: "not_a_change", 3: "row_missing", 4: "row_missing", 5: "malformed_json", 6: "malformed_json",
        7: "malformed_json", 8: "malformed_json", 9: "malformed_json",
    }  # fmt: skip
    assert ops(changes) == [(10, "upsert", 5, "a")]


def test_events_that_begin_in_many_ways_are_read_together_and_in_their_order() -> None:
    spaced = [b" " * (place % 7 + 1) + text(event("c", after=row(place))) for place in range(200)]
    groups, rejects = split(pl.Series(spaced, dtype=pl.Binary))
    assert (len(groups), rejects.height) == (1, 0)
    assert [key for _, _, key, _ in ops(read(spaced))] == list(range(200))


def test_more_schemas_than_one_body_may_have_are_refused_one_by_one() -> None:
    many = [b'%s{"schema":%d,"payload":{}}' % (b" " * (number % 2), number) for number in range(200)]
    groups, rejects = split(pl.Series([*many, b' {"op": "c"}'], dtype=pl.Binary))
    assert (len(groups), rejects.height) == (65, 200 - 64)
    assert "more than 64 different schemas" in rejects["detail"][0]


def test_a_value_that_the_event_does_not_hold_is_refused_and_not_stored() -> None:
    changes = read([text(event("u", row(1), row(1, "__debezium_unavailable_value"))), text(event("u", row(1), row(1, "new")))])
    assert changes.rejects.select("offset", "reason").rows() == [(0, "value_unavailable")]
    assert ops(changes) == [(1, "upsert", 1, "new")]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "__debezium_unavailable_value"),
        ("string", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ("bytes", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ("string", '{"__debezium_unavailable_value":"__debezium_unavailable_value"}'),
        ("array<string>", ["__debezium_unavailable_value"]),
        (
            "array<string>",
            [str(uuid.UUID(bytes=hashlib.md5(b"__debezium_unavailable_value", usedforsecurity=False).digest(), version=3))],
        ),
        ("array<bigint>", list(b"__debezium_unavailable_value")),
        ("array<double>", list(b"__debezium_unavailable_value")),
    ],
)
def test_a_value_that_is_not_there_is_known_in_each_type(kind: str, value: Any) -> None:
    columns = Schema((("id", parse_type("bigint")), ("large", parse_type(kind))))
    events = [event("u", after={"id": 1, "large": large}) for large in (value, None, value[:-1])]
    reader = DebeziumReader(DebeziumSettings(columns, ("id",)))
    changes = reader.read(pl.Series([text(each, has_schema=False) for each in events], dtype=pl.Binary))
    assert changes.rejects.select("offset", "reason").rows() == [(0, "value_unavailable")]


def test_a_text_for_a_decimal_without_a_schema_is_not_guessed_at() -> None:
    plain = [text(event("c", after={**row(1), "price": "1234"}), has_schema=False)]
    assert read(plain, time_unit="us").rejects["reason"].to_list() == ["decimal_unclear"]
    assert read(plain, time_unit="us", decimals="text").raw["price"].to_list() == ["1234"]
    assert str(read(plain, time_unit="us", decimals="bytes").raw["price"][0]) == "-26588.24"


def test_a_schema_that_calls_a_decimal_a_text_says_that_it_is_digits() -> None:
    plain = json.loads(json.dumps(SCHEMA))
    for side in plain["fields"]:
        side["fields"][1] = {"field": "price", "type": "string"}
    events = [event("c", after={**row(number), "price": price}) for number, price in enumerate(("12.34", "much"))]
    changes = read([json.dumps({"schema": plain, "payload": each}, separators=(",", ":")).encode() for each in events])
    accepted, refused = canonicalise(changes.raw, relation(TYPES, kind="table", key=("id",)), TS + 1_000)
    assert [str(price) for price in accepted["price"]] == ["12.34"]
    assert refused["reason"].to_list() == ["wrong_type"]


def test_numbers_for_decimals_keep_their_digits() -> None:
    changes = read([text(event("c", after={**row(1), "price": 12.30}), has_schema=False)], time_unit="us")
    assert str(changes.raw["price"][0]) == "12.30"


def test_microseconds_read_as_milliseconds_are_refused_not_taken() -> None:
    changes = read([text(event("c", after={**row(1), "price": None}), has_schema=False)])
    _, refused = canonicalise(changes.raw, relation(TYPES, kind="table", key=("id",)), TS + 1_000)
    assert refused["reason"].to_list() == ["wrong_type"]


def test_schemas_that_differ_in_one_batch() -> None:
    other = json.loads(json.dumps(SCHEMA))
    for side in other["fields"]:
        side["fields"][2]["name"] = "io.debezium.time.Timestamp"
    late = {**event("c", after={**row(2), "at": 1_700_000_000_000})}
    mixed = [
        text(event("c", after=row(1))),
        json.dumps({"schema": other, "payload": late}).encode(),
        text(event("c", after=row(3))),
    ]
    changes = read(mixed)
    assert [value.microsecond for value in changes.raw["at"].to_list()] == [1, 0, 1]
    assert changes.raw["_offset"].to_list() == [0, 1, 2]


def test_members_in_another_order_and_spaces_are_read() -> None:
    payload = json.dumps({"payload": event("c", after=row(1)), "schema": SCHEMA}, indent=1).encode()
    assert ops(read([payload])) == [(0, "upsert", 1, "a")]


ROW_AVRO = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
        {"name": "unknown", "type": ["null", {"type": "array", "items": "int"}]},
    ],
}  # fmt: skip
SOURCE_AVRO = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "lsn", "type": ["null", "long"]},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "s.t",
    "fields": [
        {"name": "before", "type": ["null", ROW_AVRO]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": SOURCE_AVRO},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        yield registry


def test_envelopes_in_avro(server: FakeRegistry) -> None:
    number = server.add("t-value", json.dumps(ENVELOPE))
    values = {"id": 1, "name": "a", "price": b"\x04\xd2", "at": 1_700_000_000_000_001, "day": 19_000, "unknown": [1]}
    plain = json.loads(json.dumps(ENVELOPE).replace('"logicalType": "decimal", ', ""))
    payloads = []
    for op, before, after, lsn in [
        ("c", None, values, 10),
        ("u", values, {**values, "name": "b"}, 20),
        ("u", None, {**values, "name": "old"}, 15),
        ("d", values, None, 30),
    ]:
        stream = io.BytesIO()
        record = {
            "before": before,
            "after": after,
            "op": op,
            "ts_ms": TS,
            "source": {"connector": "postgresql", "ts_ms": TS, "lsn": lsn},
        }
        fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), record)
        payloads.append(header_of(number) + stream.getvalue())
    store = Registry(RegistrySettings((server.url,)))
    changes = DebeziumReader(settings(encoding="avro", has_registry=True), store).read(
        pl.Series([*payloads, None, b"junk"], dtype=pl.Binary)
    )
    assert ops(changes) == [(0, "upsert", 1, "a"), (1, "upsert", 1, "b"), (3, "delete", 1, "a")]
    assert changes.older == 1
    assert changes.rejects.select("offset", "reason").rows() == [(5, "no_schema_id")]
    assert str(changes.raw["price"][0]) == "12.34"
    assert changes.raw["at"][0].microsecond == 1
    assert changes.raw["_absent"].to_list() == [None] * 3
    fewer = json.loads(json.dumps(ENVELOPE).replace('{"name": "name", "type": ["null", "string"]}, ', ""))
    header = header_of(server.add("t-value", json.dumps(fewer)))
    kept = DebeziumReader(settings(encoding="avro", has_registry=True), store)
    without = json.loads(json.dumps(fewer).replace('"logicalType": "decimal", ', ""))
    stream = io.BytesIO()
    record = {
        "before": None,
        "after": values,
        "op": "u",
        "ts_ms": TS,
        "source": {"connector": "postgresql", "ts_ms": TS, "lsn": 40},
    }
    fastavro.schemaless_writer(stream, fastavro.parse_schema(without), record)
    found = kept.rows(pl.Series([payloads[0], header + stream.getvalue()], dtype=pl.Binary))
    assert found.raw["_absent"].to_list() == [None, ["name"]]
    store.close()


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FormatInvalid, match="registry"):
        settings(encoding="avro")
    with pytest.raises(FormatInvalid, match="seconds"):
        settings(time_unit="s")


def test_events_that_hold_two_objects_or_half_of_one_cannot_take_anothers_place() -> None:
    good = [text(event("c", after=row(number)), has_schema=False) for number in range(5)]
    torn = [good[0] + good[1], b'{"op":', b'{"x":1}}']
    changes = read([*torn, *good], time_unit="us", decimals="bytes")
    assert changes.rejects["offset"].to_list() == [0, 1, 2]
    assert [number for _, _, number, _ in ops(changes)] == [0, 1, 2, 3, 4]


STRANGE = {
    "a number of many digits": b"1" * 5_000,
    "no UTF-8": b'"\xff"',
    "deep nesting": b"[" * 3_000 + b"]" * 3_000,
    "braces in a text": rb'"}}\"{{"',
    "a line break": b'\n{"a":\r\n[]}',
}


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_an_event_is_read_alike_whatever_it_comes_with(value: bytes, has_schema: bool, is_whole: bool) -> None:
    held = row(1) if is_whole else {"id": 1}
    plain = text(event("c", None, held), has_schema=has_schema)
    strange = plain.replace(b'{"id":1', b'{"nobody":' + value + b',"id":1')
    assert strange != plain
    good = [text(event("c", None, row(2)), has_schema=has_schema)] * 40
    more: dict[str, Any] = {} if has_schema else {"time_unit": "us", "decimals": "bytes"}
    expected = DebeziumReader(settings(**more)).rows(pl.Series([plain]))
    for payloads in ([strange], [*good, strange], [strange, *good]):
        found = DebeziumReader(settings(**more)).rows(pl.Series(payloads, dtype=pl.Binary))
        assert found.rejects.rows() == []
        own = found.raw.filter(pl.col("id") == 1)
        assert own.drop("_offset").rows() == expected.raw.drop("_offset").rows()


@pytest.mark.parametrize(
    "payload",
    [b'{"op":"c"', b'{"op":"c}', b'{"op" "c"}', b'{"op":}', b'{"op":"c"}{"op":"c"}', b"{op:1}", b'{"op":"a\nb"}', b"[]", b""],
)
def test_what_is_no_object_is_refused_whatever_it_comes_with(payload: bytes) -> None:
    for payloads in ([payload], [*[text(event("c", None, row(2)))] * 40, payload]):
        found = read([*payloads])
        assert found.rejects["reason"].to_list() == ["malformed_json"]
        assert found.rejects["offset"].to_list() == [len(payloads) - 1]


def of_topic(payloads: list[bytes], **rules: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    table = relation(TYPES, kind="table", key=("id",), change_rules=ChangeRules(**rules) if rules else None)
    values = pl.Series(payloads, dtype=pl.Binary)
    return ChangeReader(table, DebeziumReader(settings())).read(pl.Series([None] * len(values), dtype=pl.Binary), values)


def lacking(number: int, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row(number).items() if name not in names}


MIXED = [
    event("c", None, row(1), lsn=1), event("c", None, lacking(2, "name", "day"), lsn=2), event("d", {"id": 1}, lsn=3),
    event("u", row(3), lacking(4, "day"), lsn=4), event("c", None, {**row(5), "name": None, "day": None}, lsn=5),
]  # fmt: skip


@pytest.mark.parametrize("size", range(1, len(MIXED) + 1))
def test_rows_of_a_topic_that_lack_a_declared_column_are_refused_however_it_is_cut(size: int) -> None:
    rows, rejects = [], []
    for first in range(0, len(MIXED), size):
        raw, bad = of_topic([text(each) for each in MIXED[first : first + size]])
        assert not {"_absent", "_table"} & {*raw.columns}
        rows += [(first + place, *more) for place, *more in raw.select("_offset", "$op", "id").rows()]
        rejects += [(first + place, *more) for place, *more in bad.select("offset", "reason", "detail").rows()]
    assert rows == [(0, "upsert", 1), (2, "delete", 1), (3, "delete", 3), (4, "upsert", 5)], "an old key is gone at any rate"
    assert [each[:2] for each in rejects] == [(1, "column_missing"), (3, "column_missing")]
    assert "column 'name', 'day':" in rejects[0][2]
    assert "column 'day':" in rejects[1][2]


def test_columns_that_rows_of_a_topic_may_lack_are_null() -> None:
    raw, rejects = of_topic([text(each) for each in MIXED], absent=("day",))
    assert raw.filter(pl.col("id") == 4).select("name", "day").rows() == [("a", None)]
    assert rejects.select("offset", "reason").rows() == [(1, "column_missing")]
    assert "column 'name':" in rejects["detail"][0]
    _, rejects = of_topic([text(each) for each in MIXED], absent=("day", "name"))
    assert not rejects.height


def test_rows_of_a_topic_are_of_the_tables_that_are_named() -> None:
    named = ("public.a", "b")
    events = [
        event("c", None, row(1), schema="public", table="a"), event("c", None, row(2), schema="other", table="a"),
        event("c", None, row(3), table="b"), event("d", {"id": 1}, schema="other", table="a"), event("c", None, row(4), table=None),
        event("u", row(5), lacking(6, "day"), table="c"),
    ]  # fmt: skip
    raw, rejects = of_topic([text(each) for each in events], tables=named)
    assert raw["id"].to_list() == [1, 3]
    assert rejects.select("offset", "reason").rows() == [(place, "other_table") for place in (1, 3, 4, 5)]
    assert "'other.a'" in rejects["detail"][0]
    assert "'public.a', 'b'" in rejects["detail"][0]
    raw, rejects = of_topic([text(each) for each in events[:5]])
    assert (raw["id"].to_list(), rejects.height) == ([1, 2, 3, 1, 4], 0)


def test_of_rows_without_a_schema_the_newest_has_the_columns() -> None:
    old, new = {"id": 1, "name": "a"}, {"id": 1, "title": "b"}
    events = [event("c", None, old), event("u", old, new), event("u", new, new), event("d", {"id": 1})]
    assert [name for name, _ in row_of_events(events)] == ["id", "title"]
    assert [name for name, _ in row_of_events(events[-1:])] == ["id"]

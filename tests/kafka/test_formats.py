"""A topic's keys and values in every format, with and without a registry; what cannot be read; a registry that is away."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from engine.errors import DefinitionInvalid, SourceUnavailable
from engine.postgres.postgres import Connection
from engine.sources.feeds import Split
from engine.sources.kafka import sides
from tests.kafka.registries import Connected, Registered
from tests.kafka.test_reading import NOW_MS, Source
from tests.kafka.topics import Cluster, Sent

TYPES = {"k": "bigint", "v": "string", "price": "decimal(10,2)"}
ROWS = [{"k": 1, "v": "a", "price": Decimal("1.25")}, {"k": 2, "v": "ä€", "price": None}]
AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "v", "type": "string"}, {"name": "n", "type": ["null", "long"]}]}
)
PROTO = 'syntax = "proto3"; message Other { string x = 1; } message Row { string v = 1; int64 n = 2; }'


def of_topic(mock: Cluster, source: Source, records: list[Sent]) -> list[dict[str, Any]]:
    """Send records and return the rows; the reader is told where they end, since the mock answers slowly who asks which topic it is."""
    mock.send(source.topic, records)
    return source.rows(Split(0, 0, len(records)))


def sent(values: list[bytes | None], keys: list[bytes] | None = None) -> list[Sent]:
    return [Sent(value, keys[place] if keys else None, NOW_MS + place) for place, value in enumerate(values)]


@pytest.mark.parametrize("form", ["json", "json_lenient", "avro", "protobuf"])
def test_payloads_that_name_their_schemas(form: str, connection: Connection, mock: Cluster, any_registry: Connected) -> None:
    side = {"format": form, "registry": any_registry.name}
    source = Source(connection, mock, key=["k"], columns=TYPES, connector={"key": side, "value": side})
    keys = any_registry.payloads(form, source.topic, [{"k": row["k"]} for row in ROWS], {"k": "bigint"}, "key")
    values = any_registry.payloads(
        form, source.topic, [{**row, "k": None} for row in ROWS], {"v": "string", "price": "decimal(10,2)"}
    )
    found = of_topic(mock, source, sent([*values, None], [*keys, keys[0]]))
    assert [(row["k"], row["v"], row["price"] and str(row["price"]), row["_op"]) for row in found] == [
        (1, "a", "1.25", 0), (2, "ä€", None, 0), (1, None, None, 1),
    ]  # fmt: skip
    source.check()
    has = {side: any_registry.store.latest(f"{source.topic}-{side}") for side in ("key", "value")}
    assert all(found is not None and found.kind == form.removesuffix("_lenient").upper() for found in has.values())


@pytest.mark.parametrize(
    ("key", "declared", "value", "payload", "keys", "expected"),
    [
        ({"format": "kafka"}, "int", {"format": "avro", "schema": AVRO}, b"\x02a\x02\x0e", struct.pack(">i", -5), (-5, "a", 7)),
        ({"format": "kafka"}, "bigint", {"format": "protobuf", "schema": PROTO, "message": "Row"}, b"\x0a\x01a\x10\x07",
         struct.pack(">q", 1 << 40), (1 << 40, "a", 7)),
        ({"format": "kafka"}, "double", {"format": "delimited", "delimiter": "|"}, b"a|7", struct.pack(">d", 0.5), (0.5, "a", 7)),
        ({"format": "string"}, "string", {"format": "json_lenient"}, b'{"v": 1, "n": "7"}', "é".encode(), ("é", "1", 7)),
        ({"format": "bytes"}, "bytes", {"format": "json"}, b'{"v": "a", "n": 7}', b"\xff\x00", (b"\xff\x00", "a", 7)),
        ({"format": "json", "unwrapped": True}, "string", {"format": "json"}, b' {\n"v": "a",\n"n": 7}', b'"q"', ("q", "a", 7)),
        ({"format": "avro", "schema": '"string"'}, "string", {"format": "json"}, b'{"v": "a", "n": 7}', b"\x02q", ("q", "a", 7)),
    ],
)  # fmt: skip
def test_payloads_without_a_registry(
    key: Any, declared: str, value: Any, payload: bytes, keys: bytes, expected: Any, connection: Connection, mock: Cluster
) -> None:
    columns = {"k": declared, "v": "string", "n": "bigint"}
    source = Source(connection, mock, key=["k"], columns=columns, connector={"key": key, "value": value})
    (row,) = of_topic(mock, source, sent([payload], [keys]))
    assert (row["k"], row["v"], row["n"]) == expected
    source.check()


@pytest.mark.parametrize(
    ("unit", "number"), [("s", 1_700_000_000), ("us", 1_700_000_000_000_001), ("ns", 1_700_000_000_000_001_999)]
)
def test_timestamps_of_json_count_what_is_said(unit: str, number: int, connection: Connection, mock: Cluster) -> None:
    source = Source(
        connection, mock, columns={"at": "timestamp"}, event_time="at", connector={"value": {"format": "json", "time_unit": unit}}
    )  # fmt: skip
    values: list[bytes | None] = [b'{"at": %d}' % number] * 3 + [b'{"at": "%d"}' % number, b'{\n"at": %d}' % number]
    found = of_topic(mock, source, sent([*values, b'{"at": "2023-11-14T22:13:20Z"}', b'{"at": 999999999999999999}']))
    micros = {"s": 1_700_000_000_000_000}.get(unit, 1_700_000_000_000_001)
    assert [round(row["at"].timestamp() * 1e6) for row in found[:5]] == [micros] * 5
    assert len(found) == (6 if unit == "ns" else 5)
    bad = [row["offset"] for row in source.rejects(Split(0, 0, 7))]
    assert bad == ([5] if unit == "ns" else [5, 6])


def test_readers_columns_stay_when_writers_schemas_change(connection: Connection, mock: Cluster, any_registry: Connected) -> None:
    source = Source(
        connection, mock, columns={"v": "string", "n": "bigint"},
        connector={"value": {"format": "avro", "registry": any_registry.name}},
    )  # fmt: skip
    first = any_registry.payloads("avro", source.topic, [{"v": "a", "n": 1}], {"v": "string", "n": "bigint"})
    any_registry.permit_all()  # nothing has to be compatible
    wider = any_registry.payloads(
        "avro", source.topic, [{"v": "b", "new": 0.5, "n": 2}], {"v": "string", "new": "double", "n": "bigint"}
    )
    any_registry.permit_all()
    less = any_registry.payloads("avro", source.topic, [{"v": "c"}], {"v": "string"})
    any_registry.permit_all()
    other = any_registry.payloads("avro", source.topic, [{"v": "d", "n": "no number"}], {"v": "string", "n": "string"})
    found = of_topic(mock, source, sent([*first, *other, *wider, *less]))
    assert [(row["_offset"], row["v"], row["n"]) for row in found] == [(0, "a", 1), (2, "b", 2), (3, "c", None)]
    assert [(row["offset"], row["reason"]) for row in source.rejects(Split(0, 0, 4))] == [(1, "wrong_type")]


def test_poison_is_refused_with_offset_reason_and_a_bounded_excerpt(
    connection: Connection, mock: Cluster, any_registry: Connected
) -> None:
    source = Source(
        connection, mock, key=["k"], columns={"k": "string", "n": "bigint"},
        connector={"key": {"format": "string"}, "value": {"format": "avro", "registry": any_registry.name, "has_key": True}},
    )  # fmt: skip
    good = any_registry.payloads("avro", source.topic, [{"k": "a", "n": 1}], {"k": "string", "n": "bigint"})[0]
    large = good[:5] + b"\xff" * 500_000
    values = [good, b"\x00\x00\x00\x03\xe7" + good[5:], b'{"k": "a"}', good[:-1], good + b"\x00", b"\x00", large, good, good]
    keys = [b"a"] * 7 + [b"b", b"\xff"]
    mock.send(source.topic, sent([*values, good], [*keys, b"a"]))
    packets = Split(0, 0, 10)
    assert [row["_offset"] for row in source.rows(packets)] == [0, 9]
    rejects = source.rejects(packets)
    assert [(row["offset"], row["reason"]) for row in rejects] == [
        (1, "unknown_schema"), (2, "no_schema_id"), (3, "malformed_avro"), (4, "malformed_avro"), (5, "no_schema_id"),
        (6, "malformed_avro"), (7, "key_mismatch"), (8, "wrong_type"),
    ]  # fmt: skip
    assert max(len(row["excerpt"]) for row in rejects) <= 1_024


def test_a_header_that_is_no_text_refuses_its_record_alone(connection: Connection, mock: Cluster) -> None:
    source = Source(
        connection, mock, columns={"v": "bigint", "h": "string"},
        connector={"value": {"format": "json"}, "record_columns": {"h": "header:h"}},
    )  # fmt: skip
    headers: list[bytes | None] = ["é".encode(), b"\xff", None]
    mock.send(source.topic, [Sent(b'{"v": 1}', timestamp_ms=NOW_MS, headers=[("h", header)]) for header in headers])
    assert [row["h"] for row in source.rows(Split(0, 0, 3))] == ["é", None]
    assert [(row["offset"], row["reason"]) for row in source.rejects(Split(0, 0, 3))] == [(1, "invalid_string")]


def test_large_records_and_headers_are_read_and_larger_ones_refused(connection: Connection, kafka: Cluster) -> None:
    source = Source(
        connection, kafka, columns={"v": "string", "h": "string"},
        connector={
            "topic": kafka.topic(max_message_bytes="40000000"), "value": {"format": "json"}, "record_columns": {"h": "header:h"},
        },
    )  # fmt: skip
    large, larger = b'{"v": "%s"}' % (b"x" * 10_000_000), b'{"v": "%s"}' % (b"x" * 17_000_000)
    records = [
        Sent(large, timestamp_ms=NOW_MS), Sent(larger, timestamp_ms=NOW_MS),
        Sent(b'{"v": "1"}', timestamp_ms=NOW_MS, headers=[("h", b"y" * 1_000_000), *((f"n{place}", b"z") for place in range(5_000))]),
        Sent(b'{"v": "2"}', timestamp_ms=NOW_MS, headers=[("h", b"\xff" * 1_000_000)]),
        Sent(b'{"v": "3"}', timestamp_ms=NOW_MS, headers=[("h", None)]),
    ]  # fmt: skip
    kafka.send(source.topic, records, **{"message.max.bytes": 40_000_000})
    split = Split(0, 0, len(records))
    found = source.rows(split)
    assert [(row["_offset"], len(row["v"]), None if row["h"] is None else len(row["h"])) for row in found] == [
        (0, 10_000_000, None), (2, 1, 1_000_000), (4, 1, None),
    ]  # fmt: skip
    rejects = source.rejects(split)
    assert [(row["offset"], row["reason"]) for row in rejects] == [(1, "record_too_long"), (3, "invalid_string")]
    assert max(len(row["excerpt"]) for row in rejects) <= 1_024


def test_a_registry_that_is_away_is_tried_again_and_refuses_no_record(
    connection: Connection, mock: Cluster, registry: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "QUESTION_S", 0.5)
    source = Source(connection, mock, columns={"v": "string"}, connector={"value": {"format": "avro", "registry": registry.name}})
    mock.send(source.topic, sent(registry.payloads("avro", source.topic, [{"v": "a"}], {"v": "string"})))  # type: ignore[arg-type]
    split = Split(0, 0, 1)
    registry.server.failures = 1_000
    with pytest.raises(SourceUnavailable, match="registry"):
        source.packets(split)
    with pytest.raises(SourceUnavailable, match="registry"):
        source.check()
    registry.server.failures, registry.server.garbage = 0, True
    with pytest.raises(SourceUnavailable, match="registry"):
        source.packets(split)
    registry.server.garbage, registry.server.credentials = False, "Bearer right"
    with pytest.raises(SourceUnavailable, match="correct the registry's connection"):
        source.packets(split)
    with pytest.raises(DefinitionInvalid) as caught:
        source.check()
    assert [(each.pointer, each.code) for each in caught.value.problems] == [("/connector/value/registry", "registry_refused")]
    registry.connect(connection, token="env:SLACKWATER_SECRET_REGISTRY")
    monkeypatch.setenv("SLACKWATER_SECRET_REGISTRY", "right")
    sides.forget(connection.info.dsn, registry.name)
    assert [row["v"] for row in source.rows(split)] == ["a"]


def test_what_a_registry_does_not_have_is_told_when_a_source_is_registered(
    connection: Connection, mock: Cluster, registry: Registered
) -> None:
    def faults(value: dict[str, Any], payload: bytes | None = None, **columns: str) -> list[tuple[str, str]]:
        source = Source(connection, mock, columns=columns or {"v": "string"}, connector={"value": value})
        if payload is not None:
            mock.send(source.topic, sent([payload] * 3))
        with pytest.raises(DefinitionInvalid) as caught:
            source.check()
        return [(each.pointer, each.code) for each in caught.value.problems]

    registry.connect(connection)
    connection.execute("INSERT INTO slackwater.connection (name, type, definition, secrets) VALUES ('broker', 'kafka', %s, '{}')",
                       ('{"type": "kafka", "bootstrap": "127.0.0.1:1"}',))  # fmt: skip
    avro = {"format": "avro", "registry": registry.name}
    payload = registry.payloads("avro", "t", [{"v": "a"}], {"v": "string"})[0]
    assert faults(avro, b'{"v": 1}') == [("/connector/value", "format_differs")]
    assert faults(avro, b"\x00\x00\x00\x03\xe7a") == [("/connector/value", "format_differs")]
    assert faults(avro, payload, v="timestamp") == [("/connector/value", "format_differs")]
    assert faults({**avro, "format": "protobuf"}, payload) == [("/connector/value", "format_differs")]
    assert faults({**avro, "registry": "nobody"}) == [("/connector/value/registry", "connection_missing")]
    assert faults({**avro, "registry": "broker"}) == [("/connector/value/registry", "connection_of_another_type")]

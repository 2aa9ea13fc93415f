"""Keys and values put together."""

from __future__ import annotations

import polars as pl

from engine.expressions.types.types import Schema, parse_type
from engine.formats.format_list import reader_of
from engine.formats.port import SideConfig
from engine.formats.records import MAX_PAYLOAD_BYTES, TopicReader
from engine.records.canonical import canonicalise
from tests.unit.records.relations import NOW_MS, relation


def columns_of(**types: str) -> Schema:
    return Schema(tuple((name, parse_type(text)) for name, text in types.items()))


TYPES = {"k": "bigint", "v": "string"}
TABLE = relation(TYPES, kind="table", key=("k",))
APART = TopicReader(
    TABLE, reader_of(SideConfig("kafka", columns_of(k="bigint"), "key")), reader_of(SideConfig("json", columns_of(v="string")))
)
BOTH = TopicReader(
    TABLE, reader_of(SideConfig("kafka", columns_of(k="bigint"), "key")), reader_of(SideConfig("json", columns_of(**TYPES)))
)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def series(*payloads: bytes | None) -> pl.Series:
    return pl.Series(payloads, dtype=pl.Binary)


def test_columns_of_keys_and_values_stand_beside_each_other() -> None:
    raw, rejects = APART.read(series(key(1), key(2)), series(b'{"v":"a"}', b'{"v":null}'))
    assert rejects.rows() == []
    accepted, _ = canonicalise(raw, TABLE, NOW_MS)
    assert accepted.select("_offset", "k", "v", "_op").rows() == [(0, 1, "a", 0), (1, 2, None, 0)]


def test_a_tombstone_deletes_the_row_of_its_key() -> None:
    for reader in (APART, BOTH):
        raw, rejects = reader.read(series(key(1), key(2)), series(None, b'{"v":"x","k":2}'))
        assert rejects.rows() == []
        assert canonicalise(raw, TABLE, NOW_MS)[0].select("k", "_op").rows() == [(1, 1), (2, 0)]


def test_a_batch_of_tombstones_alone() -> None:
    raw, rejects = APART.read(series(key(1), key(2)), series(None, None))
    assert rejects.rows() == []
    assert canonicalise(raw, TABLE, NOW_MS)[0].select("k", "_op").rows() == [(1, 1), (2, 1)]


def test_a_bad_key_or_value_refuses_its_record_once() -> None:
    raw, rejects = APART.read(series(b"x", key(2), b"y", key(4)), series(b'{"v":"a"}', b"{", b"{", b'{"v":"d"}'))
    assert rejects.select("offset", "reason").rows() == [(0, "wrong_type"), (1, "malformed_json"), (2, "wrong_type")]
    assert canonicalise(raw, TABLE, NOW_MS)[0].select("_offset", "k", "v").rows() == [(3, 4, "d")]


def test_a_key_that_disagrees_with_its_value_is_refused() -> None:
    raw, rejects = BOTH.read(series(key(1), key(2), None, key(4)), series(*[b'{"k":%d,"v":"x"}' % k for k in (1, 9, 3, 4)]))
    assert rejects.select("offset", "reason").rows() == [(1, "key_mismatch")]
    assert canonicalise(raw, TABLE, NOW_MS)[0].select("_offset", "k").rows() == [(0, 1), (2, 3), (3, 4)]


def test_a_record_without_a_key_has_null_key_columns() -> None:
    raw, rejects = APART.read(series(None, key(2)), series(b'{"v":"a"}', b'{"v":"b"}'))
    assert rejects.rows() == []
    assert canonicalise(raw, TABLE, NOW_MS)[0].select("k", "v").rows() == [(None, "a"), (2, "b")]


def test_a_payload_that_is_too_long_is_refused_before_it_is_read() -> None:
    long = b'{"v":"' + b"x" * MAX_PAYLOAD_BYTES + b'"}'
    raw, rejects = APART.read(series(key(1), key(2)), series(long, b'{"v":"b"}'))
    assert rejects.select("offset", "reason").rows() == [(0, "record_too_long")]
    assert len(rejects["excerpt"][0]) <= 1024
    assert raw["_offset"].to_list() == [1]


def test_json_payloads_that_hold_two_objects_or_half_of_one_cannot_take_anothers_place() -> None:
    payloads = [b'{"v":"1"}{"v":"2"}', b'{"z":', b'{"x":1}}', *[b'{"v":"%d"}' % i for i in range(200)]]
    _, rejects = APART.read(series(*[key(i) for i in range(203)]), series(*payloads))
    assert rejects["offset"].to_list() == [0, 1, 2]


def test_json_over_several_lines_is_read() -> None:
    raw, rejects = APART.read(series(key(1), key(2)), series(b'{\n "v": "a"\n}', b'{"v":"b"}'))
    assert rejects.rows() == []
    assert raw.select("_offset", "v").rows() == [(0, "a"), (1, "b")]

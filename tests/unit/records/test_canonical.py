"""Which records a relation accepts and why it refuses the others, whichever way they come in."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import DataInvalid
from engine.expressions.expressions import compile_scalar
from engine.formats.bodies.bodies import parse_records
from engine.formats.json.json_records import BodyMalformed, line_bounds, parse_lines
from engine.plan.model import RelationSchema
from engine.records.canonical import (
    LOGGED,
    MAX_EVENT_TIME_MS,
    MAX_RECORD_BYTES,
    POSTED,
    TYPED_FILE,
    SourceKind,
    canonicalise,
    stop_on_rejects,
)
from tests.examples import examples
from tests.unit.records.relations import NOW_MS, relation

EVENTS = relation(
    {"k": "string", "t": "bigint", "x": "double", "n": "bigint", "i": "int", "b": "boolean", "d": "decimal(6,2)"},
    key=("k",),
    event_time="t",
)
JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"


def judge(
    records: list[Any], of: RelationSchema = EVENTS, media_type: str = JSON, now_ms: int = NOW_MS
) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Return (accepted, [(index, reason)])."""
    body = json.dumps(records) if media_type == JSON else "\n".join(map(json.dumps, records))
    raw, malformed = parse_records(body.encode(), media_type, of)
    accepted, refused = canonicalise(raw, of, now_ms)
    rejects = pl.concat([malformed, refused]).sort("offset")
    return accepted, list(zip(rejects["offset"], rejects["reason"], strict=True))


@pytest.fixture(params=[JSON, NDJSON])
def media_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


REFUSED: list[tuple[Any, str]] = [
    ([1], "not_an_object"),
    ("text", "not_an_object"),
    (None, "not_an_object"),
    ({"t": 1, "zz": 1}, "unknown_column"),
    ({"t": 1, "k": 5}, "wrong_type"),
    ({"t": 1, "k": ["a"]}, "wrong_type"),
    ({"t": 1, "n": 1.5}, "wrong_type"),
    ({"t": 1, "n": True}, "wrong_type"),
    ({"t": 1, "n": 2**63}, "wrong_type"),
    ({"t": 1, "n": "12x"}, "wrong_type"),
    ({"t": 1, "i": 2**31}, "wrong_type"),
    ({"t": 1, "i": "5"}, "wrong_type"),
    ({"t": 1, "x": "1.5"}, "wrong_type"),
    ({"t": 1, "b": 1}, "wrong_type"),
    ({"t": 1, "d": 1.005}, "wrong_type"),
    ({"t": 1, "d": "12345678"}, "wrong_type"),
    ({"t": 1, "$op": "upset"}, "wrong_type"),
    ({"t": 1, "$op": "\ud800"}, "wrong_type"),
    ({"t": 1, "x": float("nan")}, "not_finite"),
    ({"t": 1, "x": float("-inf")}, "not_finite"),
    ({"t": 1, "k": "a\x00b"}, "invalid_string"),
    ({"t": 1, "k": "\ud800"}, "invalid_string"),
    ({"t": 1, "k": "é" * 513}, "key_too_large"),
    ({"k": "a"}, "event_time_missing"),
    ({"t": None, "k": "a"}, "event_time_missing"),
    ({"t": -1}, "event_time_out_of_range"),
    ({"t": 253_402_300_800_000}, "event_time_out_of_range"),
    ({"t": NOW_MS + 86_400_001}, "future_event_time"),
]


def test_a_clock_that_runs_ahead_is_told_in_the_words_of_the_definition() -> None:
    raw, _ = parse_records(json.dumps([{"t": NOW_MS + 86_400_001}]).encode(), JSON, EVENTS)
    _, rejects = canonicalise(raw, EVENTS, NOW_MS)
    assert "max_future_skew (1d) ahead of the clock (20" in rejects["detail"][0]


@pytest.mark.parametrize(("record", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_bad_record_is_refused_alone_with_its_reason(record: Any, reason: str, media_type: str) -> None:
    good = [{"t": 1, "k": "a"}, {"t": 2, "k": "b"}]
    accepted, rejects = judge([good[0], record, good[1]], media_type=media_type)
    assert rejects == [(1, reason)]
    assert accepted.select("_offset", "_ts", "k").rows() == [(0, 1, "a"), (2, 2, "b")]


@pytest.mark.parametrize(("record", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_bad_record_among_many_is_refused_alone_too(record: Any, reason: str) -> None:
    records = [{"t": n, "k": "a"} for n in range(2_000)]
    records[1_234] = record
    accepted, rejects = judge(records, media_type=NDJSON)
    assert rejects == [(1_234, reason)]
    assert accepted["_offset"].to_list() == [n for n in range(2_000) if n != 1_234]


ACCEPTED: list[tuple[dict[str, Any], str, Any]] = [
    ({"k": ""}, "k", ""),
    ({"k": None}, "k", None),
    ({"k": "ä" * 512}, "k", "ä" * 512),
    ({"n": 9_007_199_254_740_993}, "n", 9_007_199_254_740_993),
    ({"n": "9007199254740993"}, "n", 9_007_199_254_740_993),
    ({"n": -(2**63)}, "n", -(2**63)),
    ({"n": 3.0}, "n", 3),
    ({"x": 3}, "x", 3.0),
    ({"d": 1.5}, "d", Decimal("1.50")),
    ({"d": "1234.56"}, "d", Decimal("1234.56")),
    ({"d": "1.5000"}, "d", Decimal("1.50")),
    ({"d": 7}, "d", Decimal("7.00")),
    ({"b": False}, "b", False),
]


@pytest.mark.parametrize(("record", "column", "value"), ACCEPTED, ids=lambda value: str(value)[:40])
def test_a_good_value_arrives_exactly(record: dict[str, Any], column: str, value: Any, media_type: str) -> None:
    accepted, rejects = judge([{"t": 1, **record}], media_type=media_type)
    assert rejects == []
    assert accepted[column].to_list() == [value]


def test_the_bounds_of_event_time_and_skew_are_inclusive() -> None:
    accepted, rejects = judge([{"t": 0}, {"t": NOW_MS + 86_400_000}])
    assert (accepted.height, rejects) == (2, [])
    far = relation({"t": "bigint"}, event_time="t", max_future_skew_ms=None)
    assert judge([{"t": 253_402_300_799_999}], far)[1] == []


def test_every_type_has_its_form_in_json() -> None:
    typed = relation(
        {"by": "bytes", "day": "date", "at": "time", "ts": "timestamp", "li": "array<bigint>", "m": "map<string,double>",
         "s": "struct<a:int,b:string>"}
    )  # fmt: skip
    record = {
        "by": "AAH/", "day": "2013-01-31", "at": "01:02:03.5", "ts": "2013-01-01T05:00:00.25+05:00",
        "li": ["9007199254740993", None], "m": {"x": 1}, "s": {"b": "y"},
    }  # fmt: skip
    accepted, rejects = judge([record], typed)
    assert rejects == []
    assert accepted.select(typed.columns.names).row(0) == (
        b"\x00\x01\xff", date(2013, 1, 31), time(1, 2, 3, 500_000), datetime(2013, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC),
        [9_007_199_254_740_993, None], [{"key": "x", "value": 1.0}], {"a": None, "b": "y"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("by", "!"),
        ("day", "2013-02-30"),
        ("at", "25:00:00"),
        ("ts", "2013-01-01T05:00:00"),
        ("ts", 1.5),
        ("ts", 253_402_300_800_000),
        ("ts", -99_999_999_999_999),
        ("li", [1, "x"]),
        ("s", {"c": 1}),
    ],
)
def test_a_value_of_the_wrong_form_is_refused(column: str, value: Any) -> None:
    typed = relation({"by": "bytes", "day": "date", "at": "time", "ts": "timestamp", "li": "array<bigint>", "s": "struct<a:int>"})
    assert judge([{column: value}], typed)[1] == [(0, "wrong_type")]


def test_event_times_come_as_timestamps_milliseconds_or_formatted_text() -> None:
    stamped = relation({"t": "timestamp"}, event_time="t")
    accepted, rejects = judge([{"t": "2013-01-01T00:00:00Z"}, {"t": 1_356_998_400_001}, {"t": "12013-01-01T00:00:00Z"}], stamped)
    assert accepted["_ts"].to_list() == [1_356_998_400_000, 1_356_998_400_001]
    assert rejects == [(2, "event_time_out_of_range")]
    text = relation({"t": "string"}, event_time="t", event_time_format="%d.%m.%Y %H:%M")
    accepted, rejects = judge([{"t": "01.01.2013 00:01"}, {"t": "2013-01-01"}], text)
    assert accepted["_ts"].to_list() == [1_356_998_460_000]
    assert rejects == [(1, "wrong_type")]


UNITS: list[tuple[str, int, int | None]] = [
    ("s", 0, 0), ("s", 1_748_772_000, 1_748_772_000_000), ("s", 253_402_300_799, 253_402_300_799_000),
    ("s", 253_402_300_800, None), ("s", -1, None), ("s", 2**63 - 1, None), ("s", -(2**63), None), ("s", 18_446_744_073_709_552, None),
    ("ms", 1_748_772_000_000, 1_748_772_000_000), ("ms", 253_402_300_799_999, 253_402_300_799_999), ("ms", 2**63 - 1, None),
    ("us", 1_748_772_000_000_999, 1_748_772_000_000), ("us", 999, 0), ("us", -1, None), ("us", 253_402_300_799_999_999, MAX_EVENT_TIME_MS),
    ("us", 253_402_300_800_000_000, None), ("us", -(2**63), None),
    ("ns", 1_748_772_000_000_999_999, 1_748_772_000_000), ("ns", -1, None), ("ns", 2**63 - 1, 9_223_372_036_854),
]  # fmt: skip
"""Unit, number, event time in ms (rounded down; T8)."""


@pytest.mark.parametrize(("unit", "number", "ts"), UNITS)
def test_a_whole_number_is_an_event_time_in_its_unit_and_keeps_its_value(
    unit: str, number: int, ts: int | None, media_type: str
) -> None:
    counted = relation({"k": "string", "t": "bigint"}, event_time="t", event_time_unit=unit, max_future_skew_ms=None)
    for records in ([{"t": number}], [{"t": number}, {"t": 5}, {"t": str(number)}]):
        accepted, rejects = judge(records, counted, media_type)
        known = [(record["t"], index) for index, record in enumerate(records) if record["t"] != 5]
        assert rejects == ([(index, "event_time_out_of_range") for _, index in known] if ts is None else [])
        found = accepted.filter(pl.col("t") == number).select("_ts", "t").rows()
        assert found == ([] if ts is None else [(ts, number)] * len(known))


def test_seconds_fit_an_int() -> None:
    counted = relation({"t": "int"}, event_time="t", event_time_unit="s")
    accepted, rejects = judge([{"t": 1_600_000_000}, {"t": -1}, {"t": None}], counted)
    assert accepted.select("_ts", "t").rows() == [(1_600_000_000_000, 1_600_000_000)]
    assert [reason for _, reason in rejects] == ["event_time_out_of_range", "event_time_missing"]


def test_a_delete_says_its_time_in_the_unit_of_the_column_or_in_milliseconds() -> None:
    table = relation({"k": "string", "t": "bigint"}, key=("k",), kind="table", event_time="t", event_time_unit="s")
    deletes = [{"$op": "delete", "k": "a", "t": 5}, {"$op": "delete", "k": "a", "$event_time_ms": 6}]
    assert judge(deletes, table)[0]["_ts"].to_list() == [5_000, 6]


def test_a_time_that_is_far_off_is_refused_with_the_unit_it_was_read_in() -> None:
    raw, _ = parse_records(b'[{"t": 1748772000000000}, {"t": 1748772000000}]', JSON, EVENTS)
    _, rejects = canonicalise(raw, EVENTS, NOW_MS)
    assert rejects["reason"].to_list() == ["event_time_out_of_range", "future_event_time"]
    assert all("column 't' is read as ms since 1970 (`event_time_unit`)" in detail for detail in rejects["detail"])


def test_without_an_event_time_column_the_arrival_counts() -> None:
    accepted, _ = judge([{"k": "a"}, {"k": "b", "$event_time_ms": 7}], relation({"k": "string"}))
    assert accepted["_ts"].to_list() == [NOW_MS, 7]


def test_a_delete_takes_its_time_from_column_then_control_field_and_never_from_the_clock() -> None:
    deletes = [{"$op": "delete", "k": "a", "t": 5}, {"$op": "delete", "k": "a", "$event_time_ms": 6}, {"$op": "delete", "k": "a"}]
    accepted, rejects = judge(deletes)
    assert [reason for _, reason in rejects] == ["event_time_missing"], "now would be far ahead of the table's own time"
    assert accepted.select("_ts", "_op").rows() == [(5, 1), (6, 1)]


def test_a_delete_without_any_time_is_refused_in_files_and_loses_its_values() -> None:
    raw, _ = parse_records(
        json.dumps([{"$op": "delete", "k": "a"}, {"$op": "delete", "k": "a", "t": 1, "x": 2}]).encode(), JSON, EVENTS
    )
    accepted, rejects = canonicalise(raw, EVENTS, NOW_MS, TYPED_FILE)
    assert rejects["reason"].to_list() == ["event_time_missing"]
    assert accepted.select("k", "t", "x").rows() == [("a", 1, None)]


def test_another_relations_record_in_a_shared_feed_is_no_reject() -> None:
    lines = b'{"kind":"bid","t":1,"price":5}\n{"kind":"ask","price":"high"}\n{"kind":"bid","t":2,"price":"high"}\n'
    bids = relation({"kind": "string", "t": "bigint", "price": "bigint"}, event_time="t", where="kind = 'bid'")
    member = compile_scalar("kind = 'bid'", bids.columns).expr
    raw, malformed, _ = parse_lines(lines, bids, "ignore", member)
    accepted, refused = canonicalise(raw, bids, NOW_MS, TYPED_FILE, member)
    assert accepted["price"].to_list() == [5]
    assert pl.concat([malformed, refused]).select("offset", "reason").rows() == [(2, "wrong_type")]


def test_lines_whose_bounds_are_known_are_judged_alike() -> None:
    lines = [json.dumps({"k": "x", "t": number}).encode() for number in range(700)]
    lines[600], lines[10] = b'{"k": 1, "t": }', b""
    chunk = b"\n".join(lines)
    raw, rejects, starts = parse_lines(chunk, EVENTS, "ignore")
    again, same, places = parse_lines(chunk, EVENTS, "ignore", bounds=line_bounds(chunk))
    assert raw["_offset"].to_list() == [number for number in range(699) if number != 599]
    assert (rejects["offset"].to_list(), same["offset"].to_list()) == ([599], [599])
    assert raw.equals(again)
    assert starts.tolist() == places.tolist()


def test_unknown_columns_of_files_are_ignored() -> None:
    raw, rejects, _ = parse_lines(b'{"k":"a","t":1,"zz":[1]}', EVENTS, "ignore")
    assert (raw["k"].to_list(), rejects.height) == (["a"], 0)


@pytest.mark.parametrize(
    "body", [b"[{]", b"", b'[{"k": 1}', b"5", b'"x"', b"[1] 2", b"\xff", b"[" * 100_000, '[{"k": "é"}]'.encode("utf-16")]
)
def test_a_body_that_is_no_json_is_malformed_as_a_whole(body: bytes) -> None:
    with pytest.raises(BodyMalformed):
        parse_records(body, JSON, EVENTS)


def test_the_place_of_a_syntax_error_is_named() -> None:
    with pytest.raises(BodyMalformed, match="line 1, column 14") as caught:
        parse_records(b'[{"k": "a"}, x]', JSON, EVENTS)
    assert caught.value.position == 13


def test_a_malformed_line_is_refused_and_empty_lines_do_not_count() -> None:
    body = b'\xef\xbb\xbf{"t":1}\r\n\r\n\n{"t":\n{"t":2}{"t":3}\n  \n{"t":4,"k":"\xff"}\n{"t":5}'
    raw, rejects = parse_records(body, NDJSON, EVENTS)
    assert raw["t"].to_list() == [1, 5]
    assert rejects["reason"].to_list() == ["malformed_json"] * 3


def test_arrow_bodies_are_judged_like_json() -> None:
    table = pa.table(
        {
            "k": ["a", "b", "c", "d"],
            "t": pa.array([1, 2, 3, 4], pa.int32()),
            "n": [1.0, 1.5, None, 2.0],
            "zz": [None, None, 1, None],
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    raw, malformed = parse_records(sink.getvalue().to_pybytes(), ARROW, EVENTS)
    accepted, refused = canonicalise(raw, EVENTS, NOW_MS)
    assert accepted.select("_offset", "k", "n").rows() == [(0, "a", 1), (3, "d", 2)]
    assert pl.concat([malformed, refused]).sort("offset").select("offset", "reason").rows() == [
        (1, "wrong_type"),
        (2, "unknown_column"),
    ]
    with pytest.raises(BodyMalformed):
        parse_records(b"not arrow", ARROW, EVENTS)


@pytest.mark.parametrize("media_type", [JSON, NDJSON, ARROW])
def test_a_column_whose_letters_have_another_case_is_named(media_type: str) -> None:
    of = relation({"ITEM": "string", "T": "bigint"}, event_time="T")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"item": pa.string()})) as writer:
        writer.write_table(pa.table({"item": ["tea"]}))
    body = {JSON: b'[{"item": "tea"}]', NDJSON: b'{"item": "tea"}', ARROW: sink.getvalue().to_pybytes()}[media_type]
    _, rejects = parse_records(body, media_type, of)
    assert rejects["detail"].to_list() == [f"column 'item' is not declared; {of.name} has ITEM, T; did you mean ITEM?"]


def test_a_value_of_ten_megabytes_is_a_value() -> None:
    big = "x" * 10_000_000
    wide = relation({"s": "string", "t": "bigint"}, event_time="t")
    for media in (JSON, NDJSON):
        accepted, rejects = judge([{"s": big, "t": 1}] * 2, wide, media)
        assert rejects == []
        assert accepted["s"].to_list() == [big, big]


def test_excerpts_and_details_are_bounded_and_storable() -> None:
    _, rejects = parse_records(json.dumps([{"k": 5, "x": "y" * 100_000 + "\x00\ud800"}]).encode(), JSON, EVENTS)
    assert len(rejects.item(0, "excerpt")) <= 1024
    assert "\x00" not in rejects.item(0, "excerpt") + rejects.item(0, "detail")


def test_stop_on_bad_record_names_the_record() -> None:
    strict = relation({"t": "bigint"}, event_time="t", is_stop_on_bad_record=True)
    _, rejects = canonicalise(pl.DataFrame({"t": [1, None]}, schema={"t": pl.Int64}), strict, NOW_MS)
    with pytest.raises(DataInvalid, match="offset 1 was refused as event_time_missing"):
        stop_on_rejects(rejects, strict)


def test_text_sources_may_write_any_scalar_as_text() -> None:
    raw = pl.DataFrame({"k": ["a", " b"], "t": ["1", " 2 "], "x": ["1.5", ""], "b": ["TRUE", "false"], "i": ["7", None]})
    accepted, rejects = canonicalise(raw, EVENTS, NOW_MS, SourceKind(is_text=True))
    assert rejects.height == 0
    assert accepted.select("k", "t", "x", "b", "i").rows() == [("a", 1, 1.5, True, 7), (" b", 2, None, False, None)]


VALUES: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "k": lambda: st.one_of(st.none(), st.text(max_size=5), st.integers(0, 3)),
    "t": lambda: st.one_of(st.integers(-1, 5), st.sampled_from(["4", "x", 2.0, 2.5])),
    "x": lambda: st.one_of(st.none(), st.floats(), st.integers(-(2**70), 2**70), st.booleans()),
    "n": lambda: st.one_of(st.integers(-(2**64), 2**64), st.sampled_from(["1", "-9223372036854775808", "1.0", 3.0])),
    "d": lambda: st.one_of(st.decimals(-100, 100, places=2).map(str), st.sampled_from([1.25, 1.005, 3, "1e3", "7."])),
    "zz": lambda: st.just(1),
}
RECORDS = st.fixed_dictionaries({}, optional={name: make() for name, make in VALUES.items()})


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(RECORDS, max_size=6), st.integers(0, 40))
def test_arrays_single_lines_and_whole_chunks_are_judged_alike(records: list[dict[str, Any]], padding: int) -> None:
    padded = [{"t": 1, "k": "a", "n": 5}] * padding + records
    expected, reasons = judge(padded)
    accepted, line_reasons = judge(padded, media_type=NDJSON)
    assert line_reasons == reasons
    assert accepted.equals(expected)


def test_instants_beyond_any_calendar_are_refused_and_shown() -> None:
    stamped = relation({"t": "timestamp", "at": "timestamp"}, event_time="t", max_future_skew_ms=None)
    far = 9_000_000_000_000_000
    accepted, rejects = judge([{"t": far}, {"t": 1, "at": -far}, {"t": 1, "at": 0}], stamped)
    assert rejects == [(0, "event_time_out_of_range"), (1, "wrong_type")]
    assert accepted.height == 1


def test_nested_values_of_a_log_that_no_column_can_hold_are_refused_when_they_are_read() -> None:
    declared = relation({"a": "array<double>", "m": "map<string,timestamp>"})
    raw = pl.DataFrame(
        {
            "_ts": [1, 2, 3],
            "_op": [0, 0, 0],
            "a": [[1.0], [2.0], None],
            "m": [None, [{"key": "k", "value": -(2**62)}], [{"key": "k", "value": 2**62}]],
        },
        schema_overrides={"_op": pl.Int8, **declared.columns.polars()},
    )
    accepted, rejects = canonicalise(raw, declared, NOW_MS, LOGGED)
    assert accepted["a"].to_list() == [[1.0]]
    assert rejects.select("offset", "reason").rows() == [(1, "wrong_type"), (2, "wrong_type")]


def test_what_a_query_wrote_may_have_nan_and_infinity_at_any_depth() -> None:
    declared = relation({"x": "double", "a": "array<double>"})
    raw = pl.DataFrame(
        {"_ts": [1, 2], "_op": [0, 0], "x": [float("inf"), 1.0], "a": [[1.0], [float("-inf"), 2.0]]},
        schema_overrides={"_op": pl.Int8, **declared.columns.polars()},
    )
    accepted, rejects = canonicalise(raw, declared, NOW_MS, LOGGED)
    assert accepted.select("x", "a").rows() == raw.select("x", "a").rows()
    assert rejects.is_empty()


@pytest.mark.parametrize("source", [POSTED, TYPED_FILE])
def test_a_record_with_more_than_sixteen_mebibytes_is_refused_and_the_others_are_not(source: SourceKind) -> None:
    of = relation({"k": "string", "a": "string", "b": "array<string>"}, key=("k",))
    half = "x" * (MAX_RECORD_BYTES // 2)
    raw = pl.DataFrame({"k": ["1", "2", "3"], "a": [half, half, None], "b": [[], [half], [half]]})
    accepted, rejects = canonicalise(raw.with_columns(pl.Series("_ts", [0, 0, 0])), of, NOW_MS, source)
    assert accepted["k"].to_list() == ["1", "3"]
    assert rejects.select("offset", "reason").rows() == [(1, "record_too_long")]
    assert "16,777,216 bytes" in rejects["detail"][0]


def test_a_long_record_that_was_appended_before_there_was_a_bound_still_counts() -> None:
    of = relation({"k": "string"})
    raw = pl.DataFrame({"k": ["x" * (MAX_RECORD_BYTES + 1)], "_ts": [0], "_op": pl.Series([0], dtype=pl.Int8), "_offset": [7]})
    assert canonicalise(raw, of, NOW_MS, LOGGED)[0]["_offset"].to_list() == [7]


def test_an_op_of_bytes_that_are_no_text_refuses_its_record_alone() -> None:
    raw = pl.DataFrame({"t": [1, 2, 3, 4], "$op": [b"delete", b"\xff", None, b"upsert"]})
    accepted, rejects = canonicalise(raw, EVENTS, NOW_MS, TYPED_FILE)
    assert accepted.select("_offset", "_op").rows() == [(0, 1), (2, 0), (3, 0)]
    assert rejects.select("offset", "reason").rows() == [(1, "wrong_type")]

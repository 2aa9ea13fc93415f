"""What becomes of a JSON record does not depend on those beside it: alone it is read by ``json.loads``, among many by Arrow or by its layout."""

from __future__ import annotations

from typing import Any

import pytest

from engine.formats.json.json_layout import Unknown
from engine.formats.json.json_records import FEW_ALIKE, FEW_LINES, PIECE_LINES, parse_lines
from engine.plan.model import RelationSchema
from engine.records.canonical import TYPED_FILE, canonicalise
from tests.unit.records.relations import NOW_MS, relation

GOOD = {
    "boolean": "true", "int": "1", "bigint": "1", "double": "1.5", "string": '"s"', "timestamp": '"2020-01-01T00:00:00Z"',
    "date": '"2020-01-01"', "time": '"12:00:00"', "decimal(10,2)": "1.25", "bytes": '"YQ=="',
}  # fmt: skip
VALUES = [
    "null", "0", "-5", "1.0", "1.5", "1e3", "-0", "-0.0", "9223372036854775807", "9223372036854775808", "2147483648", "99999999",
    "100000000", "1e400", "1" + "0" * 400, "true", '"x"', '""', '"5"', '"1.5"', '"true"', '"NaN"', "NaN", "Infinity", "[]", "{}",
    '"\\u00e9"', '"\\ud800"', '"\\u0000"', '"2020-01-01"', '"2020-01-01T00:00:00"', "1700000000000", "1700000000000.5",
    "123456789012345678901234567890", "1.23456789012345678901", "01", "+1", ".5", "5.", '"é"', '"a\\nb"',
]  # fmt: skip
SHAPES = [
    '{"k":"a","v":%s}', '{"v":%s}', '{"v":1,"v":%s}', '{"k":"a","\\u0076":%s}', ' {"k":"a","v":%s} ', '{"k":"a","v":%s,"$op":"delete"}',
    '{"k":"a","v":%s,"zz":[1]}', '{"k":"a","v":%s,"zz":[{"x":NaN}]}', '{"k":"a","v":%s,"zz":"x:NaN"}',
]  # fmt: skip
OTHERS = [
    "null",
    "[]",
    "{}",
    '{"k":1}',
    '{"k":"a"} {"k":"b"}',
    '{"k":"a",}',
    "{'k':1}",
    '{"$op":5}',
    '{"$op":null}',
    '{"$event_time_ms":5}',
]


def judged(lines: list[bytes], declared: RelationSchema, place: int, unknown: Unknown = "ignore") -> Any:
    """Return what the record in that place becomes: its values, or the reason why it is refused."""
    raw, rejects, _ = parse_lines(b"\n".join(lines) + b"\n", declared, unknown)
    found = dict(rejects.select("offset", "reason").iter_rows())
    if raw.height:
        accepted, refused = canonicalise(raw, declared, NOW_MS, TYPED_FILE)
        found |= dict(refused.select("offset", "reason").iter_rows())
        found |= {row[0]: repr(row[1:]) for row in accepted.select("_offset", "_op", "k", "v").iter_rows()}
    return found[place]


@pytest.mark.parametrize("kind", GOOD)
def test_a_record_among_many_is_judged_as_it_is_alone(kind: str) -> None:
    declared = relation({"k": "string", "v": kind})
    fine = [b'{"k":"b","v":%s}' % GOOD[kind].encode()] * (PIECE_LINES + FEW_LINES)
    for text in [shape % value for shape in SHAPES for value in VALUES] + OTHERS:
        line = text.encode()
        alone = judged([line], declared, 0)
        assert judged([*fine[: FEW_LINES + 1], line], declared, FEW_LINES + 1) == alone, text
        if text.startswith('{"k":"a","v":'):  # as the others do
            assert judged([*fine[: FEW_ALIKE + 1], line], declared, FEW_ALIKE + 1) == alone, text
        assert judged([*fine, line], declared, len(fine)) == alone, text


@pytest.mark.parametrize("kind", GOOD)
def test_a_posted_record_is_judged_beside_flat_ones_as_beside_what_is_read_line_by_line(kind: str) -> None:
    declared = relation({"k": "string", "v": kind})
    flat = b'{"k":"b","v":%s}' % GOOD[kind].encode()
    for text in [shape % value for shape in SHAPES for value in VALUES] + OTHERS:
        line = text.encode()
        assert judged([flat, line], declared, 1, "reject") == judged([b"null", line], declared, 1, "reject"), text


@pytest.mark.parametrize(
    "torn",
    [
        [b'{"a":1},{"a":2}', b'{"a":"x}', b'{y"}'],
        [b'{"a":1},{"a":2}', b'{"a":[{}', b"{}]}"],
        [b'{"a":1},{"a":2}', b'{"a":3', b'"b":4}'],
        [b'{"a":1}}', b'{"a":[{"b":2}', b'{{"a":3}'],
    ],
)
def test_few_lines_that_make_as_many_records_only_together_are_bad_lines(torn: list[bytes]) -> None:
    raw, rejects, _ = parse_lines(b"\n".join([*torn, b'{"a":7}']), relation({"a": "bigint"}), "reject")
    assert rejects["offset"].to_list() == [0, 1, 2]
    assert raw["a"].to_list() == [7]


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "[1, NaN]", '{"x": {"y": Infinity}}'])
@pytest.mark.parametrize("lines", [1, FEW_LINES + 1, FEW_ALIKE + 1])
def test_what_json_does_not_have_is_refused_also_in_a_field_that_nobody_asks_for(lines: int, value: str) -> None:
    declared = relation({"k": "string"})
    bad = b'{"k":"a","other":%s}' % value.encode()
    chunk = b"\n".join([b'{"k":"b","other":1.5}'] * lines + [bad, b'{"k":"c","other":1e400}', b'{"k":"d","other":"NaN"}'])
    raw, rejects, _ = parse_lines(chunk, declared, "ignore")
    assert rejects.select("offset", "reason").rows() == [(lines, "malformed_json")]
    assert "'other'" in rejects["detail"][0]
    assert raw["k"].to_list()[-2:] == ["c", "d"]
    assert raw.height == lines + 2


def test_a_whole_number_beyond_a_decimals_digits_is_refused_and_never_reaches_a_table() -> None:
    declared = relation({"k": "string", "v": "decimal(10,2)"})
    fine = [b'{"k":"b","v":99999999}'] * (FEW_LINES + 1)
    assert judged([*fine, b'{"v":100000000}'], declared, len(fine)) == "wrong_type"
    assert "99999999" in judged(fine, declared, 0)


def test_a_double_may_be_written_as_a_whole_number_of_any_size() -> None:
    declared = relation({"k": "string", "v": "double"})
    assert "9.223372036854776e+18" in judged([b'{"v":9223372036854775808}'], declared, 0)
    assert judged([b'{"v":1%s}' % (b"0" * 400)], declared, 0) == "not_finite"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_two_records_on_a_line_and_one_on_two_lines_are_three_bad_lines(end: bytes) -> None:
    torn = [b'{"a":1}{"a":2}', b'{"z":', b'{"x":1}}']
    lines = [*torn, *[b'{"a":%d}' % number for number in range(30)]]
    raw, rejects, _ = parse_lines(end.join(lines), relation({"a": "bigint"}), "ignore")
    assert rejects["offset"].to_list() == [0, 1, 2]
    assert raw["a"].to_list() == list(range(30))

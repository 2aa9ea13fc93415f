"""JSON with leniency: whatever records stand beside each other, each is read as it is alone, one by one."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from engine.expressions.types.types import Schema, parse_type
from engine.formats.json.json_rows import FEW_ROWS
from engine.formats.lenient.lenient_json import LenientJsonReader
from engine.formats.port import Read, SideConfig

Payload = str | bytes

TYPES: Final = {
    "ID": "bigint", "id": "int", "N": "int", "Text": "string", "STRASSE": "string", "RAW": "bytes", "REAL": "double", "PRICE": "decimal(9,3)",
    "FLAG": "boolean", "DAY": "date", "CLOCK": "time", "AT": "timestamp",
}  # fmt: skip

PLAIN: Final[dict[str, st.SearchStrategy[str]]] = {
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "string": st.text(st.characters(codec="utf-8"), max_size=14).map(lambda text: json.dumps(text, ensure_ascii=False)),
    "bytes": st.sampled_from(['""', '"AAE="', '"YWJj"']),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers(-(10**25), 10**25).map(str),
    "decimal": st.decimals(-999_999, 999_999, places=3).map(str) | st.integers(-999_999, 999_999).map(str),
    "boolean": st.sampled_from(["true", "false"]),
    "date": st.integers(-719_162, 2_932_896).map(str),
    "time": st.integers(0, 86_399_999).map(str),
    "timestamp": st.integers(-62_135_596_800_000, 253_402_300_799_999).map(str),
}

ODD: Final = st.sampled_from([
    "null", "true", "-0", "-0.0", "-0e1", "0", "1.0", "-7.9", "1e3", "1E+2", "1e999", "-1e999", "1e-400", "1e99999999999999999999",
    "1e-99999999999999999999", "0.1" + "0" * 60, "9" * 30, "9" * 5_000, "2147483648", "-2147483649", "9223372036854775808", "2932897", "-719163",
    "86400000", "-1", "253402300800000", "-62135596800001", "9.99e5", "1234567.001", "0.0001", "000", "01", "1.", ".5", "+1", "NaN", "Infinity",
    "-Infinity", "nul", "True", "", '"12"', '" 12"', '"+12"', '"1.5"', '"1e2"', '"NaN"', '"1.5d"', '"x"', '"true"', '"YR=="', '"YQ="', '"YQ"',
    '"A"', '"Y Q=="', '"é"', '"2024-01-01"', '"2024-01-01T00:00:00Z"', r'"\u0041"', r'"\ud83d\ude00"', r'"\ud800"', r'"\udc00"', r'"\u0000"',
    r'"a\"b"', r'"\/"', r'"\x"', '"a\tb"', '"a\nb"', '"\x7f"', '"id"', '"ID"', '"', "[1]", "[]", "{}", '{"ID": 1}', '["a", null]',
    "[" * 400 + "]" * 400, "[" * 3_000 + "]" * 3_000, '[{"ID": 2}]', "[1", "{",
])  # fmt: skip

NAMES: Final = [
    *TYPES, "Id", "iD", "n", "TEXT", "straße", "strasse", "STRAſSE", "raw", "real", "Real", "price", "flag", "day", "clock", "at", "other",
    "$op", "$event_time_ms", "", r"\u0049D", r"I\u0044", r"N\/", r"x\"y", "é",
]  # fmt: skip

BROKEN: Final[list[Payload]] = [
    b"", b" ", b"null", b"true", b"1", b'"x"', b"[]", b"{}", b"{", b"}", b"{}{}", b"{} {}", b"{}\n{}", b" {}", b"{} ", b"\n{}", b"{}\r",
    b"{}\n", b"\xef\xbb\xbf{}", b'\xef\xbb\xbf{"ID":1}', b"\xff", b'{"Text":"\xff"}', b'{"Text":"\xed\xa0\x80"}', b'{"Text":"\xc3"}', b"{\x00}",
    b'{"N":1,}', b'{"N":1 "ID":2}', b'{"N":1}x', b'{"N" 1}', b"{'N':1}", b"{N:1}", b'{"N":1,"N":2}', b'{"N":1}/**/', '{"N":1}'.encode("utf-16"),
    '{"N":1}'.encode("utf-32"), '{"N":1}'.encode("utf-16-le"), b'{"N":1', b'"N":1}', b'{"ID":NaN}', b'{"other":Infinity}', b"\x00",
    b"{\n\"N\": 5\n}",
]  # fmt: skip


def kind_of(name: str) -> str:
    declared = TYPES.get(name) or next((text for column, text in TYPES.items() if name.upper() == column), "bigint")
    return declared.partition("(")[0]


@st.composite
def templates(draw: st.DrawFn) -> tuple[list[str], str, str]:
    """Draw what a program's records have in common: names and blanks."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=7, unique=draw(st.integers(0, 4)) > 0))
    return names, draw(st.sampled_from(["", " ", "\t", "                         "])), draw(st.sampled_from(["", " "]))


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Draw records of a few programs: plain ones, and some that are odd, damaged or no records at all."""
    programs = draw(st.lists(templates(), min_size=1, max_size=3))
    drawn: list[bytes] = []
    for names, before, behind in programs:
        for _ in range(draw(st.integers(1, 5))):
            oddness = draw(st.sampled_from([0, 0, 0, 1, 2]))
            at = draw(st.integers(0, len(names) - 1))
            values = [draw(ODD if oddness and place == at else PLAIN[kind_of(name)]) for place, name in enumerate(names)]
            text = "{" + ",".join(f'{before}"{name}":{behind}{value}' for name, value in zip(names, values, strict=True)) + "}"
            payload = text.encode("utf-8", "surrogatepass")
            drawn.append(damaged(draw, payload) if oddness == 2 else payload)
    drawn += draw(st.lists(st.sampled_from(BROKEN), max_size=3))
    if draw(st.booleans()):
        return [payload for payload in drawn for _ in range(140)]  # pieces of one kind, which Arrow may take
    mixed = drawn * (4 * FEW_ROWS // len(drawn) + 1)
    random.Random(draw(st.integers(0, 9))).shuffle(mixed)
    return mixed


BYTES: Final = [bytes([byte]) for byte in b'"\\{}[]:,-+.eE0123456789 \t\r\n\x00\x1f\x7f\x80\xc3\xa4\xff$tfnu']


def damaged(draw: st.DrawFn, payload: bytes) -> bytes:
    """Put a byte in, or take some out."""
    at = draw(st.integers(0, len(payload)))
    if draw(st.booleans()):
        return payload[:at] + draw(st.sampled_from(BYTES)) + payload[at:]
    return payload[:at] + payload[at + draw(st.integers(1, 4)) :]


def config(names: list[str], **more: Any) -> SideConfig:
    return SideConfig("json_lenient", Schema(tuple((name, parse_type(TYPES[name])) for name in names)), **more)


def assert_read_alike(of: SideConfig, payloads: list[bytes]) -> None:
    reader = LenientJsonReader(of)
    series = pl.Series(payloads, dtype=pl.Binary)
    found, expected = reader.read(series), reader.read_one_by_one(series)
    assert_frame_equal(found.raw, expected.raw, check_exact=True)
    assert found.raw.select(pl.col(pl.Float64).reinterpret(signed=True)).equals(
        expected.raw.select(pl.col(pl.Float64).reinterpret(signed=True))
    )  # a zero's sign too
    assert_frame_equal(found.rejects, expected.rejects)


@settings(max_examples=60)
@given(batches(), st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True))
def test_a_batch_is_read_as_its_records_are_one_by_one(payloads: list[bytes], names: list[str]) -> None:
    assert_read_alike(config(names), payloads)


class PlainReader(LenientJsonReader):
    """Reads no record by itself."""

    def read_one_by_one(self, payloads: pl.Series) -> Read:
        raise AssertionError(f"{len(payloads)} records are read one by one, the first of them {payloads[0]!r}")


@pytest.mark.parametrize(
    "kinds",
    [
        ['{"ID":%d,"Text":"x","REAL":1.5}'],
        ['{"id":%d,"text":"x","real":1e3,"other":"y"}', '{"id":%d,"text":null,"real":2}', '{ "ID": %d }'],
        [r'{"ID":%d,"Text":"a \"b\"\n","REAL":1.5}', r'{"ID":%d,"Text":"\u00e9"}', '{"ID":%d,"REAL":2}'],
        ['{"id":%d,"Text":"x","other":{"a":[1,{"b":null}]}}', '{"id":%d,"other":[]}', '{"other":{},"real":0.5,"id":%d}'],
        ['{"id":%d,"DAY":1,"CLOCK":2,"AT":3,"RAW":"AAE=","PRICE":1.5,"FLAG":true,"N":5}'],
    ],
)
def test_records_that_need_no_leniency_are_not_read_one_by_one(kinds: list[str]) -> None:
    of = config([name for name in TYPES if name not in ("id", "STRASSE")])
    payloads = [(kinds[number % len(kinds)] % number).encode() for number in range(300)]
    found = PlainReader(of).read(pl.Series(payloads, dtype=pl.Binary))
    assert found.raw.get_column("ID").to_list() == list(range(300))
    assert_read_alike(of, payloads)


@pytest.mark.parametrize(
    "text",
    [
        '{"other":NaN}', '{"other":[1, -Infinity]}', '{"other":{"a":Inf}}', '{"other":' + "9" * 5_000 + "}", '{"other":1e-99999999999999999999}',
        '{"other":' + "[" * 3_000 + "]" * 3_000 + "}", r'{"\u0049d":1,"Text":"\n"}', '{"id":1,"ID":2,"other":[]}', '{"REAL":-0,"other":[]}',
        '{"DAY":2932897,"other":[]}', '{"CLOCK":86400000,"other":[]}', '{"AT":253402300800000,"other":[]}', '{"PRICE":1234567,"other":[]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [["ID", "Text"], ["ID", "REAL", "DAY", "CLOCK", "AT"], ["Text", "PRICE"]])
def test_what_a_strict_reader_takes_for_something_else_is_read_as_alone(text: str, names: list[str]) -> None:
    assert_read_alike(config(names), [text.encode()] * (2 * FEW_ROWS))

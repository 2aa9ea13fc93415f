"""Keys and values as Kafka's own serialisers write them; what each format can hold."""

import polars as pl
import pytest

from engine.definition.record_formats import RECORD_FORMATS
from engine.expressions.types.types import Schema, parse_type
from engine.formats.lenient.json_format import Layout
from tests.conformance.ksqldb.codecs import CODECS

KAFKA = CODECS["KAFKA"]


def of(type_text: str) -> Layout:
    return Layout(Schema((("V", parse_type(type_text)),)), is_wrapped=False)


@pytest.mark.parametrize(
    ("type_text", "value", "payload"),
    [
        ("int", -2, b"\xff\xff\xff\xfe"),
        ("bigint", 1, b"\0\0\0\0\0\0\0\1"),
        ("double", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        ("string", "é", "é".encode()),
        ("bytes", b"\0\1", b"\0\1"),
    ],
)
def test_a_value_is_written_and_read_again(type_text: str, value: object, payload: bytes) -> None:
    frame = pl.DataFrame({"V": pl.Series([value, None], dtype=parse_type(type_text).polars)})
    assert KAFKA.encode(frame, of(type_text)) == [payload, None]
    found = KAFKA.decode([payload, None], of(type_text))
    assert (found.columns["V"].to_list(), found.is_absent, dict(found.faults)) == ([value, None], [False, True], {})


@pytest.mark.parametrize(("type_text", "payload"), [("int", b"\1"), ("double", b"1.0"), ("string", b"\xff")])
def test_bytes_of_another_type_are_a_fault(type_text: str, payload: bytes) -> None:
    found = KAFKA.decode([payload], of(type_text))
    assert (found.columns["V"].to_list(), list(found.faults)) == ([None], [0])


def test_every_format_that_can_be_read_is_one_that_is_known() -> None:
    assert all(codec.format is RECORD_FORMATS[name] for name, codec in CODECS.items())


@pytest.mark.parametrize(
    ("name", "type_text", "is_key", "wanted"),
    [
        ("JSON", "map<string,int>", False, None),
        ("JSON", "struct<a:map<string,int>>", True, "map<string,int>"),
        ("DELIMITED", "array<int>", False, "array<int>"),
        ("DELIMITED", "decimal(5,2)", True, None),
        ("KAFKA", "boolean", False, "boolean"),
        ("KAFKA", "bytes", True, None),
    ],
)
def test_a_format_says_which_type_it_cannot_hold(name: str, type_text: str, is_key: bool, wanted: str | None) -> None:
    found = RECORD_FORMATS[name].unholdable(parse_type(type_text), is_key=is_key)
    assert found == (None if wanted is None else parse_type(wanted))

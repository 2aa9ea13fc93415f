"""Keys and values as JSON, read with leniency and written exactly."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal

import polars as pl
import pytest

from engine.expressions.library.json.json_values import of_double
from engine.expressions.types.types import Schema, parse_type
from engine.formats.lenient.json_format import Decoded, Layout
from engine.formats.lenient.lenient import json_text
from tests.conformance.ksqldb.codecs import CODECS

JSON = CODECS["JSON"]


def layout(is_wrapped: bool = True, **columns: str) -> Layout:
    return Layout(Schema(tuple((name, parse_type(text)) for name, text in columns.items())), is_wrapped)


def decoded(text: str | None, of: Layout) -> Decoded:
    return JSON.decode([None if text is None else text.encode()], of)


def value_of(text: str, type_text: str) -> object:
    """Read one value of a type; the text of a fault where it cannot be read."""
    found = decoded('{"V":' + text + "}", layout(V=type_text))
    return found.faults.get(0) or found.columns["V"].to_list()[0]


@pytest.mark.parametrize(
    ("text", "type_text", "wanted"),
    [
        ("7.9", "int", 7),
        ("-7.9", "int", -7),
        ('"12"', "int", 12),
        ("2147483648", "int", "column 'V': 2147483648 does not fit into int"),
        ("true", "int", "column 'V': true is no int"),
        ('" 1"', "bigint", "column 'V': \" 1\" is no bigint"),
        ("1e3", "bigint", 1000),
        ("3", "double", 3.0),
        ('"1.5e2"', "double", 150.0),
        ("1e999", "double", float("inf")),
        ('"x"', "double", "column 'V': \"x\" is no double"),
        ("1.50", "string", "1.50"),
        ("false", "string", "false"),
        ('{"b": 1.0, "a": [null]}', "string", '{"b":1.0,"a":[null]}'),
        ('[1, null, "x"]', "string", "[1, null, x]"),
        ("1.5", "decimal(4,2)", Decimal("1.50")),
        ('"1.5"', "decimal(4,2)", Decimal("1.50")),
        ("1.505", "decimal(4,2)", "column 'V': 1.505 does not fit into decimal(4,2) without rounding"),
        ("123", "decimal(4,2)", "column 'V': 123 has too many digits for decimal(4,2)"),
        ('"AAE="', "bytes", b"\x00\x01"),
        ('"A"', "bytes", "column 'V': \"A\" is no base64"),
        ("1", "date", date(1970, 1, 2)),
        ('"2"', "date", date(1970, 1, 3)),
        ("61000", "time", time(0, 1, 1)),
        ("86400000", "time", "column 'V': a time is 0 to 86399999 ms of the day, not 86400000"),
        ("-1", "timestamp", datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
        ("1", "boolean", "column 'V': 1 is no boolean"),
        ("[1, 2.9, null]", "array<int>", [1, 2, None]),
        ("{}", "array<int>", "column 'V': {} is no array<int>"),
        ('{"k": "7"}', "map<string,bigint>", [{"key": "k", "value": 7}]),
        ('{"b": 1, "a": 2}', "map<string,int>", [{"key": "a", "value": 2}, {"key": "b", "value": 1}]),
        ('{"x": 1, "Y": 2, "Z": 3}', "struct<X:int,Y:string>", {"X": 1, "Y": "2"}),
        ('{"x": 1}', "struct<x:int,y:string>", {"x": 1, "y": None}),
        ('"\\ud800"', "string", "column 'V': half of a surrogate pair is no text"),
    ],
)
def test_a_value_is_brought_to_its_type_or_said_to_be_none(text: str, type_text: str, wanted: object) -> None:
    assert value_of(text, type_text) == wanted


def test_fields_are_found_in_any_letters_and_unknown_ones_are_left_out() -> None:
    found = decoded('{"name": "a", "Extra": 1}', layout(NAME="string", SIZE="int"))
    assert {name: column.to_list() for name, column in found.columns.items()} == {"NAME": ["a"], "SIZE": [None]}


def test_a_field_in_its_own_letters_comes_before_others() -> None:
    assert decoded('{"id": 1, "ID": 2, "Id": 3}', layout(ID="int")).columns["ID"].to_list() == [2]


def test_a_name_in_small_letters_is_found_as_it_is_alone() -> None:
    assert decoded('{"ID": 1}', layout(id="int")).columns["id"].to_list() == [None]


@pytest.mark.parametrize("text", [None, "null"])
def test_no_record_and_null_are_absent(text: str | None) -> None:
    found = decoded(text, layout(V="int"))
    assert (found.is_absent, found.columns["V"].to_list(), dict(found.faults)) == ([True], [None], {})


def test_a_single_value_without_an_object_may_be_null_and_there() -> None:
    bare = layout(is_wrapped=False, V="int")
    assert [decoded(text, bare).is_absent for text in (None, "null", "3")] == [[True], [False], [False]]
    assert decoded("3", bare).columns["V"].to_list() == [3]


@pytest.mark.parametrize("text", ["", "{", "[1]", "NaN", "7"])
def test_what_is_no_object_is_a_fault_of_its_record_alone(text: str) -> None:
    found = JSON.decode([b'{"V": 1}', text.encode(), b'{"V": 2}'], layout(V="int"))
    assert found.columns["V"].to_list() == [1, None, 2]
    assert list(found.faults) == [1]


def test_bytes_that_are_no_text_are_a_fault() -> None:
    assert list(JSON.decode([b"\xff{}"], layout(V="int")).faults) == [0]


def test_rows_are_written_with_every_column_and_exact_digits() -> None:
    of = layout(A="int", B="decimal(5,2)", C="double", D="bytes", E="timestamp", F="map<string,date>", G="struct<x:time>")
    row = {
        "A": [None], "B": [Decimal("1.5")], "C": [1e10], "D": [b"\x00\x01"], "E": [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)],
        "F": [[{"key": "k", "value": date(1970, 1, 3)}]], "G": [{"x": time(0, 0, 1)}],
    }  # fmt: skip
    (payload,) = JSON.encode(pl.DataFrame(row, schema=of.columns.polars()), of)
    assert payload == b'{"A":null,"B":1.50,"C":1.0E10,"D":"AAE=","E":1000,"F":{"k":2},"G":{"x":1000}}'


def test_a_single_value_is_written_with_or_without_its_object() -> None:
    frame = pl.DataFrame({"V": ["é", None]})
    assert JSON.encode(frame, layout(V="string")) == ['{"V":"é"}'.encode(), b'{"V":null}']
    assert JSON.encode(frame, layout(is_wrapped=False, V="string")) == ['"é"'.encode(), None]


def test_what_is_no_number_is_written_as_a_text() -> None:
    frame = pl.DataFrame({"V": [float("nan"), float("-inf")]})
    assert JSON.encode(frame, layout(V="double")) == [b'{"V":"NaN"}', b'{"V":"-Infinity"}']
    assert json_text([float("inf")]) == '["Infinity"]'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (2e-5, "2.0E-5"),
        (-12345678.9, "-1.23456789E7"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert of_double(value) == text
    assert float(json.loads(text)) == value


@pytest.mark.parametrize("number", ["1e99999999999999999999", "-1e-99999999999999999999"])
def test_an_exponent_that_no_decimal_has_is_a_fault_of_its_record(number: str) -> None:
    of = layout(A="string")
    found = JSON.decode([b'{"A":"x","other":' + number.encode() + b"}", b'{"A":"y"}'], of)
    assert list(found.faults) == [0]
    assert found.columns["A"].to_list() == [None, "y"]


def test_a_number_with_very_many_zeros_is_not_written_out() -> None:
    found = JSON.decode([b'{"A":{"a":[1e999999,-1e-999999]},"B":1e999999}'], layout(A="string", B="boolean"))
    assert found.columns["A"].to_list() == ['{"a":[1E+999999,-1E-999999]}']
    assert found.faults == {0: "column 'B': 1E+999999 is no boolean"}
    assert json_text(Decimal("1e400")) == "1" + 400 * "0"

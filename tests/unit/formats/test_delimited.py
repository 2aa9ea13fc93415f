"""Keys and values as delimited text."""

from decimal import Decimal

import polars as pl
import pytest

from engine.definition.record_formats import delimiter_of
from engine.expressions.types.types import Schema, parse_type
from engine.formats.lenient.json_format import Layout
from tests.conformance.ksqldb.codecs import CODECS

DELIMITED = CODECS["DELIMITED"]
TWO = Layout(Schema((("A", parse_type("string")), ("B", parse_type("string")))), delimiter=",")


def read(text: str, delimiter: str = ",", **columns: str) -> list[object] | str:
    of = Layout(Schema(tuple((name, parse_type(each)) for name, each in columns.items())), delimiter=delimiter)
    found = DELIMITED.decode([text.encode()], of)
    return found.faults.get(0) or [column.to_list()[0] for column in found.columns.values()]


def test_values_are_read_by_their_types() -> None:
    columns = {"A": "int", "B": "decimal(5,2)", "C": "double", "D": "boolean", "E": "string"}
    assert read("7,1.5,2e1,TRUE,x y", **columns) == [7, Decimal("1.50"), 20.0, True, "x y"]


def test_an_empty_value_is_null() -> None:
    assert read(",", A="int", B="string") == [None, None]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('"a,b",c', ["a,b", "c"]),
        ('"say ""hi""",', ['say "hi"', None]),
        ('"two\nlines",x', ["two\nlines", "x"]),
        ("a,b\r\nc,d", ["a", "b"]),
        ("\n\na,b", ["a", "b"]),
        ("a\u2028b,c", ["a\u2028b", "c"]),
        ('a"b,c', ['a"b', "c"]),
    ],
)
def test_the_first_line_counts_and_quotes_hold_what_would_end_a_value(text: str, wanted: list[str]) -> None:
    assert read(text, A="string", B="string") == wanted


@pytest.mark.parametrize("text", ["", "a", "a,b,c", '"a,b', '"a"b,c'])
def test_another_number_of_values_and_open_quotes_are_faults(text: str) -> None:
    assert isinstance(read(text, A="string", B="string"), str)


def test_a_long_value_is_read() -> None:
    long = "x" * 200_000
    assert read(f"{long},b", A="string", B="string") == [long, "b"]


@pytest.mark.parametrize(("name", "character"), [("TAB", "\t"), ("SPACE", " "), ("|", "|")])
def test_a_delimiter_is_a_character_or_its_name(name: str, character: str) -> None:
    assert read(f"1{character}x", delimiter_of(name), A="int", B="string") == [1, "x"]


@pytest.mark.parametrize("name", ["", " ", "ab", "tab"])
def test_other_delimiters_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a delimiter is one character, or TAB or SPACE"):
        delimiter_of(name)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (("a", "b"), "a,b"),
        ((None, None), ","),
        (("", ""), '"",'),
        (("a,b", 'c"d'), '"a,b","c""d"'),
        (("two\nlines", "#x"), '"two\nlines","#x"'),
        ((" a", "b "), '" a","b "'),
        (("é", "é"), '"é",é'),
        (("-1", "-1"), '"-1",-1'),
    ],
)
def test_values_are_quoted_where_a_reader_needs_it(row: tuple[str | None, str | None], wanted: str) -> None:
    frame = pl.DataFrame({"A": [row[0]], "B": [row[1]]}, schema={"A": pl.String, "B": pl.String})
    (payload,) = DELIMITED.encode(frame, TWO)
    assert payload is not None
    assert payload.decode() == wanted
    if "" not in row:
        assert [column.to_list()[0] for column in DELIMITED.decode([payload], TWO).columns.values()] == list(row)


def test_numbers_and_times_are_written_as_java_does() -> None:
    of = Layout(
        Schema(
            (
                ("A", parse_type("double")),
                ("B", parse_type("decimal(4,2)")),
                ("C", parse_type("date")),
                ("D", parse_type("boolean")),
            )
        )
    )
    frame = pl.DataFrame({"A": [1e-5], "B": [Decimal("2.5")], "C": [3], "D": [True]}).cast(of.columns.polars())  # type: ignore[arg-type]
    assert DELIMITED.encode(frame, of) == [b"1.0E-5,2.50,3,true"]

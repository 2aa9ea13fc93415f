"""Where Polars' reader of JSON is believed, it gives what the exact reader gives: any text, odd numbers, escapes, equal names, garbage."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.library.by_value import Unfit, column_of
from engine.expressions.library.json import json_values
from engine.expressions.library.json.json_paths import quickly_extracted, quickly_validated
from engine.expressions.library.json.json_texts import _extracted, _is_json
from engine.expressions.library.json.json_values import of_column, written, written_as_json
from engine.expressions.types.types import parse_type
from tests.examples import examples

PATHS = ("$", "$.a", "$.a.b", "$.a[0]", "$[1]", "$.b.a[1].a", "$[0].b", "$.a.length", "$.0")
STEPS = {path: tuple(part for part in path[1:].replace("[", ".").replace("]", "").split(".") if part) for path in PATHS}

digits = st.text("0123456789", min_size=1, max_size=20)
odd_numbers = st.sampled_from(
    [
        "0", "-0", "0.0", "-0.0", "1.0", "2.50", "1e3", "1E-7", "1.5e300", "1e999", "0.1", "0.30000000000000004",
        "123456789012345678", "18446744073709551615", "18446744073709551616", "-9223372036854775808", "9007199254740993.0",
        "0.00001", "0.000001", "999999.999999999", "1234567.123456", "100.00", "01", "1.", ".5", "-1", "NaN", "Infinity",
    ]
)  # fmt: skip
numbers = odd_numbers | digits | st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), digits, digits)
pieces = st.sampled_from(
    [
        "a", "b", "null", "2.50", ", 2.50,", "é", "\U0001f375", "\\u00e9", "\\u001f", "\\ud83c\\udf75", "\\ud83c", "\\n",
        '\\"', "\\\\", "/", "\x01",
    ]
)  # fmt: skip
strings = st.lists(pieces, max_size=3).map(lambda parts: '"' + "".join(parts) + '"')
names = st.sampled_from(['"a"', '"b"', '"0"', '"\\u0061"', '"length"'])
blanks = st.sampled_from(["", "", "", " ", "\n", "\t"])
leaves = numbers | strings | st.sampled_from(["true", "false", "null", "nul", ""])


def _nested(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.builds(lambda items, blank: "[" + (blank + ",").join(items) + blank + "]", st.lists(inside, max_size=3), blanks)
    entries = st.lists(st.builds("{}:{}{}".format, names, blanks, inside), max_size=3)
    return arrays | st.builds(lambda items, blank: "{" + blank + ("," + blank).join(items) + "}", entries, blanks)


texts = st.builds(
    "{}{}{}".format, blanks, st.recursive(leaves, _nested, max_leaves=8), st.sampled_from(["", "", "", " ", " x", "x", "1"])
)


def _expected(text: str | None, path: str) -> Any:
    try:
        return None if text is None else _extracted(text, path)
    except Unfit:
        return Unfit


@settings(max_examples=examples(400))
@given(st.lists(texts | st.none(), min_size=1, max_size=12), st.sampled_from(PATHS))
def test_polars_is_believed_only_where_it_gives_the_same(given_texts: list[str | None], path: str) -> None:
    quick = quickly_extracted(STEPS[path])
    assert quick is not None
    values, is_sure = quick(pl.DataFrame([pl.Series("text", given_texts, dtype=pl.String)]))
    for text, value, sure in zip(given_texts, values, is_sure, strict=True):
        if sure:
            assert value == _expected(text, path), text


@settings(max_examples=examples(200))
@given(st.lists(texts | st.none(), min_size=1, max_size=12))
def test_what_polars_takes_for_json_is_json(given_texts: list[str | None]) -> None:
    values, is_sure = quickly_validated(pl.DataFrame([pl.Series("text", given_texts, dtype=pl.String)]))
    for text, value, sure in zip(given_texts, values, is_sure, strict=True):
        if sure:
            assert value == _is_json(text), text


def test_ordinary_texts_are_left_to_polars() -> None:
    quick = quickly_extracted(("a", "b"))
    assert quick is not None
    ordinary = ['{"a":{"b":2.5}}', '{"a":{"b":"x\\u00e9"}, "at":"2013-01-01T10:44:00Z"}', '{"a":{}}', '{"c":[1,2]}', None]
    _, is_sure = quick(pl.DataFrame([pl.Series("text", ordinary)]))
    assert is_sure.all()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("array<int>", [[1, None], None, []]),
        ("array<array<string>>", [[["a"], None], [], None, [[]]]),
        ("map<string,string>", [[{"key": "a", "value": None}], None, []]),
        ("struct<a:int,b:array<double>>", [{"a": 1, "b": [0.5]}, None, {"a": None, "b": None}]),
        ("array<struct<a:decimal(5,2),t:timestamp>>", [None, [None, {"a": None, "t": None}]]),
        ("string", ["a", None]),
    ],
)
def test_columns_of_nested_values_are_those_that_polars_makes(kind: str, values: list[Any]) -> None:
    dtype = parse_type(kind).polars
    for some in (values, values[:1], [None], []):
        made = column_of(some, dtype)
        assert made.dtype == dtype
        assert made.to_list() == pl.Series(some, dtype=dtype, strict=False).to_list()


WRITTEN = parse_type(
    "struct<t:string,n:int,b:boolean,a:array<array<string>>,m:map<string,bigint>,s:struct<z:array<boolean>,y:string>>"
)
scraps = st.text(st.sampled_from('ab"\\\n\x01\x1f\x7fé\U0001f375/'), max_size=4)
maps = st.dictionaries(scraps, st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3)
written_rows = st.fixed_dictionaries(
    {
        "t": st.none() | scraps,
        "n": st.none() | st.integers(-5, 5),
        "b": st.none() | st.booleans(),
        "a": st.none() | st.lists(st.none() | st.lists(st.none() | scraps, max_size=2), max_size=3),
        "m": st.none() | maps.map(lambda held: [{"key": key, "value": value} for key, value in held.items()]),
        "s": st.none() | st.fixed_dictionaries({"z": st.lists(st.none() | st.booleans(), max_size=2), "y": scraps}),
    }
)


@settings(max_examples=examples(200))
@given(st.lists(st.none() | written_rows, min_size=1, max_size=8))
def test_columns_are_written_as_their_values_are(rows: list[dict[str, Any] | None]) -> None:
    made = written_as_json(pl.col("x"), WRITTEN)
    frame = column_of(rows, WRITTEN.polars).to_frame("x")
    assert frame.select(made).to_series().to_list() == [of_column(row, WRITTEN) for row in frame["x"]]
    assert frame.clear().select(made).height == 0
    for value in (row for row in rows if row is not None):
        assert written(value, is_plain=False) == json_values._written(value, str)

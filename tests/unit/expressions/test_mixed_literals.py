"""Literals of any kind beside a value, and patterns that are computed: what ksqlDB's IN and LIKE take."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid

SCHEMA = Schema(
    tuple((name, parse_type(text)) for name, text in {
        "b": "boolean", "i": "int", "l": "bigint", "d": "double", "c": "decimal(6,2)", "s": "string", "p": "string", "t": "date",
    }.items())
)  # fmt: skip
ROWS = pl.DataFrame(
    {
        "b": [True, False, None], "i": [1, -2, None], "l": [4, 5, None], "d": [4.0, 5.1, None], "c": [Decimal("4"), Decimal("5.1"), None],
        "s": ["10.30", "a+b", None], "p": ["10_3%", "A+_", None], "t": [date(2020, 1, 1), date(2020, 1, 2), None],
    },
    schema=SCHEMA.polars(),
)  # fmt: skip


def computed(text: str) -> list[object]:
    return ROWS.select(compile_scalar(text, SCHEMA).expr).to_series().to_list()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("one_of(b, 'Y', 'tru')", [True, False, None]),
        ("one_of(b, 'no')", [False, True, None]),
        ("one_of(i, '-2', '2147483648')", [False, True, None]),
        ("one_of(l, '4.000', ' 7')", [True, False, None]),
        ("one_of(d, '5.1', '+4')", [True, True, None]),
        ("one_of(c, '5.10', '1e1')", [False, True, None]),
        ("one_of(s, '10.3', '10.30')", [True, False, None]),
        ("one_of(t, '2020-01-02')", [False, True, None]),
        ("one_of(NULL, '1')", [None, None, None]),
    ],
)
def test_texts_are_read_as_values_of_what_they_are_compared_with(text: str, wanted: list[object]) -> None:
    assert computed(text) == wanted


@pytest.mark.parametrize("text", ["one_of(i, 'x')", "one_of(i, 'true')", "one_of(b, '1')", "one_of(s, p)", "one_of(t, 'soon')"])
def test_a_text_that_is_no_value_of_the_type_is_refused(text: str) -> None:
    with pytest.raises(ExpressionInvalid):
        compile_scalar(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ARRAY[STRUCT(a := 1, b := i), STRUCT(b := l, c := TRUE), NULL][2]->b", [4, 5, None]),
        ("ARRAY[STRUCT(a := 1), STRUCT(c := i)][1]->c", [None, None, None]),
        ("ARRAY[ARRAY[STRUCT(a := 1)], ARRAY[STRUCT(c := i)]][2][1]->c", [1, -2, None]),
    ],
)
def test_an_array_holds_literals_of_its_type_and_structs_with_all_fields(text: str, wanted: list[object]) -> None:
    assert computed(text) == wanted


def test_structs_with_other_fields_meet_in_arrays_and_maps_alone() -> None:
    with pytest.raises(ExpressionInvalid):
        compile_scalar("STRUCT(a := 1) = STRUCT(b := 1)", SCHEMA)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s LIKE p ESCAPE ''", [True, False, None]),
        ("s ILIKE p ESCAPE ''", [True, True, None]),
        ("s LIKE s || '%' ESCAPE ''", [True, True, None]),
        ("s NOT LIKE p ESCAPE ''", [False, True, None]),
        ("s LIKE lpad('', 2000, '%') ESCAPE ''", [None, None, None]),
    ],
)
def test_a_computed_pattern_means_what_a_written_one_means(text: str, wanted: list[object]) -> None:
    assert computed(text) == wanted


def test_a_computed_pattern_has_no_escapes() -> None:
    with pytest.raises(ExpressionInvalid, match="write ESCAPE ''"):
        compile_scalar("s LIKE p", SCHEMA)

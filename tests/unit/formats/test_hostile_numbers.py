"""Numbers that nobody means: their refusal takes the time and the memory that reading them takes, in every reader and at every depth."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from engine.expressions.types.types import parse_type
from engine.formats.bodies.bodies import LINE_TYPES, parse_records
from engine.records.conform import conform
from tests.unit.records.relations import relation

NESTED = relation({"v": "array<struct<a: array<decimal(38,2)>, m: map<string,bigint>>>"})


@pytest.mark.timeout(60)
def test_a_long_number_beside_one_with_an_exponent_is_read_in_the_time_that_its_length_takes() -> None:
    # A pattern that goes back over the digits took hours for these, and nothing else ran in between.
    values = pl.Series("v", ["9" * 1_000_000, "1e5", "1" * 1_000_000 + ".x", "." + "0" * 1_000_000 + "e"])
    converted, bad = conform(values, parse_type("decimal(38,2)"))
    assert converted.to_list() == [None, Decimal(100_000), None, None]
    assert bad is not None
    assert bad.to_list() == [True, False, True, True]


@pytest.mark.timeout(30)
def test_many_refused_nested_values_are_looked_at_together() -> None:
    line = b'{"v": [{"a": [1, 1e500000000], "m": {"k": 1}}]}\n'
    raw, rejects = parse_records(line * 30_000, LINE_TYPES[0], NESTED)  # one by one: for a minute
    assert (raw.height, rejects.height) == (0, 30_000)
    assert len(set(rejects["detail"])) == 1
    assert rejects["detail"][0].startswith("column 'v[].a[]' must be decimal(38,2)")


def test_each_nested_value_is_refused_for_its_own_first_misfit() -> None:
    cases = {
        '[{"a": [1, "x"]}]': "v[].a[]",
        '[{"a": [1]}, {"a": 2}]': "v[].a",
        '[{"m": {"k": 1, "l": true}}]': "v[].m.*",
        '[{"m": {"k": true, "\\ud800": 1}}]': "v[].m",
        '[{"z": 1}]': "v[]",
        "7": "v",
        "[[]]": "v[]",
        '[{"a": [1, 2]}, {"a": [3], "m": {"k": 1.5}}]': "v[].m.*",
    }
    lines = "\n".join(f'{{"v": {value}}}' for value in cases).encode()
    _, rejects = parse_records(lines, LINE_TYPES[0], NESTED)
    assert [detail.split("'")[1] for detail in rejects["detail"]] == list(cases.values())

"""A wider type holds every value of a narrower one, unrounded: what was judged by the one is read by the other."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.expressions.types.types import ColumnType, parse_type
from engine.frames.hashing import key_hash
from engine.plan.appending import is_wider
from engine.records.conform import conform

_SIMPLE = ["boolean", "int", "bigint", "double", "string", "bytes", "date", "time", "timestamp"]
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})"))
simple = st.sampled_from(_SIMPLE) | decimals
numbers = st.sampled_from(["int", "bigint", "double"]) | decimals
nested = st.sampled_from(["{}", "{}", "array<{}>", "struct<a:{}>", "map<string,{}>", "array<struct<a:{},b:string>>"])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[ColumnType, ColumnType]:
    """A type and a wider one, at any depth."""
    narrow, wide = parse_type(draw(numbers)), parse_type(draw(numbers))
    if not is_wider(narrow, wide):
        narrow, wide = wide, narrow
    assume(is_wider(narrow, wide))
    form = draw(nested)
    narrow, wide = (parse_type(form.format(kind)) for kind in (narrow, wide))
    return narrow, wide


def values(kind: ColumnType) -> st.SearchStrategy[Any]:
    if kind.kind == "array" and kind.element is not None:
        return st.lists(values(kind.element) | st.none(), max_size=3)
    if kind.kind == "map" and kind.value is not None:
        entry = values(kind.value) | st.none()
        return st.dictionaries(st.sampled_from("xyz"), entry, max_size=3).map(
            lambda found: [{"key": key, "value": value} for key, value in found.items()]
        )
    if kind.kind == "struct":
        return st.fixed_dictionaries({name: values(field) | st.none() for name, field in kind.fields})
    if kind.kind == "decimal":
        most = 10 ** (kind.precision or 0) - 1
        return st.integers(-most, most).map(lambda whole: Decimal(f"{whole}E-{kind.scale or 0}"))  # exact; scaleb keeps 28 digits
    if kind.kind == "string":
        return st.text(max_size=3)
    bits = 31 if kind.kind == "int" else 63
    return st.integers(-(2**bits), 2**bits - 1)


@given(pairs().flatmap(lambda pair: st.tuples(st.just(pair), st.lists(values(pair[0]) | st.none(), min_size=1, max_size=5))))
def test_each_value_of_a_type_is_one_of_a_wider_type(drawn: tuple[tuple[ColumnType, ColumnType], list[Any]]) -> None:
    (narrow, wide), given_values = drawn
    before = pl.Series("c", given_values, dtype=narrow.polars)
    after, bad = conform(before, wide)
    assert bad is None
    assert after.dtype == wide.polars
    assert after.to_list() == before.to_list()


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.none(), min_size=1))
def test_an_int_key_keeps_its_task_when_it_becomes_a_bigint(keys: list[int | None]) -> None:
    narrow, wide = (pl.DataFrame({"k": pl.Series(keys, dtype=dtype)}) for dtype in (pl.Int32, pl.Int64))
    assert key_hash(narrow, ("k",)).to_list() == key_hash(wide, ("k",)).to_list()


@given(simple, simple, simple)
def test_wider_is_an_order(a: str, b: str, c: str) -> None:
    one, two, three = parse_type(a), parse_type(b), parse_type(c)
    assert not is_wider(one, one)
    assert not (is_wider(one, two) and is_wider(two, one))
    if is_wider(one, two) and is_wider(two, three):
        assert is_wider(one, three)

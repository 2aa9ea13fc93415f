"""Nested values as JSON text are what ``json.dumps`` would make of them, value by value."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.types.types import STRING, ColumnType, parse_type
from engine.formats.json.nested_json import json_texts
from tests.examples import examples

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1), "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False), "decimal(12,4)": st.decimals(-(10**7), 10**7, places=4),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5), "bytes": st.binary(max_size=3), "date": st.dates(),
    "time": st.times(), "timestamp": st.datetimes(timezones=st.just(UTC)),
}  # fmt: skip
TYPES = st.recursive(
    st.sampled_from(list(LEAVES)).map(parse_type),
    lambda inner: st.one_of(
        inner.map(lambda kind: ColumnType("array", element=kind)),
        inner.map(lambda kind: ColumnType("map", key=STRING, value=kind)),
        st.lists(inner, min_size=1, max_size=2).map(lambda kinds: ColumnType("struct", fields=tuple(zip("ab", kinds, strict=False)))),
    ),
    max_leaves=4,
)  # fmt: skip


def values_of(declared: ColumnType) -> st.SearchStrategy[Any]:
    """Values as frames hold them."""
    match declared:
        case ColumnType(kind="array", element=ColumnType() as element):
            found: st.SearchStrategy[Any] = st.lists(values_of(element), max_size=3)
        case ColumnType(kind="map", value=ColumnType() as value):
            entries = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), values_of(value), max_size=3)
            found = entries.map(lambda given: [{"key": key, "value": item} for key, item in given.items()])
        case ColumnType(kind="struct", fields=fields):
            found = st.fixed_dictionaries({name: values_of(kind) for name, kind in fields})
        case _:
            found = LEAVES[str(declared)]
    return st.none() | found


def as_json(value: Any, declared: ColumnType) -> Any:
    match declared, value:
        case _, None:
            return None
        case ColumnType(kind="array", element=ColumnType() as element), _:
            return [as_json(item, element) for item in value]
        case ColumnType(kind="map", value=ColumnType() as inner), _:
            return {entry["key"]: as_json(entry["value"], inner) for entry in value}
        case ColumnType(kind="struct", fields=fields), _:
            return {name: as_json(value[name], kind) for name, kind in fields}
        case _, bytes():
            return base64.b64encode(value).decode()
        case _, datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _, Decimal() | date() | time():
            return str(value + 0) if isinstance(value, Decimal) else str(value)
        case _:
            return value


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_the_text_is_the_value(data: st.DataObject) -> None:
    declared = data.draw(TYPES)
    values = data.draw(st.lists(values_of(declared), max_size=4))
    texts = json_texts(pl.Series("v", values, dtype=declared.polars), declared)
    assert [None if text is None else json.loads(text) for text in texts] == [as_json(value, declared) for value in values]

"""Column types and schemas: their text, and what they are in Polars and Postgres."""

from __future__ import annotations

import pickle
from typing import get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.expressions.types.types import BIGINT, STRING, ColumnType, ScalarKind, Schema, decimal, parse_type

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
SCALARS = st.sampled_from([*get_args(ScalarKind)]).map(ColumnType)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal(p, s)))
TYPES = st.recursive(
    SCALARS | DECIMALS,
    lambda inner: (
        inner.map(lambda t: ColumnType("array", element=t))
        | inner.map(lambda t: ColumnType("map", key=STRING, value=t))
        | st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda f: f[0]).map(
            lambda fields: ColumnType("struct", fields=tuple(fields))
        )
    ),
    max_leaves=4,
)


@given(TYPES)
def test_every_type_reads_back_from_its_text(column: ColumnType) -> None:
    assert parse_type(str(column)) == column
    assert pickle.loads(pickle.dumps(column)) == column  # noqa: S301 - our own bytes


@given(TYPES)
def test_every_type_makes_a_polars_column(column: ColumnType) -> None:
    assert pl.Series("x", [None], dtype=column.polars).dtype == column.polars


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("INT", "int"),
        (" decimal( 12 , 2 ) ", "decimal(12,2)"),
        ("decimal(5)", "decimal(5,0)"),
        ("Map<string, array<int>>", "map<string,array<int>>"),
        ("struct<a: int, B: struct<c: string>>", "struct<a:int,B:struct<c:string>>"),
    ],
)
def test_case_and_spaces_do_not_matter(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "unknown type"),
        ("text", "Write 'string'"),
        ("integer", "Write 'int'"),
        ("int int", "unexpected 'int'"),
        ("decimal", r"decimal\(12,2\)"),
        ("decimal(39,2)", "1 to 38"),
        ("decimal(0,0)", "1 to 38"),
        ("decimal(5,6)", "0 to the precision"),
        ("decimal(-5,2)", "expected a number"),
        ("map<int,int>", "keys are strings"),
        ("array<", "unknown type"),
        ("array<int", "expected '>'"),
        ("struct<>", "field name"),
        ("struct<a:int,a:int>", "declared twice"),
        ("struct<a int>", "expected ':'"),
        ("array<" * 50 + "int" + ">" * 50, "nested"),
        ("x" * 5_000, "longer than"),
        ('int"; drop table x', "unexpected"),
    ],
)
def test_a_wrong_type_is_refused_with_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_type(text)


@given(st.text(max_size=40))
def test_any_text_is_a_type_or_a_value_error(text: str) -> None:
    try:
        parsed = parse_type(text)
    except ValueError:
        return
    assert parse_type(str(parsed)) == parsed


def test_types_name_their_postgres_column() -> None:
    texts = ["int", "decimal(12,2)", "timestamp", "bytes", "array<int>", "struct<a:int>"]
    assert [parse_type(t).postgres for t in texts] == ["integer", "numeric(12,2)", "timestamptz", "bytea", "jsonb", "jsonb"]


def test_a_schema_is_ordered_hashable_and_survives_json() -> None:
    schema = Schema((("b", BIGINT), ("a", STRING)))
    assert schema.names == ("b", "a")
    assert (schema["a"], "a" in schema, "c" in schema, len(schema)) == (STRING, True, False, 2)
    assert schema.select(["a"]) == Schema((("a", STRING),))
    assert Schema.from_json(schema.to_json()) == schema
    assert hash(pickle.loads(pickle.dumps(schema))) == hash(schema)  # noqa: S301 - our own bytes
    assert schema.polars() == {"b": pl.Int64(), "a": pl.String()}


def test_a_schema_with_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' is declared twice"):
        Schema((("a", BIGINT), ("a", STRING)))

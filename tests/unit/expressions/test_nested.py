"""Values inside structs, arrays and maps: taken out, put together, compared, cast, and gone over by lambdas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from app.testing.comparing.rows import plain_values
from engine.expressions.expressions import columns_of, compile_scalar, qualify
from engine.expressions.syntax import parse, type_of
from engine.expressions.types.types import Schema, parse_type
from engine.expressions.values.operands import ExpressionInvalid
from engine.frames.evaluation_errors import GapCounter
from engine.sql.tree import Cast

TYPES = {
    "r.n": "bigint", "r.t": "string", "r.a": "array<int>", "r.m": "map<string,int>",
    "r.s": 'struct<f:int,g:struct<h:string>,"odd name":int>', "r.l": "array<struct<x:int,tags:array<string>>>",
}  # fmt: skip
SCHEMA = Schema(tuple((name, parse_type(kind)) for name, kind in TYPES.items()))
FRAME = pl.DataFrame(
    {
        "r.n": [1, -1, 0, None],
        "r.t": ["k", "l", None, "none"],
        "r.a": [[1, 2, None], [], None, [3]],
        "r.m": [[{"key": "k", "value": 1}, {"key": "l", "value": None}], [{"key": "l", "value": 5}], [], None],
        "r.s": [
            {"f": 1, "g": {"h": "p"}, "odd name": 7},
            {"f": None, "g": None, "odd name": 8},
            None,
            {"f": 2, "g": {"h": None}},
        ],
        "r.l": [[{"x": 1, "tags": ["a", "b"]}, {"x": 2, "tags": []}], [None], None, [{"x": None, "tags": None}]],
    },
    schema=SCHEMA.polars(),
)


def values(text: str, frame: pl.DataFrame = FRAME) -> list[Any]:
    scalar = compile_scalar(text, SCHEMA)
    found = frame.select(scalar.expr.alias("x")).to_series()
    assert found.dtype == scalar.type.polars
    assert frame.clear().select(scalar.expr.alias("x")).height == 0
    return plain_values(found.to_list(), scalar.type)


def gaps(text: str) -> Counter[str]:
    counters: Counter[tuple[str, str]] = Counter()
    GapCounter("o", [compile_scalar(text, SCHEMA)]).count(FRAME.with_columns(_op=pl.lit(0)), counters)
    return Counter({reason: count for (_, reason), count in counters.items() if count})


NOTHING = [None] * 4
CASES: list[tuple[str, str, list[Any]]] = [
    # values taken out
    ("s->f", "int", [1, None, None, 2]),
    ("r.s->g->h", "string", ["p", None, None, None]),
    ('s->"odd name"', "int", [7, 8, None, None]),
    ("a[1]", "int", [1, None, None, 3]),
    ("a[-1]", "int", [None, None, None, 3]),
    ("a[0]", "int", NOTHING),
    ("a[9223372036854775807]", "int", NOTHING),
    ("a[n]", "int", [1, None, None, None]),
    ("ARRAY[10, 20, 30][n + 1]", "int", [20, None, 10, None]),
    ("m['l']", "int", [None, 5, None, None]),
    ("m[t]", "int", [1, 5, None, None]),
    ("m[NULL]", "int", NOTHING),
    ("l[1]->tags[2]", "string", ["b", None, None, None]),
    # values put together
    ("ARRAY[n, 2]", "array<bigint>", [[1, 2], [-1, 2], [0, 2], [None, 2]]),
    ("ARRAY[1, 2.5]", "array<double>", [[1.0, 2.5]] * 4),
    ("ARRAY[a, NULL, ARRAY[n]]", "array<array<bigint>>", [[[1, 2, None], None, [1]], [[], None, [-1]], [None, None, [0]], [[3], None, [None]]]),
    ("MAP(t := n, 'k' := 9)", "map<string,bigint>", [{"k": 9}, {"l": -1, "k": 9}, {"k": 9}, {"none": None, "k": 9}]),
    ("MAP('a' := a)", "map<string,array<int>>", [{"a": [1, 2, None]}, {"a": []}, {"a": None}, {"a": [3]}]),
    (
        "STRUCT(a := n, \"B b\" := t)", 'struct<a:bigint,"B b":string>',
        [{"a": 1, "B b": "k"}, {"a": -1, "B b": "l"}, {"a": 0, "B b": None}, {"a": None, "B b": "none"}],
    ),
    # compared
    ("a = ARRAY[3]", "boolean", [False, False, None, True]),
    ("a = ARRAY[1, 2, NULL]", "boolean", [True, False, None, False]),
    ("a <> ARRAY[3]", "boolean", [True, True, None, False]),
    ("m = MAP('l' := NULL, 'k' := 1)", "boolean", [True, False, False, None]),
    ("ARRAY[m] = ARRAY[MAP('l' := NULL, 'k' := 1)]", "boolean", [True, False, False, False]),
    ("s IS DISTINCT FROM NULL", "boolean", [True, True, False, True]),
    ("s->g IN (STRUCT(h := 'p'), STRUCT(h := CAST(NULL AS string)))", "boolean", [True, None, None, True]),
    ("CASE a WHEN ARRAY[3] THEN 'three' ELSE 'other' END", "string", ["other", "other", "other", "three"]),
    ("a IS NULL", "boolean", [False, False, True, False]),
    ("nullif(a, ARRAY[3])", "array<int>", [[1, 2, None], [], None, None]),
    ("coalesce(a, ARRAY[n])", "array<bigint>", [[1, 2, None], [], [0], [3]]),
    # cast
    ("CAST(a AS array<string>)", "array<string>", [["1", "2", None], [], None, ["3"]]),
    ("CAST(m AS map<string, double>)", "map<string,double>", [{"k": 1.0, "l": None}, {"l": 5.0}, {}, None]),
    ("CAST(s AS struct<f string, z int>)", "struct<f:string,z:int>",
     [{"f": "1", "z": None}, {"f": None, "z": None}, None, {"f": "2", "z": None}]),
    ("CAST(NULL AS array<int>)", "array<int>", NOTHING),
    # lambdas
    ("transform(a, x => x + n)", "array<bigint>", [[2, 3, None], [], None, [None]]),
    ("transform(a, x => 'c')", "array<string>", [["c", "c", "c"], [], None, ["c"]]),
    ("transform(ARRAY[1, 2], n => n)", "array<int>", [[1, 2]] * 4),
    ("transform(a, x => transform(a, y => x * 10 + y + n))", "array<array<bigint>>",
     [[[12, 13, None], [22, 23, None], [None] * 3], [], None, [[None]]]),
    ("transform(l, e => filter(e->tags, g => g <> 'a'))", "array<array<string>>", [[["b"], []], [None], None, [None]]),
    ("transform(m, (k, v) => k || '!', (k, v) => coalesce(v, n))", "map<string,bigint>", [{"k!": 1, "l!": 1}, {"l!": 5}, {}, None]),
    ("transform(m, (k, v) => 'one', (k, v) => v)", "map<string,int>", [{"one": None}, {"one": 5}, {}, None]),
    ("filter(a, x => x IS NOT NULL)", "array<int>", [[1, 2], [], None, [3]]),
    ("filter(a, x => x > n)", "array<int>", [[2], [], None, []]),
    ("filter(m, (k, v) => k = t)", "map<string,int>", [{"k": 1}, {"l": 5}, {}, None]),
    ("reduce(a, 0, (s, x) => s + coalesce(x, 10))", "bigint", [13, 0, 0, 3]),
    ("reduce(a, n, (s, x) => s * 2)", "bigint", [8, -1, 0, None]),
    ("reduce(m, '', (s, k, v) => s || k)", "string", ["kl", "l", "", ""]),
    ("reduce(l, 0, (s, e) => s + coalesce(array_length(e->tags), 0))", "bigint", [2, 0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_a_nested_expression_has_this_type_and_these_values(text: str, kind: str, wanted: list[Any]) -> None:
    assert (str(compile_scalar(text, SCHEMA).type), values(text)) == (kind, wanted)


@pytest.mark.parametrize("text", [case[0] for case in CASES])
def test_a_nested_expression_gives_the_same_row_by_row_and_from_its_canonical_text(text: str) -> None:
    whole = values(text)
    assert [value for row in range(FRAME.height) for value in values(text, FRAME[row : row + 1])] == whole
    assert values(qualify(text, SCHEMA)) == whole


REFUSED = [
    ("s->F", "unknown_column", "did you mean f"),
    ("a->f", "type_mismatch", "out of a struct, not of array<int>"),
    ("s[1]", "type_mismatch", "an array or a map"),
    ("a['x']", "type_mismatch", "1 is the first"),
    ("m[1]", "type_mismatch", r"\[\] of a map needs string, not int"),
    ("ARRAY[]", "type_mismatch", "empty array"),
    ("ARRAY[NULL]", "type_mismatch", "CAST"),
    ("MAP()", "type_mismatch", "empty map"),
    ("MAP(1 := 2)", "type_mismatch", "keys are strings"),
    ("ARRAY[1, 'a']", "type_mismatch", "cannot mix int and string"),
    ("STRUCT(a := NULL)", "type_mismatch", "NULL in a is unknown"),
    ("STRUCT(a := 1, a := 2)", "type_mismatch", "two fields"),
    ("ARRAY[ARRAY[ARRAY[ARRAY[ARRAY[ARRAY[ARRAY[ARRAY[ARRAY[1]]]]]]]]]", "type_mismatch", "nested 8 deep"),
    ("a < ARRAY[1]", "type_mismatch", "has no order"),
    ("a BETWEEN a AND a", "type_mismatch", "has no order"),
    ("a = s", "type_mismatch", "cannot mix"),
    ("CAST(t AS array<int>)", "type_mismatch", "cannot be cast"),
    ("CAST(a AS string)", "type_mismatch", "cannot be cast"),
    ("CAST(a AS map<string,int>)", "type_mismatch", "cannot be cast"),
    ("CAST(NULL AS map<int,int>)", "type_mismatch", "keys are strings"),
    ("transform(n, x => x)", "type_mismatch", "an array or a map, not bigint"),
    ("transform(a, n)", "type_mismatch", "takes a lambda here"),
    ("transform(a, (x, y) => x)", "type_mismatch", r"has 1 parameter\(s\), not 2"),
    ("transform(m, (k, v) => k)", "type_mismatch", "two lambdas"),
    ("transform(m, (k, v) => v, (k, v) => v)", "type_mismatch", "keys are strings"),
    ("filter(a, x => x + 1)", "type_mismatch", "true or false, not bigint"),
    ("reduce(a, 0, x => x)", "type_mismatch", r"has 2 parameter\(s\), not 1"),
    ("reduce(a, NULL, (s, x) => s)", "type_mismatch", "type of its start is unknown"),
    ("reduce(a, CAST(0 AS decimal(4,2)), (s, x) => s + x)", "type_mismatch", "CAST what it gives"),
    ("abs(x => x)", "not_a_scalar", "not a value here"),
    ("transform(a, x => y)", "unknown_column", "no column y"),
]


@pytest.mark.parametrize(("text", "code", "detail"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_nested_expression_is_refused_with_the_cure(text: str, code: str, detail: str) -> None:
    with pytest.raises(ExpressionInvalid, match=detail) as caught:
        compile_scalar(text, SCHEMA)
    assert caught.value.code == code


def test_what_has_no_value_inside_is_counted_once_for_its_row() -> None:
    assert gaps("CAST(ARRAY['1', 'x', 'y'] AS array<int>)") == {"cast_failed": 4}
    assert gaps("CAST(MAP('a' := t) AS map<string,int>)") == {"cast_failed": 3}
    assert gaps("CAST(STRUCT(f := t) AS struct<f int>)") == {"cast_failed": 3}
    assert gaps("transform(a, x => 6 / (x - n))") == {"division_by_zero": 1}
    assert gaps("filter(a, x => 6 / (x - 1) > 0)") == {"division_by_zero": 1}
    assert gaps("reduce(a, 6, (s, x) => s / (x - 2))") == {"division_by_zero": 1}
    assert gaps("transform(l, e => transform(e->tags, g => CAST(g AS int)))") == {"cast_failed": 1}
    assert gaps("CASE WHEN n = 7 THEN transform(a, x => 6 / (x - n)) END") == {}
    assert gaps("a[9]") == {}


def test_a_list_that_is_too_long_to_be_reduced_gives_null_and_is_counted() -> None:
    schema = Schema((("a", parse_type("array<int>")),))
    frame = pl.DataFrame({"a": [[1] * 10_001, [1] * 10_000], "_op": [0, 0]}, schema={"a": pl.List(pl.Int32), "_op": pl.Int8})
    scalar = compile_scalar("reduce(a, 0, (s, x) => s + x)", schema)
    assert frame.select(scalar.expr.alias("x"))["x"].to_list() == [None, 10_000]
    counters: Counter[tuple[str, str]] = Counter()
    GapCounter("o", [scalar]).count(frame, counters)
    assert counters == {("o", "list_too_long"): 1}


def test_a_lambda_that_looks_at_too_much_for_one_record_gives_null_for_the_elements_behind_and_is_counted() -> None:
    schema = Schema((("a", parse_type("array<int>")), ("b", parse_type("array<int>"))))
    frame = pl.DataFrame(
        {"a": [[1] * 3_000, None, [1, 2]], "b": [[1] * 5_000, [1], [3]], "_op": [0] * 3}, schema_overrides=schema.polars()
    )
    for text, computed in (
        ("transform(a, x => x + array_length(b))", 1_999),
        ("transform(a, x => array_concat(b, ARRAY[x]))", 1_666),
    ):
        scalar = compile_scalar(text, schema)
        found = frame.select(scalar.expr.alias("x"))["x"]
        assert found.list.len().to_list() == [3_000, None, 2]
        assert found.list.drop_nulls().list.len().to_list() == [computed, None, 2]
        counters: Counter[tuple[str, str]] = Counter()
        GapCounter("o", [scalar]).count(frame, counters)
        assert {reason: count for (_, reason), count in counters.items() if count} == {"list_too_long": 1}
    assert frame.select(scalar.expr.alias("x"))["x"][2].to_list() == [[3, 1], [3, 2]]


@pytest.mark.parametrize(
    "text",
    [
        "transform(a, x => lpad(cast(x as string), 100000, '.'))",
        "transform(a, x => t || t)",
        "transform(a, x => STRUCT(n := x, t := replace(t, '.', '..')))",
        "transform(m, (k, v) => k, (k, v) => lpad('', 100000, '.'))",
        "transform(a, y => transform(ARRAY[1, 2], x => lpad('', 50000, '.')))",
    ],
)
def test_a_lambda_that_makes_long_texts_ends_for_each_record_by_itself(text: str) -> None:
    schema = Schema((("a", parse_type("array<int>")), ("t", parse_type("string")), ("m", parse_type("map<string,int>"))))
    scalar = compile_scalar(text, schema)
    sizes = [200, None, 0, 10, 11, 12, 200]

    def frame(sizes: list[int | None]) -> pl.DataFrame:
        lists = [None if size is None else list(range(size)) for size in sizes]
        maps = [None if each is None else [{"key": f"{n:04}", "value": n} for n in each] for each in lists]
        columns = {"a": lists, "t": ["." * 50_000] * len(sizes), "m": maps, "_op": [0] * len(sizes)}
        return pl.DataFrame(columns, schema_overrides=schema.polars())

    whole = frame(sizes).select(scalar.expr.alias("x"))["x"]
    # Ten values of 100,000 bytes are before the bound of a mebibyte, and the eleventh begins before it; keys add to the bound of a map.
    assert whole.list.len().to_list() == sizes
    kept = [None if row is None else sum(_holds_text(value) for value in row) for row in whole.to_list()]
    assert kept == [11, None, 0, 10, 11, 11, 11]
    counters: Counter[tuple[str, str]] = Counter()
    GapCounter("o", [scalar]).count(frame(sizes), counters)
    assert {reason: count for (_, reason), count in counters.items() if count} == {"text_too_long": 3}
    for place, size in enumerate(sizes):
        alone = frame([size]).select(scalar.expr.alias("x"))["x"]
        assert alone.equals(whole[place : place + 1], null_equal=True), size


def _holds_text(value: Any) -> bool:
    return "...." in repr(value)


def test_a_reduction_that_makes_many_long_texts_gives_null_and_is_counted() -> None:
    schema = Schema((("a", parse_type("array<int>")),))
    scalar = compile_scalar("reduce(a, '', (s, x) => lpad(cast(x as string), 1000000, s || '.'))", schema)
    frame = pl.DataFrame({"a": [[1] * 10_000, [1] * 3, None], "_op": [0] * 3}, schema_overrides=schema.polars())
    found = frame.select(scalar.expr.alias("x"))["x"]
    assert found.str.len_bytes().to_list() == [None, 1_000_000, 0]
    counters: Counter[tuple[str, str]] = Counter()
    GapCounter("o", [scalar]).count(frame, counters)
    assert {reason: count for (_, reason), count in counters.items() if count} == {"text_too_long": 1}


def test_the_columns_of_an_expression_are_those_that_no_parameter_hides() -> None:
    assert columns_of("transform(a, n => n + array_length(l))", SCHEMA) == {"r.a", "r.l"}
    assert compile_scalar("transform(a, n => n)", SCHEMA).columns == {"r.a"}


def test_a_parameter_gives_way_to_a_column_that_is_renamed_to_its_name() -> None:
    text = qualify("transform(a, x => x + n)", SCHEMA, lambda name: (None, "x" if name == "r.n" else "b"))
    schema = Schema((("x", parse_type("bigint")), ("b", parse_type("array<int>"))))
    frame = pl.DataFrame({"x": [10], "b": [[1]]}, schema=schema.polars())
    assert frame.select(compile_scalar(text, schema).expr.alias("y")).item().to_list() == [11]


@pytest.mark.parametrize(
    "kind", [*TYPES.values(), "decimal(4,2)", "timestamp", 'struct<"a ""b":array<bytes>>', "map<string,date>"]
)
def test_a_type_is_read_as_the_language_writes_it(kind: str) -> None:
    declared = parse_type(kind)
    assert parse_type(str(declared)) == declared
    read = parse(f"CAST(NULL AS {str(declared).replace(':', ' ')})")
    assert isinstance(read, Cast)
    assert type_of(read.type) == declared


@pytest.mark.parametrize("name", ["", "*", "^a$", "a\0"])
def test_a_name_that_no_field_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        parse_type(f'struct<"{name}":int>')

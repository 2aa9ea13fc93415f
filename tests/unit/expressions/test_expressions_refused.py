"""What expressions refuse: other statements, unknown functions, wrong types, absurd sizes; and aggregates."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.expressions.aggregate_calls import parse_aggregate
from engine.expressions.aggregates.aggregates import AggregateFunction, is_undoable
from engine.expressions.expressions import ExpressionInvalid, compile_scalar, qualify
from engine.expressions.limits import MAX_NESTING
from engine.expressions.types.types import MAX_TYPE_NESTING, Schema, parse_type

SCHEMA = Schema(
    tuple(
        (name, parse_type(kind))
        for name, kind in {
            "s.i": "int", "s.t": "string", "s.ts": "timestamp", "s.d": "decimal(10,2)", "s.f": "double", "s.o": "boolean",
            "s.arr": "array<int>", "w.t": "string",
        }.items()
    )
)  # fmt: skip

REFUSED = [
    # attempts to leave the expression
    ("1; drop table x", "expression_malformed"),
    (";", "expression_malformed"),
    ("drop table x", "expression_malformed"),
    ("select 1", "expression_malformed"),
    ("(select 1)", "not_a_scalar"),
    ("i in (select i from s)", "not_a_scalar"),
    ("exists(select 1)", "not_a_scalar"),
    ("i = (with x as (select 1) select * from x)", "not_a_scalar"),
    ('a"; drop', "expression_malformed"),
    ('"a""; drop table x; --"', "unknown_column"),
    ("' or 1=1", "expression_malformed"),
    ("i -- hidden", "expression_malformed"),
    ("i /* hidden */", "expression_malformed"),
    ("/* hidden */ i", "expression_malformed"),
    ("i\0", "expression_malformed"),
    ("i into outfile 'x'", "expression_malformed"),
    ("copy x to 'y'", "expression_malformed"),
    ("set x = 1", "expression_malformed"),
    # functions outside the allow-list
    ("pg_sleep(1)", "unknown_function"),
    ("__import__('os')", "unknown_function"),
    ("pg_read_file('/etc/passwd')", "unknown_function"),
    ("pg_catalog.lower(s.t)", "expression_malformed"),
    ("now()", "unknown_function"),
    ("random()", "unknown_function"),
    ("current_timestamp", "unknown_column"),
    ("unnest(arr)", "unknown_function"),
    # not scalars
    ("*", "not_a_scalar"),
    ("s.*", "not_a_scalar"),
    ("count(*)", "not_a_scalar"),
    ("sum(i) + 1", "not_a_scalar"),
    ("collect_list(i)", "not_a_scalar"),
    ("i + sum(i) over (order by i)", "not_a_scalar"),
    # syntax that is not ours
    ("", "expression_malformed"),
    ("  ", "expression_malformed"),
    ("i as x", "expression_malformed"),
    ("i x", "expression_malformed"),
    ("s.x.y.z", "expression_malformed"),
    ("arr['1']", "type_mismatch"),
    ("@i", "expression_malformed"),
    (":i", "expression_malformed"),
    ("?", "expression_malformed"),
    ("i & 1", "expression_malformed"),
    ("interval '1 hour'", "expression_malformed"),
    ("i between symmetric 1 and 2", "expression_malformed"),
    ("lower(s.t order by i)", "expression_malformed"),
    ("lower(x => s.t)", "not_a_scalar"),
    ("cast(s.t as int format 'x')", "expression_malformed"),
    ("s.t like 'a\\'", "expression_malformed"),
    ("s.t like 'a' escape 'bc'", "expression_malformed"),
    ("i is 5", "expression_malformed"),
    ("1e999", "expression_malformed"),
    ("9" * 39, "expression_malformed"),
    # names
    ("nope", "unknown_column"),
    ("x.i", "unknown_column"),
    ("I", "unknown_column"),
    ("t", "ambiguous_column"),
    # types
    ("NULL", "type_mismatch"),
    ("i + s.t", "type_mismatch"),
    ("s.t + s.t", "type_mismatch"),
    ("i || s.t", "type_mismatch"),
    ("i = '1'", "type_mismatch"),
    ("ts > 5", "type_mismatch"),
    ("ts > s.t", "type_mismatch"),
    ("ts > 'yesterday'", "type_mismatch"),
    ("o and i", "type_mismatch"),
    ("not i", "type_mismatch"),
    ("-s.t", "type_mismatch"),
    ("arr < arr", "type_mismatch"),
    ("arr between arr and arr", "type_mismatch"),
    ("greatest(arr, arr)", "type_mismatch"),
    ("case when i then 1 end", "type_mismatch"),
    ("case when o then 1 else 'a' end", "type_mismatch"),
    ("s.t like w.t", "type_mismatch"),
    ("cast(arr as string)", "type_mismatch"),
    ("cast(ts as bigint)", "type_mismatch"),
    ("cast(i as nonsense)", "type_mismatch"),
    ("lower(i)", "type_mismatch"),
    ("lower()", "type_mismatch"),
    ("lower(s.t, s.t)", "type_mismatch"),
    ("round(f, i)", "type_mismatch"),
    ("left(s.t, 1.5)", "type_mismatch"),
    ("date_trunc('eon', ts)", "type_mismatch"),
    ("extract(century from ts)", "type_mismatch"),
]


@pytest.mark.parametrize(("text", "code"), REFUSED, ids=[text[:30] or "empty" for text, _ in REFUSED])
def test_an_expression_is_refused_with_this_code(text: str, code: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(text, SCHEMA)
    assert caught.value.code == code
    assert 0 < len(caught.value.detail) < 1_000


@pytest.mark.parametrize(
    "text",
    [
        "i + " * 3_000 + "i",
        "(" * 4_000 + "i" + ")" * 4_000,
        "not " * 2_400 + "o",
        "- " * 4_000 + "i",
        "i + " * 1_000 + "i",
        "case when o then " * 500 + "1" + " end" * 500,
        "lower(" * 1_500,
        "[" * 9_000,
        "{" * 9_000,
        "a." * 4_000 + "a",
        "i::int" + "::bigint::int" * 700,
    ],
    ids=lambda text: text[:12],
)
def test_absurd_length_and_nesting_are_refused(text: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(text, SCHEMA)
    assert caught.value.code == "expression_malformed"


@pytest.mark.parametrize(
    "place", ["i = {}", "i in (1, {})", "round(f, {})", "-{}", "i % -{}", "substring(s.t, {}, 2)", "power(f, {})", "{}"]
)
@pytest.mark.parametrize("digits", [39, 4_300, 4_301, 9_900])
def test_a_number_of_too_many_digits_is_refused_wherever_it_stands(place: str, digits: int) -> None:
    with pytest.raises(ExpressionInvalid, match="has more than 38 digits") as caught:
        compile_scalar(place.format("9" * digits), SCHEMA)
    assert caught.value.code == "expression_malformed"


def test_zeros_in_front_are_no_digits_of_a_number() -> None:
    assert str(compile_scalar("0" * 5_000 + "7", SCHEMA).type) == "int"


@pytest.mark.parametrize("digits", [28, 29, 37, 38])
def test_a_negated_number_keeps_all_its_digits(digits: int) -> None:
    text = "-" + "9" * (digits - 1) + "8"
    assert pl.DataFrame({"s.i": [1]}).select(compile_scalar(text, SCHEMA).expr).item() == Decimal(text)


@pytest.mark.parametrize(
    "kind", ["decimal(18,17)", "decimal(38,37)", "decimal(3,1)", "decimal(2,2)", "decimal(38,0)", "decimal(10,2)"]
)
def test_a_double_that_does_not_fit_a_decimal_becomes_null_and_fails_no_query(kind: str) -> None:
    declared = parse_type(kind)
    top = 10.0 ** ((declared.precision or 0) - (declared.scale or 0))
    values = [0.25, top, -top, top * 1.05, top * 17.1, 1e300, -1e40, math.nextafter(top, 0) if declared.scale else 1e39, None]
    scalar = compile_scalar(f"cast(f as {kind})", SCHEMA)
    frame = pl.DataFrame({"s.f": values}, schema={"s.f": pl.Float64})
    first, *others = frame.select(scalar.expr).to_series().to_list()
    assert abs(float(first) - 0.25) <= 0.5 * 10.0 ** -(declared.scale or 0) + 1e-12
    assert [each for each in others if each is not None and abs(each) >= top] == []
    assert others[:6] == [None] * 6


@given(st.text(max_size=60) | st.text(alphabet="is.t()'\"+-*/%|<>=,;: 01andornulcase", max_size=60))
def test_any_text_compiles_or_is_refused_and_never_does_anything_else(text: str) -> None:
    try:
        compile_scalar(text, SCHEMA)
    except ExpressionInvalid:
        return
    canonical = qualify(text, SCHEMA)
    assert compile_scalar(canonical, SCHEMA).type == compile_scalar(text, SCHEMA).type


@pytest.mark.parametrize(
    ("text", "function", "argument", "kind"),
    [
        ("stddev(f)", "stddev", '"s"."f"', "double"),
        ("stddev_samp(i)", "stddev", '"s"."i"', "double"),
        ("variance(d)", "variance", '"s"."d"', "double"),
        ("var_samp(i)", "variance", '"s"."i"', "double"),
        ("first(ts)", "first", '"s"."ts"', "timestamp"),
        ("last(arr)", "last", '"s"."arr"', "array<int>"),
        ("earliest_by_offset(i)", "first_by_arrival", '"s"."i"', "int"),
        ("latest_by_offset(i)", "last_by_arrival", '"s"."i"', "int"),
        ("last_by_arrival(s.t)", "last_by_arrival", '"s"."t"', "string"),
        ("collect_list(s.t)", "collect_list", '"s"."t"', "array<string>"),
        ("collect_set(d)", "collect_set", '"s"."d"', "array<decimal(10,2)>"),
        ("histogram(i)", "histogram", '"s"."i"', "map<string,bigint>"),
        ("count(*)", "count", None, "bigint"),
        ("COUNT(i)", "count", '"s"."i"', "bigint"),
        ("count(distinct s.t)", "count_distinct", '"s"."t"', "bigint"),
        ("sum(i)", "sum", '"s"."i"', "bigint"),
        ("sum(d)", "sum", '"s"."d"', "decimal(38,2)"),
        ("sum(f * 2)", "sum", '"s"."f" * 2', "double"),
        ("avg(i)", "avg", '"s"."i"', "double"),
        ("min(s.t)", "min", '"s"."t"', "string"),
        ("max(ts)", "max", '"s"."ts"', "timestamp"),
        ("sum(case when o then 1 else 0 end)", "sum", 'CASE WHEN "s"."o" THEN 1 ELSE 0 END', "bigint"),
    ],
)
def test_an_aggregate_is_read_with_its_argument_and_type(text: str, function: str, argument: str | None, kind: str) -> None:
    found = parse_aggregate(text, SCHEMA)
    assert (found.function, found.argument, found.limit, str(found.type)) == (function, argument, None, kind)


@pytest.mark.parametrize("text", ["top_k(i, 3)", "TOPK(s.i, 3)"])
def test_the_greatest_values_are_read_with_their_number(text: str) -> None:
    found = parse_aggregate(text, SCHEMA)
    assert (found.function, found.argument, found.limit, str(found.type)) == ("top_k", '"s"."i"', 3, "array<int>")


def test_only_aggregates_that_a_row_can_be_taken_out_of_are_undoable() -> None:
    functions = {name for part in get_args(AggregateFunction) for name in (get_args(part) or (part,))}
    kept = {"count", "count_distinct", "sum", "sum_list", "avg", "stddev", "variance", "correlation", "median", "percentile"}
    kept |= {"approx_percentile", "histogram", "attr", "collect_list", "trace"}
    of_ksqldb = {"sum", "sum_list", "avg", "stddev_samp", "stddev_sample", "correlation", "collect_list", "histogram"}
    undoable = kept | {f"ksql_{name}" for name in of_ksqldb}
    assert {function for function in functions if is_undoable(function)} == undoable


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("i", "expression_malformed"),
        ("i + 1", "expression_malformed"),
        ("sum(i) / count(*)", "not_supported_yet"),
        ("median(s.t)", "type_mismatch"),
        ("median(i, 0.5)", "type_mismatch"),
        ("percentile(i)", "type_mismatch"),
        ("percentile(i, 1.5)", "type_mismatch"),
        ("percentile(i, i)", "type_mismatch"),
        ("approx_percentile(i, '0.5')", "type_mismatch"),
        ("max_by(i)", "type_mismatch"),
        ("max_by(i, arr)", "type_mismatch"),
        ("correlation(i, s.t)", "type_mismatch"),
        ("correlation(i, i, i)", "type_mismatch"),
        ("sum_list(i)", "type_mismatch"),
        ("first_by_arrival(i, 0)", "type_mismatch"),
        ("first_by_arrival(i, TRUE, 2)", "type_mismatch"),
        ("last_by_arrival(i, 2, 3)", "type_mismatch"),
        ("last_by_arrival(*, 2)", "type_mismatch"),
        ("collect_list(i, i)", "type_mismatch"),
        ("top_k_distinct(i, i, 3)", "type_mismatch"),
        ("top_k(i, *, 3)", "type_mismatch"),
        ("stddev_pop(f)", "not_supported_yet"),
        ("stddev(s.t)", "type_mismatch"),
        ("collect_set(map('a' := i))", "type_mismatch"),
        ("histogram(arr)", "type_mismatch"),
        ("top_k(i)", "type_mismatch"),
        ("top_k(i, 0)", "type_mismatch"),
        ("top_k(i, 101)", "type_mismatch"),
        ("top_k(i, '3')", "type_mismatch"),
        ("top_k(i, i)", "type_mismatch"),
        ("top_k(i, 1.5)", "type_mismatch"),
        ("top_k(*, 3)", "type_mismatch"),
        ("top_k(o, 3)", "type_mismatch"),
        ("first(*)", "type_mismatch"),
        ("collect_list(distinct i)", "not_supported_yet"),
        ("trace(s.t)", "unknown_function"),
        ("sum(distinct i)", "not_supported_yet"),
        ("concat(s.t)", "unknown_function"),
        ("pg_sleep(1)", "unknown_function"),
        ("sum(s.t)", "type_mismatch"),
        ("sum(*)", "type_mismatch"),
        ("sum()", "type_mismatch"),
        ("sum(i, i)", "type_mismatch"),
        ("max(o)", "type_mismatch"),
        ("count(distinct map('a' := i))", "type_mismatch"),
        ("sum(nope)", "unknown_column"),
        ("sum(sum(i))", "not_a_scalar"),
        ("count(*) filter (where o)", "expression_malformed"),
        ("sum(i) over ()", "not_a_scalar"),
    ],
)
def test_an_aggregate_is_refused_with_this_code(text: str, code: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        parse_aggregate(text, SCHEMA)
    assert caught.value.code == code


def test_a_list_of_the_deepest_type_is_refused() -> None:
    deepest = parse_type("array<" * MAX_TYPE_NESTING + "int" + ">" * MAX_TYPE_NESTING)
    with pytest.raises(ExpressionInvalid) as caught:
        parse_aggregate("collect_list(x)", Schema((("s.x", deepest),)))
    assert caught.value.code == "type_mismatch"


def test_the_deepest_expression_allowed_compiles_far_down_a_stack() -> None:
    def down(frames: int, text: str) -> str:
        return str(compile_scalar(text, SCHEMA).type) if frames == 0 else down(frames - 1, text)

    assert down(450, "abs(" * MAX_NESTING + "i" + ")" * MAX_NESTING) == "bigint"
    assert down(450, "case when o then " * MAX_NESTING + "1" + " end" * MAX_NESTING) == "int"

"""Expressions: their values and types over a literal table, and that nothing stops a batch."""

from __future__ import annotations

import datetime as dt
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.expressions.expressions import compile_scalar, qualify
from engine.expressions.types.types import Schema, parse_type

SCHEMA = Schema(
    tuple(
        (name, parse_type(kind))
        for name, kind in {
            "s.i": "int", "s.b": "bigint", "s.d": "decimal(10,2)", "s.f": "double", "s.t": "string", "s.ts": "timestamp",
            "s.da": "date", "s.ti": "time", "s.o": "boolean", "s.arr": "array<int>", "w.u": "string", "w.$match": "string",
        }.items()
    )
)  # fmt: skip
UTC = dt.UTC
FRAME = pl.DataFrame(
    {
        "s.i": [1, -7, None],
        "s.b": [2**63 - 1, -(2**63), 0],
        "s.d": [Decimal("1.50"), Decimal("-2.25"), None],
        "s.f": [1.5, -2.5, 0.0],
        "s.t": ["abc", "A%c", None],
        "s.ts": [dt.datetime(2013, 1, 1, 12, 30, 5, tzinfo=UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), None],
        "s.da": [dt.date(2013, 1, 1), None, dt.date(2020, 2, 29)],
        "s.ti": [dt.time(1, 2, 3, 4), None, None],
        "s.o": [True, False, None],
        "s.arr": [[1], None, [2]],
        "w.u": ["x", "y", "z"],
        "w.$match": ["matched", "deleted", "no_version"],
    },
    schema=SCHEMA.polars(),
)
NOTHING = [None, None, None]
JANUARY_FIRST = dt.datetime(2013, 1, 1, tzinfo=UTC)


def values(text: str, frame: pl.DataFrame = FRAME) -> list[Any]:
    return frame.select(compile_scalar(text, SCHEMA).expr.alias("x"))["x"].to_list()


CASES: list[tuple[str, str, list[Any]]] = [
    # literals and columns
    ("1", "int", [1, 1, 1]),
    ("2147483648", "bigint", [2**31] * 3),
    ("'it''s'", "string", ["it's"] * 3),
    ("s.i", "int", [1, -7, None]),
    ("i", "int", [1, -7, None]),
    ('"s"."i"', "int", [1, -7, None]),
    ("$match", "string", ["matched", "deleted", "no_version"]),
    ("w.$match = 'matched'", "boolean", [True, False, False]),
    # whole numbers: bigint, NULL where it does not fit
    ("i + 1", "bigint", [2, -6, None]),
    ("b + 1", "bigint", [None, 1 - 2**63, 1]),
    ("b * b", "bigint", [None, None, 0]),
    ("-b", "bigint", [1 - 2**63, None, 0]),
    ("abs(b)", "bigint", [2**63 - 1, None, 0]),
    ("b / -1", "bigint", [1 - 2**63, None, 0]),
    ("i / 2", "bigint", [0, -3, None]),
    ("i % 2", "bigint", [1, -1, None]),
    ("7 % -2", "bigint", [1, 1, 1]),
    ("i / 0", "bigint", NOTHING),
    ("mod(i, 0)", "bigint", NOTHING),
    # decimals are exact
    ("d + 1.5", "decimal(11,2)", [Decimal("3.00"), Decimal("-0.75"), None]),
    ("d * d", "decimal(20,4)", [Decimal("2.2500"), Decimal("5.0625"), None]),
    ("-d", "decimal(10,2)", [Decimal("-1.50"), Decimal("2.25"), None]),
    ("d / 2", "double", [0.75, -1.125, None]),
    ("d + f", "double", [3.0, -4.75, None]),
    ("round(d, 1)", "decimal(11,2)", [Decimal("1.50"), Decimal("-2.30"), None]),
    ("floor(d)", "decimal(11,2)", [Decimal("1.00"), Decimal("-3.00"), None]),
    # doubles are finite or NULL
    ("f / 0", "double", NOTHING),
    ("f * 1e308 * 10", "double", [None, None, 0.0]),
    ("f % 2", "double", [1.5, -0.5, 0.0]),
    ("sqrt(f)", "double", [1.5**0.5, None, 0.0]),
    ("ln(f)", "double", [pytest.approx(0.4054651081081644), None, None]),
    ("exp(1000)", "double", NOTHING),
    ("power(i, 2)", "double", [1.0, 49.0, None]),
    ("round(f)", "double", [2.0, -3.0, 0.0]),
    ("ceil(f)", "double", [2.0, -2.0, 0.0]),
    ("sign(f)", "int", [1, -1, 0]),
    # texts
    ("s.t || 'x'", "string", ["abcx", "A%cx", None]),
    ("concat(s.t, w.u)", "string", ["abcx", "A%cy", "z"]),
    ("lower(s.t)", "string", ["abc", "a%c", None]),
    ("upper(s.t)", "string", ["ABC", "A%C", None]),
    ("length(s.t)", "bigint", [3, 3, None]),
    ("substring(s.t, 2)", "string", ["bc", "%c", None]),
    ("substring(s.t, 0, 2)", "string", ["a", "A", None]),
    ("substring(s.t, 2, -1)", "string", ["", "", None]),
    ("substring(s.t, b, b)", "string", ["", "", None]),
    ("left(s.t, 2)", "string", ["ab", "A%", None]),
    ("right(s.t, b)", "string", ["abc", "", None]),
    ("trim('  a ')", "string", ["a"] * 3),
    ("ltrim(s.t, 'aA')", "string", ["bc", "%c", None]),
    ("rtrim(s.t, 'c')", "string", ["ab", "A%", None]),
    ("replace(s.t, 'b', '$0')", "string", ["a$0c", "A%c", None]),
    ("replace(s.t, '', 'x')", "string", ["abc", "A%c", None]),
    ("replace(s.t, 'b', NULL)", "string", NOTHING),
    ("starts_with(s.t, 'a')", "boolean", [True, False, None]),
    ("ends_with(s.t, 'c')", "boolean", [True, True, None]),
    ("contains(s.t, '%')", "boolean", [False, True, None]),
    ("s.t LIKE 'a%'", "boolean", [True, False, None]),
    ("s.t LIKE 'A\\%c'", "boolean", [False, True, None]),
    ("s.t LIKE 'A!%c' ESCAPE '!'", "boolean", [False, True, None]),
    ("s.t NOT LIKE '%b%'", "boolean", [False, True, None]),
    ("s.t ILIKE 'A_C'", "boolean", [True, True, None]),
    ("s.t LIKE '(.*'", "boolean", [False, False, None]),
    # times
    ("ts > '2013-01-01'", "boolean", [True, False, None]),
    ("ts = '2013-01-01T13:30:05+01:00'", "boolean", [True, False, None]),
    ("ts > da", "boolean", [True, None, None]),
    ("da = '2013-01-01'", "boolean", [True, None, False]),
    ("timestamp '2013-01-01 00:00:00'", "timestamp", [JANUARY_FIRST] * 3),
    ("date_trunc('day', ts)", "timestamp", [JANUARY_FIRST, dt.datetime(1969, 12, 31, tzinfo=UTC), None]),
    ("extract(year from ts)", "int", [2013, 1969, None]),
    ("extract(dow from da)", "int", [2, None, 6]),
    ("epoch_ms(ts)", "bigint", [1357043405000, -1, None]),
    ("to_timestamp(1356998400000)", "timestamp", [JANUARY_FIRST] * 3),
    ("to_timestamp(b)", "timestamp", [None, None, dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    # casts: what does not fit is NULL
    ("cast(b as int)", "int", [None, None, 0]),
    ("f::bigint", "bigint", [1, -2, 0]),
    ("cast(s.t as int)", "int", NOTHING),
    ("cast('nan' as double)", "double", NOTHING),
    ("cast('1.239' as decimal(5,2))", "decimal(5,2)", [Decimal("1.24")] * 3),
    ("cast(b as decimal(5,2))", "decimal(5,2)", [None, None, Decimal("0.00")]),
    ("ts::text", "string", ["2013-01-01T12:30:05Z", "1969-12-31T23:59:59.999Z", None]),
    ("ti::string", "string", ["01:02:03.000004", None, None]),
    ("o::int", "int", [1, 0, None]),
    ("cast('10000-01-01' as date)", "date", NOTHING),
    ("cast('0000-12-31' as date)", "date", NOTHING),
    ("cast('-0001-01-01' as timestamp)", "timestamp", NOTHING),
    ("cast('9999-12-31T23:59:59-05:00' as timestamp)", "timestamp", NOTHING),
    ("cast('9999-12-31T23:59:59.999999Z' as timestamp)", "timestamp", [dt.datetime.max.replace(tzinfo=UTC)] * 3),
    ("cast('0001-01-01' as date)", "date", [dt.date.min] * 3),
    ("to_timestamp(-62135596800001)", "timestamp", NOTHING),
    ("to_timestamp(-62135596800000)", "timestamp", [dt.datetime.min.replace(tzinfo=UTC)] * 3),
    ("cast('TRUE' as boolean)", "boolean", [True] * 3),
    ("cast('2013-01-01' as timestamp)", "timestamp", [JANUARY_FIRST] * 3),
    ("cast('2013-01-01 01:00:00+01:00' as timestamp)", "timestamp", [JANUARY_FIRST] * 3),
    ("cast(NULL as string)", "string", NOTHING),
    # logic is three-valued
    ("o AND NULL", "boolean", [None, False, None]),
    ("o OR NULL", "boolean", [True, None, None]),
    ("NOT o", "boolean", [False, True, None]),
    ("o IS TRUE", "boolean", [True, False, False]),
    ("o IS NOT TRUE", "boolean", [False, True, True]),
    ("arr IS NULL", "boolean", [False, True, False]),
    ("o IS DISTINCT FROM true", "boolean", [False, True, True]),
    ("s.t IN ('abc', NULL)", "boolean", [True, None, None]),
    ("i NOT IN (1, NULL)", "boolean", [False, None, None]),
    ("i IN (1, 2.5, -7)", "boolean", [True, True, None]),
    ("i BETWEEN -7 AND 0", "boolean", [False, True, None]),
    ("i = NULL", "boolean", NOTHING),
    # numbers meet in the wider type
    ("d > 1.555", "boolean", [False, False, None]),
    ("b = 9223372036854775807", "boolean", [True, False, False]),
    ("b < 9223372036854775808", "boolean", [True, True, True]),
    # choices
    ("case i when 1 then 'one' when -7 then 'seven' end", "string", ["one", "seven", None]),
    ("case when o then 1 when i < 0 then 2.5 else NULL end", "double", [1.0, 2.5, None]),
    ("coalesce(i, b, 0)", "bigint", [1, -7, 0]),
    ("nullif(i, 1)", "int", [None, -7, None]),
    ("greatest(i, 0)", "int", [1, 0, 0]),
    ("least(s.t, w.u)", "string", ["abc", "A%c", "z"]),
]


@pytest.mark.parametrize(("text", "kind", "expected"), CASES, ids=[text for text, _, _ in CASES])
def test_an_expression_has_this_type_and_these_values(text: str, kind: str, expected: list[Any]) -> None:
    scalar = compile_scalar(text, SCHEMA)
    found = FRAME.select(scalar.expr.alias("x"))["x"]
    assert (str(scalar.type), found.dtype, found.to_list()) == (kind, parse_type(kind).polars, expected)


@pytest.mark.parametrize("text", [text for text, _, _ in CASES])
def test_the_canonical_text_means_the_same_and_is_its_own_canonical_text(text: str) -> None:
    canonical = qualify(text, SCHEMA)
    assert values(canonical) == values(text)
    assert qualify(canonical, SCHEMA) == canonical


@pytest.mark.parametrize("text", [text for text, _, _ in CASES])
def test_no_expression_fails_on_an_empty_frame_or_on_nulls(text: str) -> None:
    assert values(text, FRAME.clear()) == []
    assert len(values(text, FRAME.clear(2))) == 2


def test_an_expression_says_which_columns_it_reads() -> None:
    assert compile_scalar("case when w.u = 'x' then i end", SCHEMA).columns == {"w.u", "s.i"}
    assert compile_scalar("1 + 1", SCHEMA).columns == frozenset()


def test_a_canonical_text_can_take_other_names() -> None:
    renamed = qualify("s.i + i > 1 and w.u = 'i'", SCHEMA, lambda name: (None, name.partition(".")[2]))
    assert renamed == '"i" + "i" > 1 AND "u" = \'i\''


def test_an_exact_name_is_preferred_to_a_qualified_one() -> None:
    schema = Schema((("x", parse_type("int")), ("s.x", parse_type("string"))))
    assert str(compile_scalar("x", schema).type) == "int"


def test_long_chains_of_and_are_fine() -> None:
    assert values(" and ".join(["i < 5"] * 600)) == [True, True, None]


@given(st.text(max_size=30), st.text(alphabet="ab%_\\.*[(^$\n", max_size=8))
def test_like_is_what_a_naive_matcher_says(text: str, pattern: str) -> None:
    if pattern.replace("\\\\", "").endswith("\\"):
        return
    quoted = pattern.replace("'", "''")
    frame = FRAME.head(1).with_columns(pl.lit(text).alias("s.t"))
    assert values(f"s.t LIKE '{quoted}'", frame) == [matches(text, pattern)]


def matches(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%":
        return any(matches(text[i:], rest) for i in range(len(text) + 1))
    if head == "\\":
        return bool(text) and text[0] == rest[0] and matches(text[1:], rest[1:])
    return bool(text) and head in ("_", text[0]) and matches(text[1:], rest)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.sampled_from("+-*/%"))
def test_bigint_arithmetic_is_exact_or_null(left: int, right: int, sign: str) -> None:
    frame = pl.DataFrame({"a": [left], "b": [right]}, schema={"a": pl.Int64, "b": pl.Int64})
    schema = Schema((("a", parse_type("bigint")), ("b", parse_type("bigint"))))
    (found,) = frame.select(compile_scalar(f"a {sign} b", schema).expr.alias("x"))["x"].to_list()
    assert found == exact(left, right, sign)


def exact(left: int, right: int, sign: str) -> int | None:
    if sign in "/%":
        if right == 0:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        result = quotient if sign == "/" else left - quotient * right
    else:
        result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return result if -(2**63) <= result < 2**63 else None


@pytest.mark.parametrize("scale", [0, 1, 2, 37, 38])
@pytest.mark.parametrize("call", ["ceil(d)", "floor(d)", "round(d)", "round(d, 1)"])
def test_a_rounded_decimal_of_one_digit_too_many_is_null_and_stops_nothing(call: str, scale: int) -> None:
    kind, unit = parse_type(f"decimal(38,{scale})"), Decimal(f"1e-{scale}")
    with localcontext(prec=80):
        whole, step = 10 ** (38 - scale), Decimal("0.1") if call == "round(d, 1)" else Decimal(1)
        near = [whole - unit, whole - step, whole - step + unit, whole - step / 2, whole - step / 2 - unit, Decimal(0)]
        given = [
            value.quantize(unit) for value in (*near, *(-value for value in near)) if abs(value) < whole and not value % unit
        ]
        mode = {"c": ROUND_CEILING, "f": ROUND_FLOOR, "r": ROUND_HALF_UP}[call[0]]
        rounded = [(value / step).quantize(Decimal(1), mode) * step if step >= unit else value for value in given]
        wanted = [value if abs(value) < whole else None for value in rounded]
    frame = pl.DataFrame({"d": pl.Series(given, dtype=kind.polars)})
    assert frame.select(compile_scalar(call, Schema((("d", kind),))).expr.alias("x"))["x"].to_list() == wanted

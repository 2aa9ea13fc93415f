"""An expression costs what it is long: nothing that a part of it is used for makes it grow with a power of its length."""

from __future__ import annotations

import datetime as dt
import re

import polars as pl
import pytest

from engine.expressions.expressions import compile_scalar
from engine.expressions.library.function_list import FUNCTIONS
from engine.expressions.types.types import BIGINT, BOOLEAN, BYTES, DOUBLE, STRING, TIMESTAMP, Schema, decimal, parse_type

ARRAY, MAP = parse_type("array<bigint>"), parse_type("map<string,bigint>")
SCHEMA = Schema(
    (
        ("n", BIGINT),
        ("d", DOUBLE),
        ("m", decimal(12, 2)),
        ("s", STRING),
        ("t", TIMESTAMP),
        ("b", BOOLEAN),
        ("y", BYTES),
        ("a", ARRAY),
        ("p", MAP),
    )
)
ARRAYS = pl.Series([[1, 2], None], dtype=ARRAY.polars)
FRAME = pl.DataFrame(
    {"n": [1, 2], "d": [0.5, 2.0], "m": ["1.25", "2"], "s": ["a", None], "t": [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)] * 2,
        "b": [True, None], "y": [b"1", b"2"], "a": ARRAYS, "p": pl.Series([[{"key": "a", "value": 1}], None], dtype=MAP.polars)}
).with_columns(pl.col("m").cast(pl.Decimal(12, 2)))  # fmt: skip

_ROOTS = ("sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians", "cbrt", "log")
_OF_KSQLDB = ("cot", "asin", "acos", "sinh", "cosh", "log", "sqrt", "ln", "exp")
CALLS_OF_NUMBERS: dict[str, tuple[str, ...]] = {
    **{name: (f"{name}(D)",) for name in (*_ROOTS, *(f"ksql_{each}" for each in _OF_KSQLDB))},
    "pi": ("pi() + D",),
    "ksql_abs": ("ksql_abs(N)", "ksql_abs(D)"),
    "atan2": ("atan2(D, 1)", "atan2(1, D)"),
    "ksql_power": ("ksql_power(D, 1)", "ksql_power(1, D)"),
    "ksql_round": ("ksql_round(N)", "ksql_round(D, 1)", "ksql_round(M, 1)", "ksql_round(2.5, ksql_round(D))"),
    "trunc": ("trunc(D)", "trunc(D, 1)", "trunc(M, 1)"),
    "geo_distance": tuple(f"geo_distance({', '.join('D' if at == each else '1' for at in range(4))})" for each in range(4)),
}
CALLS_OF_TEXTS: dict[str, tuple[str, ...]] = {
    **{
        name: (f"{name}(S)",)
        for name in ("ksql_trim", "initcap", "md5", "url_encode_param", "url_decode_param", "to_json_string")
    },
    **{f"url_extract_{part}": (f"url_extract_{part}(S)",) for part in ("protocol", "host", "path", "query", "fragment")},
    "url_extract_port": ("cast(url_extract_port(S) as string)",),
    "url_extract_parameter": ("url_extract_parameter(S, 'a')", "url_extract_parameter('http://a?a=b', S)"),
    "concat_ws": ("concat_ws(S, 'a', 'b')", "concat_ws(',', S, 'b')"),
    "ksql_length": ("ksql_length(cast(N as string))",),
    "ksql_substring": (
        "ksql_substring(S, 1, 2)",
        "ksql_length(ksql_substring('abc', N, 2))",
        "ksql_length(ksql_substring('abc', 1, N))",
    ),
    "lpad": ("lpad(S, 2, 'a')", "ksql_length(lpad('abc', N, 'a'))", "lpad('a', 2, S)"),
    "rpad": ("rpad(S, 2, 'a')", "ksql_length(rpad('abc', N, 'a'))", "rpad('a', 2, S)"),
    "ksql_replace": ("ksql_replace(S, 'a', 'b')", "ksql_replace('abc', S, 'b')", "ksql_replace('abc', 'b', S)"),
    "instr": ("cast(instr(S, 'a') as string)", "instr('abc', 'b', N)", "instr('abc', 'b', 1, N)"),
    "chr": ("chr(S)", "ksql_length(chr(N))"),
    "elt": ("elt(1, S, 'b')", "ksql_length(elt(N, 'a', 'b'))"),
    "field": ("cast(field(S, 'a') as string)", "cast(field('a', 'b', S) as string)"),
    "split": ("to_json_string(split(S, ','))", "to_json_string(split('a', S))"),
    "split_to_map": ("to_json_string(split_to_map(S, ',', ':'))",),
    "mask": ("mask(S)", "mask('a', S, 'x', 'n', '-')"),
    **{
        name: (f"{name}(S, 2)", f"ksql_length({name}('abc', N))")
        for name in ("mask_left", "mask_right", "mask_keep_left", "mask_keep_right")
    },
    "regexp_extract": ("regexp_extract('a', S)", "regexp_extract(S, 'a')", "ksql_length(regexp_extract('a', 'a', N))"),
    "regexp_extract_all": ("to_json_string(regexp_extract_all('a', S))",),
    "cube": ("cube(array[S])[1][1]",),
    "regexp_replace": ("regexp_replace(S, 'a', 'b')", "regexp_replace('a', S, 'b')", "regexp_replace('a', 'a', S)"),
    "regexp_split_to_array": ("to_json_string(regexp_split_to_array(S, ','))",),
    "to_bytes": ("from_bytes(to_bytes(S, 'utf8'), 'hex')", "from_bytes(to_bytes('a', S), 'hex')"),
    "from_bytes": ("from_bytes(to_bytes(S, 'utf8'), 'utf8')",),
    "encode": ("encode(S, 'utf8', 'hex')", "encode('a', S, 'hex')"),
    **{f"{kind}_from_bytes": (f"{kind}_from_bytes(lpad(y, N, y))",) for kind in ("int", "bigint")},
    "double_from_bytes": ("double_from_bytes(y) + D",),
    "uuid": ("uuid(to_bytes(S, 'utf8'))",),
    "extractjsonfield": ("extractjsonfield(S, '$.a')", "extractjsonfield('{}', S)"),
    "is_json_string": ("cast(is_json_string(S) as string)",),
    "json_array_length": ("cast(json_array_length(S) as string)",),
    "json_array_contains": ("cast(json_array_contains(S, 'a') as string)", "cast(json_array_contains('[]', S) as string)"),
    "json_concat": ("json_concat(S, '[]')", "json_concat('[]', S)"),
    **{name: (f"to_json_string({name}(S))",) for name in ("json_keys", "json_items", "json_records")},
}

_READ = "yyyy-MM-dd HH:mm:ss"
CALLS_OF_TIMES: dict[str, tuple[str, ...]] = {
    "format_timestamp": (
        f"parse_timestamp(format_timestamp(T, '{_READ}'), '{_READ}')",
        "format_timestamp(t, S)",
        f"format_timestamp(T, '{_READ} XXX', 'Asia/Tokyo')::timestamp",
        "format_timestamp(t, 'yyyy', S)",
    ),
    "parse_timestamp": (f"format_timestamp(parse_timestamp(S, '{_READ}X', 'Asia/Tokyo'), '{_READ}X')",),
    "format_date": (f"format_date(parse_date(S, '{_READ}'), '{_READ[:10]}')", "format_date(DATE '2013-01-01', S)"),
    "parse_date": ("format_date(parse_date('2013', S), 'yyyy')",),
    "format_time": ("format_time(parse_time(S, 'HH:mm'), 'HH:mm')",),
    "parse_time": ("format_time(parse_time('12', S), 'HH')",),
    "timestamp_to_string": ("string_to_timestamp(timestamp_to_string(N, 'HH:mm:ss'), 'HH:mm:ss')",),
    "string_to_timestamp": ("timestamp_to_string(string_to_timestamp(S, 'HH:mm:ss'), 'HH:mm:ss')",),
    "date_to_string": ("string_to_date(date_to_string(N, 'yyyyMMdd'), 'yyyyMMdd')",),
    "string_to_date": ("date_to_string(string_to_date(S, 'yyyyMMdd'), 'yyyyMMdd')",),
    **{
        name: (f"{name}('days', 1, T::date)::timestamp", f"unix_date({name}('days', N, t::date))")
        for name in ("date_add", "date_sub")
    },
    **{name: (f"length({name}('hours', N, t::time)::string)",) for name in ("time_add", "time_sub")},
    **{name: (f"{name}('days', 1, T)", f"epoch_ms({name}('days', N, t))") for name in ("timestamp_add", "timestamp_sub")},
    "convert_tz": ("convert_tz(T, 'UTC', 'Asia/Tokyo')", "format_timestamp(convert_tz(t, S, 'UTC'), 'VV')"),
    "from_days": ("unix_date(from_days(N))",),
    "unix_date": ("unix_date(from_days(N))",),
}

# Of each function a call for each place that a value can stand in; the capital letter is where the call is put into itself.
CALLS: dict[str, tuple[str, ...]] = {
    **{name: (f"{name}(D)",) for name in ("abs", "round", "floor", "ceil", "sign", "sqrt", "ln", "exp")},
    **{name: (f"{name}(S)",) for name in ("lower", "upper", "trim", "ltrim", "rtrim")},
    "power": ("power(D, 1)", "power(1, D)"),
    **CALLS_OF_NUMBERS,
    **CALLS_OF_TEXTS,
    **CALLS_OF_TIMES,
    "plus": ("plus(D, 1)", "plus(1, D)"),
    "minus": ("minus(D, 1)", "minus(1, D)"),
    "times": ("times(D, 1)", "times(1, D)"),
    "negated": ("negated(D)",),
    "divide": ("divide(D, 3)", "divide(3, D)"),
    "remainder": ("remainder(D, 3)", "remainder(3, D)"),
    "mod": ("mod(N, 3)", "mod(7, N)", "mod(D, 3)", "mod(3, D)"),
    "length": ("length(cast(N as string))",),
    "substring": ("substring(S, 1, 2)", "length(substring('abc', N, 2))", "length(substring('abc', 1, N))", "length(substring('abc', N))"),
    "replace": ("replace(S, 'a', 'b')", "replace('abc', 'b', S)"),
    "concat": ("concat(S, 'x')",),
    "left": ("left(S, 2)", "length(left('abc', N))"),
    "right": ("right(S, 2)", "length(right('abc', N))"),
    **{name: (f"cast({name}(S, 'a') as string)", f"cast({name}('a', S) as string)") for name in ("starts_with", "ends_with", "contains")},
    "nullif": ("nullif(N, 7)", "nullif(7, N)", "nullif(D, n)"),
    **{name: (f"{name}(N, 1)", f"{name}(1, N)") for name in ("coalesce", "greatest", "least")},
    "one_of": ("cast(one_of(S, 'a') as string)", "case when one_of(N, '1', '2') then 1 end"),
    "date_trunc": ("date_trunc('day', T)",),
    "to_timestamp": ("epoch_ms(to_timestamp(N))",),
    "ksql_cast": (
        "ksql_cast(ksql_cast(N, 'string'), 'bigint')", "ksql_cast(D, 'int') + 0.5", "ksql_cast(ksql_cast(D, 'string'), 'int')",
        "ksql_cast(A, 'array<bigint>')", "ksql_cast(ksql_cast(T, 'string'), 'timestamp')",
        *(f"ksql_cast(ksql_cast(S, '{kind}'), 'string')" for kind in ("date", "time", "boolean")),
    ),
    "ksql_array": ("array_max(ksql_array(D, 1, '2'))",),
    "array_contains": ("case when array_contains(A, 1) then a end", "cast(array_contains(array[1, 2], N) as bigint)"),
    "array_length": ("generate_series(1, array_length(A))",),
    **{name: (f"{name}(A)",) for name in ("array_distinct", "array_sort")},
    **{name: (f"{name}(A, array[1])", f"{name}(array[1], A)") for name in ("array_union", "array_intersect", "array_except", "array_concat")},
    "array_remove": ("array_remove(A, 1)", "array_length(array_remove(array[1, 2], N))"),
    **{name: (f"array[{name}(A)]",) for name in ("array_max", "array_min")},
    "array_join": ("array_join(array[S])",),
    "slice": ("slice(A, 1, 2)", "array_length(slice(array[1], N, 1))", "array_length(slice(array[1], 1, N))"),
    "generate_series": tuple(f"array_length(generate_series({each}))" for each in ("N, 3", "1, N", "1, 9, N")),
    "map_keys": ("as_map(map_keys(P), array[1])",),
    "map_values": ("map_values(map('a' := A))[1]",),
    "map_union": ("map_union(P, p)", "map_union(p, P)"),
    "entries": ("map('a' := entries(P)[1]->\"V\")",),
    "as_map": ("map_values(as_map(array['a'], A))",),
    "transform": ("transform(A, x => x + 1)",),
    "filter": ("filter(A, x => x > 1)",),
    "reduce": ("reduce(a, N, (s, x) => s + x)",),
    "epoch_ms": ("to_timestamp(epoch_ms(T))",),
}  # fmt: skip
OPERATORS = (
    *(f"{column} {sign} 3" for column in "NDM" for sign in "+-*/%"),
    *(f"3 {sign} {column}" for column in "NDM" for sign in "+-*/%"),
    "-N", "-D", "cast(cast(D as string) as double)", "cast(cast(N as string) as bigint)", "cast(cast(T as string) as timestamp)",
    "cast(cast(T as date) as timestamp)", "cast(cast(B as string) as boolean)", "not B", "B is true", "B and n > 1", "B or n / n = 1",
    "case when N between 1 and 2 then 1 end", "case when 1 between N and 2 then 1 end", "case when N in (1, 2, 3) then 1 end",
    "case N when 1 then 2 when 2 then 3 end", "case 1 when N then 2 when 2 then 3 end", "case when b then N else 1 end",
    "case when N > 1 then n else 1 end", "case when S like 'a%' then s end", "S || 'x'", "extract(year from to_timestamp(N))",
)  # fmt: skip


OF_MANY = (
    ("concat", "s"), ("concat", "y"), ("coalesce", "s"), ("greatest", "n"), ("least", "n"), ("json_concat", "s"), ("field", "s"),
)  # fmt: skip
"""Functions of any number of arguments, and one of them."""


def nested(text: str, depth: int) -> str:
    """Put an expression into itself, in place of its capital letter, which stands for the column of that name."""
    result = hole = next(letter for letter in re.findall(r"\b[NDMSTBAP]\b", text))
    for _ in range(depth):
        result = re.sub(rf"\b{hole}\b", f"({result})", text)
    return re.sub(rf"\b{hole}\b", hole.lower(), result)


def size(text: str) -> int:
    """Count the parts; what is computed in Python cannot be written down."""
    return len(str(compile_scalar(text, SCHEMA).expr))


def test_every_function_is_discovered() -> None:
    assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize("text", [*(text for texts in CALLS.values() for text in texts), *OPERATORS])
def test_an_expression_in_itself_grows_by_the_same_each_time(text: str) -> None:
    one, two, three = (size(nested(text, depth)) for depth in (1, 3, 5))
    assert three - two <= 2 * (two - one) + 200


@pytest.mark.parametrize(
    ("each", "between", "around"),
    [
        *((each, ", ", f"{name}({{}})") for name, each in OF_MANY),
        ("s", ", ", "concat_ws({})"), ("s", ", ", "elt(n, {})"), ("s", " || ", "{}"), ("n", ", ", "n in ({})"), ("n", ", ", "array[{}][1]"),
        ("when n = 1 then s", " ", "case {} end"), ("when n then s", " ", "case n {} end"), ("b", " and ", "{}"), ("b", " or ", "{}"),
    ],
)  # fmt: skip
def test_each_further_argument_costs_the_same(each: str, between: str, around: str) -> None:
    few, more, many = (size(around.format(between.join([each] * number))) for number in (8, 16, 32))
    assert many - more <= 2 * (more - few) + 200


@pytest.mark.parametrize("text", [*(text for texts in CALLS.values() for text in texts), *OPERATORS])
def test_an_expression_in_itself_is_computed(text: str) -> None:
    scalar = compile_scalar(nested(text, 4), SCHEMA)
    for rows in (0, 1, 2):
        found = FRAME.head(rows).select(scalar.expr.alias("x"))
        assert (found.height, found.dtypes) == (rows, [scalar.type.polars])


def test_a_sum_of_many_doubles_is_one_sum() -> None:
    scalar = compile_scalar(" + ".join(["d"] * 60), SCHEMA)
    assert FRAME.select(scalar.expr.alias("x"))["x"].to_list() == [30.0, 120.0]


@pytest.mark.parametrize("branches", [3, 9, 200])
def test_a_case_gives_its_first_true_branch_however_many_there_are(branches: int) -> None:
    whens = " ".join(f"when n = {number} then {'null' if number == 2 else number * 10}" for number in range(branches))
    frame = pl.DataFrame({"n": [0, 1, 2, branches - 1, branches, None]})
    for text in (f"case {whens} else -1 end", f"case {whens} when true then -1 end"):
        scalar = compile_scalar(text, SCHEMA)
        last = None if branches == 3 else (branches - 1) * 10
        assert frame.select(scalar.expr.alias("x"))["x"].to_list() == [0, 10, None, last, -1, -1]


def test_a_written_text_takes_a_replacement_from_each_record() -> None:
    scalar = compile_scalar("replace('abc', 'b', s)", SCHEMA)
    assert FRAME.select(scalar.expr.alias("x"))["x"].to_list() == ["aac", None]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("replace(s, 'a', '" + "b" * 2_000 + "')", None),
        (
            "replace(replace(replace(replace(s, 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa')",
            None,
        ),
        ("concat(s, s)", 2_000),
        ("concat(" + ", ".join(["s"] * 400) + ", " + ", ".join(["s"] * 90) + ")", 490_000),
        (" || ".join(["concat(" + "s, " * 49 + "s)"] * 25), None),
        ("concat(null, s)", 1_000),
    ],
)
def test_a_text_grows_up_to_a_bound_and_is_null_and_counted_beyond(text: str, length: int | None) -> None:
    frame = pl.DataFrame({"s": ["a" * 1_000, "", None]})
    scalar = compile_scalar(text, SCHEMA)
    found = frame.select(scalar.expr.str.len_bytes().alias("x"), *[gap.is_met.alias(str(n)) for n, gap in enumerate(scalar.gaps)])
    assert found["x"][0] == length
    assert any(found[column][0] for column in found.columns[1:]) == (length is None)
    assert not any(found[column][1] or found[column][2] for column in found.columns[1:])

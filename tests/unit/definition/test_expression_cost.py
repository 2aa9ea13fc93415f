"""An expression costs what it is long: nothing that a part of it is used for makes it grow with a power of its length."""

from __future__ import annotations

import datetime as dt
import re

import polars as pl
import pytest

from engine.definition.expressions import compile_scalar
from engine.definition.function_list import FUNCTIONS
from engine.definition.types import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, Schema, decimal

SCHEMA = Schema((("n", BIGINT), ("d", DOUBLE), ("m", decimal(12, 2)), ("s", STRING), ("t", TIMESTAMP), ("b", BOOLEAN)))
FRAME = pl.DataFrame(
    {"n": [1, 2], "d": [0.5, 2.0], "m": ["1.25", "2"], "s": ["a", None], "t": [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)] * 2, "b": [True, None]}
).with_columns(pl.col("m").cast(pl.Decimal(12, 2)))  # fmt: skip

# Of each function a call for each place that a value can stand in; the capital letter is where the call is put into itself.
CALLS: dict[str, tuple[str, ...]] = {
    **{name: (f"{name}(D)",) for name in ("abs", "round", "floor", "ceil", "sign", "sqrt", "ln", "exp")},
    **{name: (f"{name}(S)",) for name in ("lower", "upper", "trim", "ltrim", "rtrim")},
    "power": ("power(D, 1)", "power(1, D)"),
    "plus": ("plus(D, 1)", "plus(1, D)"),
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
    "date_trunc": ("date_trunc('day', T)",),
    "to_timestamp": ("epoch_ms(to_timestamp(N))",),
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


def nested(text: str, depth: int) -> str:
    """Put an expression into itself, in place of its capital letter, which stands for the column of that name."""
    result = hole = next(letter for letter in re.findall(r"\b[NDMSTB]\b", text))
    for _ in range(depth):
        result = re.sub(rf"\b{hole}\b", f"({result})", text)
    return re.sub(rf"\b{hole}\b", hole.lower(), result)


def size(text: str) -> int:
    return len(compile_scalar(text, SCHEMA).expr.meta.serialize())


def test_every_function_is_looked_at() -> None:
    assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize("text", [*(text for texts in CALLS.values() for text in texts), *OPERATORS])
def test_an_expression_in_itself_grows_by_the_same_each_time(text: str) -> None:
    one, two, three = (size(nested(text, depth)) for depth in (1, 3, 5))
    assert three - two <= 2 * (two - one) + 200


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

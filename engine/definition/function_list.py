"""The scalar functions an expression may call: an allow-list. What is not here does not exist.

One entry says everything of a function: how it is called, compiled and explained. The compiler, `GET /v1/functions` and the reference
(`docs/reference.md`) read it here, and its examples run as tests.

Every function is deterministic and depends on its arguments alone: a replayed batch must give the same bytes, so there is no now()
and no random(). An argument that is NULL makes the result NULL, except for coalesce, greatest, least and concat, which pass over
NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from engine.definition import arithmetic, functions, gaps, texts
from engine.definition.documented import Argument, Example, arguments_of
from engine.definition.functions import Arguments, of_double, of_text
from engine.definition.gaps import GapsOfCall
from engine.definition.operands import ExpressionInvalid, Operand
from engine.definition.suggestions import meant
from engine.definition.types import BIGINT, BOOLEAN, STRING


@dataclass(frozen=True)
class Function:
    """One entry of the allow-list.

    Attributes:
        name: as it is called.
        takes: its arguments in order, as ``documented.arguments_of`` reads them.
        result: type of its result, in words.
        doc: what it gives.
        examples: calls of literals, each with its result.
        build: compiles a call with as many arguments as it takes.
        gaps: notes where it has no result (``engine.definition.gaps``); None: it has one wherever it has arguments.
        is_lazy: an argument counts only where all before it are NULL.
        elsewhere: what other systems call it.
        ksqldb: what the dialect ``ksqldb`` calls it; None: the same, unless another entry has that name there; empty: it is not known there.
    """

    name: str
    takes: str
    result: str
    doc: str
    examples: Sequence[Example]
    build: Callable[[Arguments], Operand]
    gaps: GapsOfCall | None = None
    is_lazy: bool = False
    elsewhere: Sequence[str] = ()
    ksqldb: Sequence[str] | None = None

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its arguments in order."""
        return arguments_of(self.takes)

    @property
    def fewest(self) -> int:
        """How many arguments it takes at least."""
        return sum(not argument.is_optional for argument in self.arguments)

    @property
    def most(self) -> int | None:
        """How many arguments it takes at most; None: any number."""
        return None if any(argument.is_repeated for argument in self.arguments) else len(self.arguments)


def function_of(name: str) -> Function:
    """Return the function of the allow-list that a call names.

    Raises:
        ExpressionInvalid: ``unknown_function``.
    """
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise ExpressionInvalid("unknown_function", f"there is no function {name[:60]!r}; {_instead_of(name.lower())}")
    return function


def call(function: Function, arguments: Arguments) -> Operand:
    """Compile a call.

    Raises:
        ExpressionInvalid: ``type_mismatch`` for the number or types of the arguments.
    """
    fewest, most = function.fewest, function.most
    if len(arguments) < fewest or (most is not None and len(arguments) > most):
        wanted = f"{fewest}" if most == fewest else f"{fewest} to {most or 'many'}"
        raise ExpressionInvalid(
            "type_mismatch",
            f"{function.name} takes {wanted} argument(s), not {len(arguments)}: {function.name}({function.takes})",
        )
    return function.build(arguments)


def _instead_of(name: str) -> str:
    own = ELSEWHERE.get(name)
    if own is not None:
        return f"here it is {own}" if own in FUNCTIONS else own
    near = meant(name, FUNCTIONS)
    return "GET /v1/functions lists those there are" if near is None else f"did you mean {near}?"


_NOW = "a result must not depend on when it is computed; use the event time, or `$event_time_ms` of a record"
_ADVICE: Mapping[str, str] = {
    "if": "write CASE WHEN … THEN … ELSE … END", "iif": "write CASE WHEN … THEN … ELSE … END", "decode": "write CASE … WHEN … THEN … END",
    "date_part": "write EXTRACT(part FROM time)", "year": "write EXTRACT(year FROM time)", "hour": "write EXTRACT(hour FROM time)",
    "month": "write EXTRACT(month FROM time)", "day": "write EXTRACT(day FROM time)", "to_date": "write CAST(… AS date)",
    "now": _NOW, "current_timestamp": _NOW, "random": "a result must be the same each time it is computed",
    "rand": "a result must be the same each time it is computed", "uuid": "a result must be the same each time it is computed",
    "regexp_replace": "there are no regular expressions; use replace, or LIKE", "regexp_like": "there are no regular expressions; use LIKE",
}  # fmt: skip
"""Names of functions that other systems have → what to write here instead."""

_OF_ROUNDING = gaps.without_result("number_overflow", "int", "bigint", "double")
_LIST: Sequence[Function] = (
    Function(
        "abs", "x: number", "type of x; of an int bigint", "The number without its sign.",
        (Example("abs(-2)", 2), Example("abs(1.5)", 1.5)), functions.absolute,
        gaps=gaps.without_result("number_overflow", "int", "double", "decimal"),
    ),
    Function(
        "round", "x: number, digits?: whole number", "type of x; a decimal is one digit wider",
        "The nearest number with so many digits behind the point (written out, 0 to 30; without them none); halves go away from zero.",
        (Example("round(2.5)", 3.0), Example("round(-1.25, 1)", -1.3)), functions.round_to, gaps=_OF_ROUNDING,
    ),
    Function(
        "floor", "x: number", "type of x; a decimal is one digit wider", "The next whole number below.", (Example("floor(-1.5)", -2.0),),
        functions.rounding("floor", lambda e: e.floor()), gaps=_OF_ROUNDING,
    ),
    Function(
        "ceil", "x: number", "type of x; a decimal is one digit wider", "The next whole number above.", (Example("ceil(1.2)", 2.0),),
        functions.rounding("ceil", lambda e: e.ceil()), gaps=_OF_ROUNDING, elsewhere=("ceiling",),
    ),
    Function("sign", "x: number", "int", "-1, 0 or 1.", (Example("sign(-3)", -1),), functions.sign),
    Function(
        "sqrt", "x: number", "double", "The square root; NULL below zero.", (Example("sqrt(9)", 3.0), Example("sqrt(-1)", None)),
        of_double("sqrt", lambda e: e.sqrt()), gaps=gaps.without_result("outside_domain"),
    ),
    Function(
        "power", "base: number, exponent: number", "double", "The base to the power of the exponent; NULL where that is no number.",
        (Example("power(2, 10)", 1024.0),), of_double("power", lambda a, b: a.pow(b)),
        gaps=gaps.without_result("number_overflow"), elsewhere=("pow",),
    ),
    Function(
        "ln", "x: number", "double", "The natural logarithm; NULL for zero and below.", (Example("ln(1)", 0.0), Example("ln(0)", None)),
        of_double("ln", lambda e: e.log()), gaps=gaps.without_result("outside_domain"), elsewhere=("log",),
    ),
    Function(
        "exp", "x: number", "double", "e to the power of x.", (Example("exp(0)", 1.0),), of_double("exp", lambda e: e.exp()),
        gaps=gaps.without_result("number_overflow"),
    ),
    Function(
        "mod", "x: number, divisor: number", "as of x % divisor", "The remainder, with the sign of x; NULL where the divisor is zero.",
        (Example("mod(7, 3)", 1), Example("mod(-7, 3)", -1), Example("mod(7, 0)", None)),
        lambda arguments: arithmetic.binary("%", arguments[0], arguments[1]), gaps=gaps.of_remainder,
    ),
    Function(
        "lower", "text: string", "string", "The text in small letters.", (Example("lower('Tea')", "tea"),),
        of_text("lower", lambda e: e.str.to_lowercase(), STRING), elsewhere=("lcase",),
    ),
    Function(
        "upper", "text: string", "string", "The text in capital letters.", (Example("upper('Tea')", "TEA"),),
        of_text("upper", lambda e: e.str.to_uppercase(), STRING), elsewhere=("ucase",),
    ),
    Function(
        "length", "text: string", "bigint", "How many characters the text has.", (Example("length('tea')", 3), Example("length('')", 0)),
        of_text("length", lambda e: e.str.len_chars().cast(pl.Int64), BIGINT),
        elsewhere=("len", "char_length", "character_length"),
    ),
    Function(
        "trim", "text: string, characters?: string", "string",
        "The text without these characters (written out; without them blanks) at both ends.",
        (Example("trim('  tea ')", "tea"), Example("trim('xxtea', 'x')", "tea")), functions.trim("trim", lambda e, c: e.str.strip_chars(c)),
    ),
    Function(
        "ltrim", "text: string, characters?: string", "string", "As trim, at the beginning alone.", (Example("ltrim('  tea ')", "tea "),),
        functions.trim("ltrim", lambda e, c: e.str.strip_chars_start(c)),
    ),
    Function(
        "rtrim", "text: string, characters?: string", "string", "As trim, at the end alone.", (Example("rtrim('  tea ')", "  tea"),),
        functions.trim("rtrim", lambda e, c: e.str.strip_chars_end(c)),
    ),
    Function(
        "substring", "text: string, start: whole number, length?: whole number", "string",
        "So many characters from a place on, which counts from 1; without a length all.",
        (Example("substring('coffee', 2, 3)", "off"), Example("substring('coffee', 4)", "fee")), functions.substring,
        elsewhere=("substr", "mid"),
    ),
    Function(
        "replace", "text: string, old: string, new: string", "string", "The text with every `old` (written out) replaced by `new`.",
        (Example("replace('a-b-c', '-', '+')", "a+b+c"),), functions.replaced, gaps=gaps.of_replaced,
    ),
    Function(
        "concat", "text...: string", "string", "The texts one after the other; NULLs are passed over (with || they make the result NULL).",
        (Example("concat('a', NULL, 'b')", "ab"),), of_text("concat", lambda *e: texts.joined(e, passes_nulls=True), STRING),
        gaps=gaps.of_joined,
    ),
    Function(
        "left", "text: string, count: whole number", "string", "The first characters; of a negative count all but the last.",
        (Example("left('coffee', 3)", "cof"), Example("left('coffee', -1)", "coffe")), functions.side("left", lambda e, n: e.str.head(n)),
    ),
    Function(
        "right", "text: string, count: whole number", "string", "The last characters; of a negative count all but the first.",
        (Example("right('coffee', 3)", "fee"),), functions.side("right", lambda e, n: e.str.tail(n)),
    ),
    Function(
        "starts_with", "text: string, part: string", "boolean", "Whether the text begins so.", (Example("starts_with('coffee', 'co')", True),),
        of_text("starts_with", lambda e, p: e.str.starts_with(p), BOOLEAN), elsewhere=("startswith",),
    ),
    Function(
        "ends_with", "text: string, part: string", "boolean", "Whether the text ends so.", (Example("ends_with('coffee', 'co')", False),),
        of_text("ends_with", lambda e, p: e.str.ends_with(p), BOOLEAN), elsewhere=("endswith",),
    ),
    Function(
        "contains", "text: string, part: string", "boolean", "Whether the part stands in the text.",
        (Example("contains('coffee', 'ff')", True),),
        of_text("contains", lambda e, p: e.str.contains(p, literal=True), BOOLEAN), elsewhere=("str_contains", "instr"),
    ),
    Function(
        "nullif", "x: any, y: any", "type of x", "NULL where both are equal, else x.",
        (Example("nullif(0, 0)", None), Example("nullif(1, 0)", 1)),
        functions.null_if,
    ),
    Function(
        "coalesce", "x...: any", "the common type", "The first argument that is not NULL.", (Example("coalesce(NULL, 2, 3)", 2),),
        functions.merged("coalesce", lambda values: pl.coalesce(*values), is_compared=False), is_lazy=True,
        elsewhere=("nvl", "ifnull", "isnull"),
    ),
    Function(
        "greatest", "x...: any but nested", "the common type", "The greatest argument; NULLs are passed over.",
        (Example("greatest(1, NULL, 3)", 3),), functions.merged("greatest", lambda values: pl.max_horizontal(*values), is_compared=True),
    ),
    Function(
        "least", "x...: any but nested", "the common type", "The smallest argument; NULLs are passed over.",
        (Example("least('b', 'a')", "a"),), functions.merged("least", lambda values: pl.min_horizontal(*values), is_compared=True),
    ),
    Function(
        "date_trunc", "unit: string, time: timestamp", "timestamp",
        "The beginning (UTC) of the second, minute, hour, day, week, month, quarter or year (written out) that the time lies in.",
        (Example("date_trunc('hour', CAST('2013-01-01T12:34:56Z' AS timestamp))", "2013-01-01T12:00:00Z"),), functions.date_trunc,
        elsewhere=("trunc", "datetrunc"),
    ),
    Function(
        "to_timestamp", "milliseconds: whole number", "timestamp", "The time so many milliseconds after 1970; NULL outside the years 1 to 9999.",
        (Example("to_timestamp(1357041600000)", "2013-01-01T12:00:00Z"),), functions.to_timestamp,
        gaps=gaps.without_result("outside_domain"), elsewhere=("from_unixtime",),
    ),
    Function(
        "epoch_ms", "time: timestamp", "bigint", "Milliseconds since 1970.",
        (Example("epoch_ms(CAST('2013-01-01T12:00:00Z' AS timestamp))", 1357041600000),), functions.epoch_ms,
        elsewhere=("unix_millis",),
    ),
)  # fmt: skip

FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _LIST}
ELSEWHERE: Mapping[str, str] = {**_ADVICE, **{name: function.name for function in _LIST for name in function.elsewhere}}
"""Names that other systems have → ours, or what to write instead."""

"""Functions of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import of_text, texts_of, whole, written_text
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import BIGINT, BOOLEAN, STRING
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values import texts
from engine.expressions.values.once import once
from engine.expressions.values.operands import Operand


def trim(name: str, build: Callable[[pl.Expr, str], pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        characters = written_text(name, arguments[1]) if len(arguments) > 1 else " "
        (value,) = texts_of(name, arguments[:1])
        return Operand(build(value, characters) if characters else value, STRING)

    return compiled


def substring(arguments: Arguments) -> Operand:
    """Compile ``substring(text, start [, length])``: positions count from 1; what lies before 1 counts but is not there."""
    (value,) = texts_of("substring", arguments[:1])
    start = whole("substring", arguments[1])
    if len(arguments) == 2:
        return Operand(value.str.slice(start.clip(1, None) - 1), STRING)

    def build(text: pl.Expr, first: pl.Expr, length: pl.Expr) -> pl.Expr:
        # Clipped before they are added: a start near 2^63 must not wrap around.
        end = first.clip(-(2**40), 2**40) + length.clip(0, 2**40) - 1
        skip = first.clip(1, 2**40) - 1
        return text.str.slice(skip, (end - skip).clip(0, None))

    return Operand(once(build, value, start, whole("substring", arguments[2])), STRING)


def side(name: str, build: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        (value,) = texts_of(name, arguments[:1])
        return Operand(build(value, whole(name, arguments[1]).clip(-(2**40), 2**40)), STRING)

    return compiled


def replaced(arguments: Arguments) -> Operand:
    old = written_text("replace", arguments[1])
    value, new = texts_of("replace", [arguments[0], arguments[2]])
    return Operand(texts.replaced(value, old, new), STRING)


TEXTS: Sequence[Function] = (
    Function(
        "lower", "text: string", "string", "The text in small letters.", (Example("lower('Tea')", "tea"),),
        of_text("lower", lambda e: e.str.to_lowercase(), STRING), elsewhere=("lcase",), ksqldb=("LCASE",),
    ),
    Function(
        "upper", "text: string", "string", "The text in capital letters.", (Example("upper('Tea')", "TEA"),),
        of_text("upper", lambda e: e.str.to_uppercase(), STRING), elsewhere=("ucase",), ksqldb=("UCASE",),
    ),
    Function(
        "length", "text: string", "bigint", "How many characters the text has.", (Example("length('tea')", 3), Example("length('')", 0)),
        of_text("length", lambda e: e.str.len_chars().cast(pl.Int64), BIGINT),
        elsewhere=("len", "char_length", "character_length"),
    ),
    Function(
        "trim", "text: string, characters?: string", "string",
        "The text without these characters (written out; without them blanks) at both ends.",
        (Example("trim('  tea ')", "tea"), Example("trim('xxtea', 'x')", "tea")), trim("trim", lambda e, c: e.str.strip_chars(c)),
    ),
    Function(
        "ltrim", "text: string, characters?: string", "string", "As trim, at the beginning alone.", (Example("ltrim('  tea ')", "tea "),),
        trim("ltrim", lambda e, c: e.str.strip_chars_start(c)),
    ),
    Function(
        "rtrim", "text: string, characters?: string", "string", "As trim, at the end alone.", (Example("rtrim('  tea ')", "  tea"),),
        trim("rtrim", lambda e, c: e.str.strip_chars_end(c)),
    ),
    Function(
        "substring", "text: string, start: whole number, length?: whole number", "string",
        "So many characters from a place on, which counts from 1; without a length all.",
        (Example("substring('coffee', 2, 3)", "off"), Example("substring('coffee', 4)", "fee")), substring,
        elsewhere=("substr", "mid"),
    ),
    Function(
        "replace", "text: string, old: string, new: string", "string", "The text with every `old` (written out) replaced by `new`.",
        (Example("replace('a-b-c', '-', '+')", "a+b+c"),), replaced, gaps=gaps.of_replaced,
    ),
    Function(
        "left", "text: string, count: whole number", "string", "The first characters; of a negative count all but the last.",
        (Example("left('coffee', 3)", "cof"), Example("left('coffee', -1)", "coffe")), side("left", lambda e, n: e.str.head(n)),
    ),
    Function(
        "right", "text: string, count: whole number", "string", "The last characters; of a negative count all but the first.",
        (Example("right('coffee', 3)", "fee"),), side("right", lambda e, n: e.str.tail(n)),
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
        of_text("contains", lambda e, p: e.str.contains(p, literal=True), BOOLEAN), elsewhere=("str_contains",),
    ),
)  # fmt: skip

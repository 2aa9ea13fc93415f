"""Functions of texts that take bytes as well, and give the same kind. A place counts characters, or bytes.

Those called ``ksql_…`` are what ksqlDB does where ours of the name without it does something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import given, texts_of, whole
from engine.expressions.library.by_value import Unfit, by_value
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.types.types import BYTES, INT, STRING, ColumnType
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values import texts
from engine.expressions.values.evaluation_errors import Gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import Operand

Content = TypeVar("Content", str, bytes)

_FURTHEST = 2**40
"""Places beyond it are cut to it, so that sums of them fit a bigint."""


def kind_of(arguments: Arguments) -> ColumnType:
    """Return BYTES where an argument is of bytes, else STRING."""
    return BYTES if any(argument.type == BYTES for argument in arguments) else STRING


def concat(arguments: Arguments) -> Operand:
    if kind_of(arguments) == STRING:
        return Operand(texts.joined(texts_of("concat", arguments), passes_nulls=True), STRING)
    parts = [given("concat", argument, BYTES).fill_null(b"") for argument in arguments]

    def build(*values: pl.Expr) -> pl.Expr:
        fits = pl.sum_horizontal([value.bin.size().cast(pl.Int64) for value in values]) <= MAX_TEXT_BYTES
        return pl.when(fits).then(_added(values))

    joined = once(build, *parts)
    return Operand(joined, BYTES, failed=joined.is_null())


def _added(parts: Sequence[pl.Expr]) -> pl.Expr:
    """Return the bytes one after the other: halves of halves, since what is nested deep costs Polars the square of its depth to plan."""
    middle = len(parts) // 2
    return parts[0] if not middle else _added(parts[:middle]) + _added(parts[middle:])


def _record_too_long(failures: Gaps, arguments: Arguments, result: Operand) -> None:
    note = gaps.of_joined if result.failed is None else gaps.where_failed("text_too_long")
    note(failures, arguments, result)


def concat_ws(arguments: Arguments) -> Operand:
    """Compile ``concat_ws``: what is NULL is passed over, and no separator stands for it."""
    if kind_of(arguments) == BYTES:
        parts = [given("concat_ws", argument, BYTES) for argument in arguments]
        return by_value(_separated_bytes, parts, BYTES, takes_null=True)
    values = texts_of("concat_ws", arguments)

    def fits(separator: pl.Expr, *parts: pl.Expr) -> pl.Expr:
        sizes = [part.str.len_bytes().cast(pl.Int64).fill_null(0) for part in parts]
        between = separator.str.len_bytes().cast(pl.Int64) * (len(parts) - 1)
        return pl.sum_horizontal(sizes) + between <= MAX_TEXT_BYTES

    def join(is_kept: pl.Expr, separator: pl.Expr, *parts: pl.Expr) -> pl.Expr:
        kept = [pl.when(is_kept).then(part) for part in parts]
        return pl.when(is_kept).then(pl.concat_list(kept).list.drop_nulls().list.join(separator))

    joined = once(lambda *given: once(join, fits(*given), *given), *values)
    return Operand(joined, STRING, failed=joined.is_null() & values[0].is_not_null())


def _separated_bytes(separator: bytes | None, *parts: bytes | None) -> bytes | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def length(arguments: Arguments) -> Operand:
    kind = kind_of(arguments)
    value = given("ksql_length", arguments[0], kind)
    counted = value.bin.size() if kind == BYTES else value.str.len_chars()
    return Operand(counted.cast(pl.Int32), INT)


def substring(arguments: Arguments) -> Operand:
    """Compile ``ksql_substring``: 0 is as 1, and places below zero count from the end."""
    kind = kind_of(arguments[:1])
    value = given("ksql_substring", arguments[0], kind)
    place, *rest = [whole("ksql_substring", argument).clip(-_FURTHEST, _FURTHEST) for argument in arguments[1:]]

    def build(subject: pl.Expr, first: pl.Expr, *count: pl.Expr) -> pl.Expr:
        size = (subject.bin.size() if kind == BYTES else subject.str.len_chars()).cast(pl.Int64)
        start = pl.when(first < 0).then(size + first).otherwise(first - 1).clip(0, None)
        taken = count[0].clip(0, None) if count else size
        is_given = pl.all_horizontal([part.is_not_null() for part in (subject, first, *count)])
        bounds = start.fill_null(0), taken.fill_null(0)  # Polars takes a NULL length for all there is
        cut = subject.bin.slice(*bounds) if kind == BYTES else subject.str.slice(*bounds)
        return pl.when(is_given).then(cut)

    return Operand(once(build, value, place, *rest), kind)


def padding(name: str, *, is_left: bool) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        kind = kind_of([arguments[0], arguments[2]])
        parts = [given(name, arguments[0], kind), whole(name, arguments[1]), given(name, arguments[2], kind)]
        return by_value(partial(_padded, is_left=is_left), parts, kind)

    return compiled


def _padded(value: Content, size: int, filling: Content, *, is_left: bool) -> Content | None:
    if not filling or size < 0:
        return None
    if size > MAX_TEXT_BYTES:
        raise Unfit
    missing = max(size - len(value), 0)
    added = (filling * (missing // len(filling) + 1))[:missing]
    return (added + value if is_left else value + added)[:size]


TEXTS_AND_BYTES: Sequence[Function] = (
    Function(
        "concat", "part...: string or bytes", "string or bytes",
        "The texts, or bytes, one after the other; NULLs are passed over (with || they make the result NULL).",
        (Example("concat('a', NULL, 'b')", "ab"),), concat, gaps=_record_too_long, ksqldb=("CONCAT",),
    ),
    Function(
        "concat_ws", "separator: string or bytes, part...: string or bytes", "string or bytes",
        "The texts, or bytes, with the separator between them; NULLs are passed over.",
        (Example("concat_ws(', ', 'a', NULL, 'b')", "a, b"),), concat_ws, gaps=gaps.where_failed("text_too_long"), ksqldb=("CONCAT_WS",),
    ),
    Function(
        "ksql_length", "value: string or bytes", "int", "How many characters the text has, or how many bytes there are.",
        (Example("ksql_length('tea')", 3), Example("ksql_length(to_bytes('é', 'utf8'))", 2)), length, ksqldb=("LEN",),
    ),
    Function(
        "ksql_substring", "value: string or bytes, start: whole number, length?: whole number", "string or bytes",
        "So many characters, or bytes, from a place on, as ksqlDB counts it: from 1, below zero from the end; without a length all.",
        (
            Example("ksql_substring('coffee', 2, 3)", "off"), Example("ksql_substring('coffee', -3)", "fee"),
            Example("ksql_substring('coffee', 0, 2)", "co"), Example("ksql_substring('coffee', 2, NULL)", None),
        ),
        substring, ksqldb=("SUBSTRING",),
    ),
    Function(
        "lpad", "value: string or bytes, size: whole number, filling: string or bytes", "string or bytes",
        "The value with as much of the filling, again and again, in front of it that it has the size; a longer one is cut. "
        "NULL for an empty filling or a size below zero.",
        (Example("lpad('7', 3, '0')", "007"), Example("lpad('coffee', 3, '.')", "cof")), padding("lpad", is_left=True),
        gaps=gaps.where_failed("text_too_long"), ksqldb=("LPAD",),
    ),
    Function(
        "rpad", "value: string or bytes, size: whole number, filling: string or bytes", "string or bytes",
        "As lpad, with the filling behind the value.", (Example("rpad('tea', 5, '-+')", "tea-+"),), padding("rpad", is_left=False),
        gaps=gaps.where_failed("text_too_long"), ksqldb=("RPAD",),
    ),
)  # fmt: skip

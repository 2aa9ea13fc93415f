"""Which of several results counts: the branch that conditions choose (CASE, AND, OR), and functions that give one of their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import BOOLEAN, STRING, ColumnType
from engine.expressions.values.nested import comparable
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, coerce_all, common_type, null, number_literal

FLAT_FROM = 8
"""Branches from which on a CASE is not nested: Polars plans nested ones in time that grows with the square of their number."""


def chosen(conditions: Sequence[pl.Expr], results: Sequence[pl.Expr]) -> pl.Expr:
    """Return the result of the first condition that is true, the last one where none is."""
    if len(conditions) > FLAT_FROM:
        number = pl.coalesce([pl.when(condition).then(place) for place, condition in enumerate(conditions)] + [len(conditions)])
        return once(_numbered, number, *results)
    nested = results[-1]
    for condition, result in zip(reversed(conditions), reversed(results[:-1]), strict=True):
        nested = pl.when(condition).then(result).otherwise(nested)
    return nested


def _numbered(number: pl.Expr, *results: pl.Expr) -> pl.Expr:
    """Return the result of that number; one that is NULL is NULL, for all the others are."""
    return pl.coalesce([pl.when(number == place).then(result) for place, result in enumerate(results)])


def undecided(parts: Sequence[pl.Expr], *, is_and: bool) -> pl.Expr | None:
    """Return where the operands so far leave an AND or OR open, None for no operands."""
    return pl.all_horizontal([each.fill_null(is_and) if is_and else ~each.fill_null(is_and) for each in parts]) if parts else None


def all_null(operands: Sequence[Operand]) -> pl.Expr | None:
    """Return where every operand is NULL, None for no operands."""
    return pl.all_horizontal([each.expr.is_null() for each in operands]) if operands else None


def none_of(conditions: Sequence[pl.Expr]) -> pl.Expr | None:
    """Return where no condition is true, None for no conditions."""
    return pl.all_horizontal([~each.fill_null(value=False) for each in conditions]) if conditions else None


def null_if(arguments: Arguments) -> Operand:
    left, right = arguments
    kind = common_type(arguments, "nullif")
    if kind is None or left.type is None:
        return null()

    def build(value: pl.Expr, other: pl.Expr) -> pl.Expr:
        pair = coerce(replace(left, expr=value), kind, "nullif"), coerce(replace(right, expr=other), kind, "nullif")
        compared = [comparable(each, kind) for each in pair]
        return pl.when((compared[0] != compared[1]) | compared[1].is_null()).then(value)

    return Operand(once(build, left.expr, right.expr), left.type)


def merged(name: str, build: Callable[[list[pl.Expr]], pl.Expr], *, is_compared: bool) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        values, kind = coerce_all(arguments, name)
        if kind is None:
            return null()
        if is_compared and kind.is_nested:
            raise ExpressionInvalid("type_mismatch", f"{name} cannot compare {kind}")
        return Operand(build(values), kind)

    return compiled


def one_of(arguments: Arguments) -> Operand:
    """Compile ``one_of(x, 'text', ...)``: whether ``x`` is what one of the texts writes, read as values of its type."""
    value, *texts = arguments
    if value.type is None:
        return Operand(pl.lit(None, dtype=pl.Boolean), BOOLEAN)
    written = [_written(text, value.type) for text in texts]
    if value.type == STRING:
        return Operand(value.expr.is_in([text.literal for text in written]), BOOLEAN)

    def build(sought: pl.Expr) -> pl.Expr:
        pairs = [coerce_all([replace(value, expr=sought), text], "one_of")[0] for text in written]
        return pl.any_horizontal([left == right for left, right in pairs])

    return Operand(once(build, value.expr), BOOLEAN)


def _written(text: Operand, kind: ColumnType) -> Operand:
    """Return the value that a text written out stands for, as one of a type."""
    if not isinstance(text.literal, str):
        raise ExpressionInvalid("type_mismatch", "the texts are written out here, as in one_of(x, '1', '2')")
    if kind.kind == "boolean":
        known = {word: word in _TRUE for word in (*_TRUE, *_FALSE)}
        if text.literal.strip().lower() not in known:
            raise ExpressionInvalid("type_mismatch", f"{text.literal[:40]!r} is no {kind}")
        return Operand(pl.lit(known[text.literal.strip().lower()]), BOOLEAN)
    if not kind.is_numeric:
        return text
    if _NUMBER.fullmatch(text.literal.strip()) is None:
        raise ExpressionInvalid("type_mismatch", f"{text.literal[:40]!r} is no {kind}")
    digits = text.literal.strip().removeprefix("+")
    number = number_literal(digits.removeprefix("-"))
    if not digits.startswith("-"):
        return number
    negative = None if number.literal is None or isinstance(number.literal, str) else -number.literal
    return Operand(-number.expr, number.type, negative)


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes")
_FALSE = ("f", "fa", "fal", "fals", "false", "n", "no")
"""What ksqlDB reads as true and as false."""


CHOOSING: Sequence[Function] = (
    Function(
        "one_of", "x: any but nested, text...: string", "boolean",
        "Whether x is what one of the texts writes, each read as a value of its type: `IN` with mixed literals.",
        (Example("one_of(2, '1', '2.0')", True), Example("one_of('a', 'b')", False)), one_of,
    ),
    Function(
        "nullif", "x: any, y: any", "type of x", "NULL where both are equal, else x.",
        (Example("nullif(0, 0)", None), Example("nullif(1, 0)", 1)),
        null_if, ksqldb=("NULLIF",),
    ),
    Function(
        "coalesce", "x...: any", "the common type", "The first argument that is not NULL.", (Example("coalesce(NULL, 2, 3)", 2),),
        merged("coalesce", lambda values: pl.coalesce(*values), is_compared=False), is_lazy=True,
        elsewhere=("nvl", "ifnull", "isnull"), ksqldb=("COALESCE", "IFNULL"),
    ),
    Function(
        "greatest", "x...: any but nested", "the common type", "The greatest argument; NULLs are passed over.",
        (Example("greatest(1, NULL, 3)", 3),), merged("greatest", lambda values: pl.max_horizontal(*values), is_compared=True),
        ksqldb=("GREATEST",),
    ),
    Function(
        "least", "x...: any but nested", "the common type", "The smallest argument; NULLs are passed over.",
        (Example("least('b', 'a')", "a"),), merged("least", lambda values: pl.min_horizontal(*values), is_compared=True),
        ksqldb=("LEAST",),
    ),
)  # fmt: skip

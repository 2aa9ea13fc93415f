"""What calls are given: arguments checked by type, or ExpressionInvalid (``type_mismatch``) with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any

import polars as pl

from engine.expressions.library.by_value import by_value
from engine.expressions.library.entry import Arguments
from engine.expressions.types.types import BIGINT, DOUBLE, STRING, ColumnType
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, finite


def numbers_of(name: str, arguments: Arguments) -> list[tuple[Operand, ColumnType]]:
    checked = []
    for argument in arguments:
        kind = argument.type or DOUBLE
        if not kind.is_numeric:
            raise ExpressionInvalid("type_mismatch", f"{name} works on numbers, not {kind}")
        checked.append((Operand(coerce(argument, kind, name), kind, argument.literal), kind))
    return checked


def texts_of(name: str, arguments: Arguments) -> list[pl.Expr]:
    for argument in arguments:
        if argument.type not in (None, STRING):
            raise ExpressionInvalid("type_mismatch", f"{name} works on texts, not {argument.kind}; use CAST(… AS string)")
    return [coerce(argument, STRING, name) for argument in arguments]


def written_text(name: str, argument: Operand) -> str:
    if not isinstance(argument.literal, str):
        raise ExpressionInvalid("type_mismatch", f"{name} needs a text written out here, as in 'abc'")
    return argument.literal


def whole(name: str, argument: Operand) -> pl.Expr:
    if argument.type is not None and not argument.type.is_integer:
        raise ExpressionInvalid("type_mismatch", f"{name} needs a whole number here, not {argument.kind}")
    return coerce(argument, BIGINT, name)


def given(name: str, argument: Operand, kind: ColumnType) -> pl.Expr:
    """Return an argument as what a function takes: a text, a whole number (BIGINT), any number (DOUBLE), or exactly another type."""
    if kind == STRING:
        return texts_of(name, [argument])[0]
    if kind == BIGINT:
        return whole(name, argument)
    if kind == DOUBLE:
        return coerce(numbers_of(name, [argument])[0][0], DOUBLE, name)
    return coerce(argument, kind, name)


def of_double(name: str, build: Callable[..., pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        return Operand(finite(build(*[given(name, argument, DOUBLE) for argument in arguments])), DOUBLE)

    return compiled


def of_text(name: str, build: Callable[..., pl.Expr], result: ColumnType) -> Callable[[Arguments], Operand]:
    return lambda arguments: Operand(build(*texts_of(name, arguments)), result)


def of_values(
    name: str, function: Callable[..., Any], kinds: Sequence[ColumnType], result: ColumnType
) -> Callable[[Arguments], Operand]:
    """Compile a call of a Python function (``by_value``).

    Args:
        name: of the function, for messages.
        function: gets the arguments' values.
        kinds: what each argument is, as in ``given``; the last one is that of all behind it, too.
        result: type of what it returns.
    """

    def compiled(arguments: Arguments) -> Operand:
        expected = chain(kinds, repeat(kinds[-1]))
        parts = [given(name, argument, kind) for argument, kind in zip(arguments, expected, strict=False)]
        return by_value(function, parts, result)

    return compiled

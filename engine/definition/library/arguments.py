"""What calls are given: arguments checked by type, or ExpressionInvalid (``type_mismatch``) with what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from engine.definition.library.entry import Arguments
from engine.definition.operands import ExpressionInvalid, Operand, coerce, finite
from engine.definition.types import BIGINT, DOUBLE, STRING, ColumnType


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


def of_double(name: str, build: Callable[..., pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        values = [coerce(operand, DOUBLE, name) for operand, _ in numbers_of(name, arguments)]
        return Operand(finite(build(*values)), DOUBLE)

    return compiled


def of_text(name: str, build: Callable[..., pl.Expr], result: ColumnType) -> Callable[[Arguments], Operand]:
    return lambda arguments: Operand(build(*texts_of(name, arguments)), result)

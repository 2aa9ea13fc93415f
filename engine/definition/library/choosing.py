"""Functions that give one of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from engine.definition.documented import Example
from engine.definition.library.entry import Arguments, Function
from engine.definition.once import once
from engine.definition.operands import ExpressionInvalid, Operand, coerce, coerce_all, common_type, null


def null_if(arguments: Arguments) -> Operand:
    left, right = arguments
    kind = common_type(arguments, "nullif")
    if kind is None or left.type is None:
        return null()

    def build(value: pl.Expr, other: pl.Expr) -> pl.Expr:
        pair = coerce(replace(left, expr=value), kind, "nullif"), coerce(replace(right, expr=other), kind, "nullif")
        return pl.when((pair[0] != pair[1]) | pair[1].is_null()).then(value)

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


CHOOSING: Sequence[Function] = (
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

"""Which of several results counts: what conditions leave open, and the branch that they choose. Of CASE, AND, OR and coalesce."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from engine.expressions.values.once import once
from engine.expressions.values.operands import Operand

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

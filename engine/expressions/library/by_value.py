"""Functions that Polars has no expression for: one pass of Python over the different values of a batch.

A batch costs as many calls as it has different arguments. A function may refuse its arguments (``Unfit``): the result is NULL, and the
row is marked as failed, which is counted. Where Polars gives the same for most arguments (``Quick``), Python is asked for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from engine.expressions.limits import MAX_TEXT_BYTES
from engine.expressions.types.types import ColumnType
from engine.expressions.values.exploding import lists_of
from engine.expressions.values.operands import Operand

MAX_ITEMS: Final = 1 << 16
"""Items of an array that a function makes of one text: a million letters must not become a million texts."""

_VALUE, _FAILED = "value", "failed"

Answer = tuple[Any, bool]

Quick = Callable[[pl.DataFrame], tuple[pl.Series, pl.Series]]
"""Of the arguments, a column each: values, and where these are what the function gives, without a failure."""


class Unfit(Exception):
    """The arguments have no result."""


def by_value(
    function: Callable[..., Any],
    parts: Sequence[pl.Expr],
    result: ColumnType,
    *,
    takes_null: bool = False,
    quick: Quick | None = None,
) -> Operand:
    """Return the call of a Python function that depends on its arguments alone.

    Args:
        function: gives a value of the type as Python has it, or None; raises Unfit.
        parts: its arguments.
        result: the type; longer texts and bytes than MAX_TEXT_BYTES and more items than MAX_ITEMS fail.
        takes_null: call it for NULLs, too; else the result of a NULL is NULL.
        quick: gives most results without it.
    """
    names = [f"argument_{number}" for number in range(len(parts))]

    def asked(given: pl.DataFrame) -> pl.DataFrame:
        answers = list(_answers(function, given, takes_null=takes_null))
        values = column_of([value for value, _ in answers], result.polars)
        failed = pl.Series([failed for _, failed in answers], dtype=pl.Boolean)
        return pl.DataFrame([values.alias(_VALUE), failed.alias(_FAILED)])

    def over(batch: pl.Series) -> pl.Series:
        given = batch.struct.unnest()
        if quick is None:
            return asked(given).to_struct()
        values, is_sure = quick(given)
        found = pl.DataFrame([values.alias(_VALUE), pl.repeat(value=False, n=given.height, eager=True).alias(_FAILED)])
        if not is_sure.all():
            both = pl.concat([found, asked(given.filter(~is_sure))])
            places = pl.select(
                pl.when(is_sure).then(pl.int_range(given.height)).otherwise(given.height - 1 + (~is_sure).cum_sum())
            )
            found = both[places.to_series()]
        return found.to_struct()

    kind = pl.Struct({_VALUE: result.polars, _FAILED: pl.Boolean()})
    given = pl.struct([part.alias(name) for name, part in zip(names, parts, strict=True)])
    passed = given.map_batches(over, return_dtype=kind, is_elementwise=True)
    return Operand(passed.struct.field(_VALUE), result, failed=passed.struct.field(_FAILED), is_strict=not takes_null)


def _answers(function: Callable[..., Any], given: pl.DataFrame, *, takes_null: bool) -> Iterator[Answer]:
    # Doubles are not looked up: 0.0 and -0.0 are equal, but not the same. Nested values cannot be.
    is_looked_up = not any(kind.is_float() or kind.is_nested() for kind in given.dtypes)
    known: dict[tuple[Any, ...], Answer] = {}
    for row in given.iter_rows():
        answer = known.get(row) if is_looked_up else None
        if answer is None:
            answer = (None, False) if not takes_null and None in row else _answer(function, row)
            if is_looked_up:
                known[row] = answer
        yield answer


def _answer(function: Callable[..., Any], row: Iterable[Any]) -> Answer:
    try:
        value = function(*row)
    except Unfit:
        return None, True
    return (None, True) if _is_too_long(value) else (value, False)


def _is_too_long(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > MAX_TEXT_BYTES or (not value.isascii() and len(value.encode()) > MAX_TEXT_BYTES)
    if isinstance(value, list):
        return len(value) > MAX_ITEMS
    return isinstance(value, bytes) and len(value) > MAX_TEXT_BYTES


def column_of(values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return a column of values: lists for a list, dicts by name for a struct, None for null; what is none of the type is null."""
    if not isinstance(dtype, pl.List | pl.Struct):
        return pl.Series(values, dtype=dtype, strict=False)
    is_null = pl.Series([value is None for value in values], dtype=pl.Boolean)
    if isinstance(dtype, pl.List):
        sizes = np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))
        inside = column_of([each for value in values if value is not None for each in value], _as_instance(dtype.inner))
        made = lists_of(inside, sizes)
    else:
        fields = [
            column_of([None if value is None else value.get(field.name) for value in values], _as_instance(field.dtype)).alias(
                field.name
            )
            for field in dtype.fields
        ]
        made = pl.DataFrame(fields).to_struct()
    return made.to_frame("made").select(pl.when(~is_null).then(pl.col("made"))).to_series() if is_null.any() else made


def _as_instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype if isinstance(dtype, pl.DataType) else dtype()
    return made

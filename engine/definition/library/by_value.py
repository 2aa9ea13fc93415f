"""Functions that Polars has no expression for: one pass of Python over the different values of a batch.

A batch costs as many calls as it has different arguments. A function may refuse its arguments (``Unfit``): the result is NULL, and the
row is marked as failed, which is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import polars as pl

from engine.definition.limits import MAX_TEXT_BYTES
from engine.definition.operands import Operand
from engine.definition.types import ColumnType

MAX_ITEMS: Final = 1 << 16
"""Items of an array that a function makes of one text: a million letters must not become a million texts."""

_VALUE, _FAILED = "value", "failed"

Answer = tuple[Any, bool]


class Unfit(Exception):
    """The arguments have no result."""


def by_value(function: Callable[..., Any], parts: Sequence[pl.Expr], result: ColumnType, *, takes_null: bool = False) -> Operand:
    """Return the call of a Python function that depends on its arguments alone.

    Args:
        function: gives a value of the type as Python has it, or None; raises Unfit.
        parts: its arguments.
        result: the type; longer texts and bytes than MAX_TEXT_BYTES and more items than MAX_ITEMS fail.
        takes_null: call it for NULLs, too; else the result of a NULL is NULL.
    """
    names = [f"argument_{number}" for number in range(len(parts))]

    def over(batch: pl.Series) -> pl.Series:
        answers = list(_answers(function, batch.struct.unnest(), takes_null=takes_null))
        values = pl.Series(_VALUE, [value for value, _ in answers], dtype=result.polars, strict=False)
        return pl.DataFrame([values, pl.Series(_FAILED, [failed for _, failed in answers], dtype=pl.Boolean)]).to_struct()

    kind = pl.Struct({_VALUE: result.polars, _FAILED: pl.Boolean()})
    given = pl.struct([part.alias(name) for name, part in zip(names, parts, strict=True)])
    passed = given.map_batches(over, return_dtype=kind, is_elementwise=True)
    return Operand(passed.struct.field(_VALUE), result, failed=passed.struct.field(_FAILED))


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

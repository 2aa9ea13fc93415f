"""Functions that make arrays of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from engine.expressions.documented import Example
from engine.expressions.library.by_value import Unfit, by_value
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import ColumnType
from engine.expressions.values.operands import ExpressionInvalid, Operand

MAX_PLACES: Final = 16
"""Of an array whose combinations are made: each place doubles their number."""


def cube(arguments: Arguments) -> Operand:
    (items,) = arguments
    if items.type is None or items.type.kind != "array":
        raise ExpressionInvalid("type_mismatch", f"cube takes an array, not {items.kind}")
    return by_value(_combinations, [items.expr], ColumnType("array", element=items.type))


def _combinations(items: list[Any]) -> list[list[Any]]:
    if len(items) > MAX_PLACES:
        raise Unfit
    return [list(chosen) for chosen in product(*([None] if item is None else [None, item] for item in items))]


COMBINATIONS: Sequence[Function] = (
    Function(
        "cube", "items: array", "array of such arrays",
        f"All arrays that leave out some of the items, with NULL in their places. Of at most {MAX_PLACES} items, else NULL; a NULL is left out "
        "once.",
        (Example("cube(split('a,b', ','))", [[None, None], [None, "b"], ["a", None], ["a", "b"]]),), cube,
    ),
)  # fmt: skip

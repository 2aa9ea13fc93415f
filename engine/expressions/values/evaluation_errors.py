"""Where an expression gives NULL because there is no value to give: a number that does not fit, a division by zero, a cast that fails.

Other engines fail there. A query that runs for ever must not stop for one odd record, so the value is NULL (``arithmetic``,
``operands``), and the place is a *gap*: a mask that operators count. A gap counts only where SQL would evaluate it: not in a branch of
CASE that is not taken, nor behind an AND that is false already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, Literal

import polars as pl

from engine.expressions.types.types import STRING, ColumnType, Kind
from engine.expressions.values.operands import BIGINT_DIGITS, Operand, cast, coerce, digits_of
from engine.expressions.values.rebuilding import VALUE
from engine.expressions.values.texts import is_joined_too_long, is_replaced_too_long

GapReason = Literal[
    "number_overflow", "division_by_zero", "cast_failed", "outside_domain", "text_too_long", "list_too_long", "function_failed"
]
"""Why there is no value; the reason under which it is counted."""

Condition = pl.Expr | Callable[[], pl.Expr | None]

MAX_GAPS: Final = 32
"""Each gap repeats the part of the expression that leads to it: more of them together would cost the square of the expression."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One place of an expression.

    Attributes:
        reason: why it has no value.
        is_met: in which rows, as many as the frame has.
    """

    reason: GapReason
    is_met: pl.Expr


@dataclass(slots=True)
class Gaps:
    """The gaps of one expression while it is compiled.

    Attributes:
        found: the gaps.
        is_strict: whether each of them makes the whole expression NULL, so that a result without NULL has none.
    """

    found: list[Gap] = field(default_factory=list)
    is_strict: bool = True
    _conditions: list[Condition] = field(default_factory=list)

    @contextmanager
    def where(self, condition: Condition) -> Iterator[None]:
        """Count what is found inside only where the condition is true.

        Args:
            condition: the condition, or what makes it when there is a gap to count, for most places have none; None: everywhere.
        """
        self._conditions.append(condition)
        yield
        self._conditions.pop()

    def after_arithmetic(self, operator: str, left: Operand, right: Operand, result: Operand) -> None:
        """Note where a binary operator has no result."""
        if left.type is None or right.type is None or result.type is None:
            return
        is_given = left.expr.is_not_null() & right.expr.is_not_null()
        if operator in "/%":
            if right.literal is None or right.literal == 0:
                self.add("division_by_zero", is_given & (right.expr == 0))
            is_given &= right.expr != 0
        is_fitting = result.type.kind == "decimal" or (left.type.kind == right.type.kind == "int")
        if not is_fitting:
            self.add("number_overflow", is_given & result.expr.is_null())

    def after_negation(self, value: Operand, result: Operand) -> None:
        """Note where the negative of a number does not fit."""
        if value.literal is None and value.type is not None and value.type.kind == "bigint":
            self.add("number_overflow", value.expr.is_not_null() & result.expr.is_null())

    def after_cast(self, value: Operand, result: Operand) -> None:
        """Note where a cast fails, of a nested value where it does for any value inside."""
        if value.type is None or result.type is None:
            return
        self.is_strict &= not value.type.is_nested
        lost = _lost(value.expr, value.type, result.type) if value.type.is_nested else None
        if lost is not None:
            self.add("cast_failed", lost)
        elif not value.type.is_nested and not _always_fits(value.type, result.type):
            self.add("cast_failed", value.expr.is_not_null() & result.expr.is_null())

    def of(self, result: Operand, columns: Iterable[str]) -> tuple[Gap, ...]:
        """Return the gaps of the whole expression; of very many one that stands for all: NULL, and no column is."""
        if len(self.found) <= MAX_GAPS:
            return tuple(self.found)
        is_given = pl.all_horizontal([pl.col(name).is_not_null() for name in columns] or [pl.lit(value=True)])
        return (Gap("number_overflow", is_given & result.expr.is_null()),)

    def add(self, reason: GapReason, is_met: pl.Expr) -> None:
        """Note a place; ``is_met`` says in which rows it has no value."""
        if len(self.found) > MAX_GAPS:
            return  # one stands for all: ``of``
        for given in self._conditions:
            condition = given if isinstance(given, pl.Expr) else given()
            is_met = is_met if condition is None else is_met & condition
        # A mask of literals alone has one row whatever the frame's height.
        self.found.append(Gap(reason, pl.repeat(value=True, n=pl.len(), dtype=pl.Boolean()) & is_met.fill_null(value=False)))


GapsOfCall = Callable[[Gaps, Sequence[Operand], Operand], None]
"""Notes where a call of a function has no result, from its arguments and its result."""


def without_result(reason: GapReason, *always: Kind) -> GapsOfCall:
    """Return what notes where the result is NULL and no argument is; of the kinds ``always`` there is always a result."""

    def note(gaps: Gaps, arguments: Sequence[Operand], result: Operand) -> None:
        if {argument.type.kind for argument in arguments if argument.type is not None} - {*always}:
            is_given = reduce(lambda a, b: a & b, (argument.expr.is_not_null() for argument in arguments))
            gaps.add(reason, is_given & result.expr.is_null())

    return note


def where_failed(reason: GapReason) -> GapsOfCall:
    """Return what notes the rows that the call itself says it failed in: its NULL may be a result, too."""

    def note(gaps: Gaps, _arguments: Sequence[Operand], result: Operand) -> None:
        if result.failed is not None:
            gaps.add(reason, result.failed)

    return note


def of_remainder(gaps: Gaps, arguments: Sequence[Operand], result: Operand) -> None:
    """Note where ``mod`` has no result."""
    gaps.after_arithmetic("%", arguments[0], arguments[1], result)


def of_joined(gaps: Gaps, arguments: Sequence[Operand], _result: Operand) -> None:
    """Note where texts are too long together."""
    parts = [coerce(argument, STRING, "concat") for argument in arguments]
    gaps.add("text_too_long", is_joined_too_long(parts, passes_nulls=True))


def of_replaced(gaps: Gaps, arguments: Sequence[Operand], _result: Operand) -> None:
    """Note where a text gets too long by what replaces its parts."""
    old = arguments[1].literal
    if isinstance(old, str):
        text, new = (coerce(arguments[place], STRING, "replace") for place in (0, 2))
        gaps.add("text_too_long", is_replaced_too_long(text, old, new))


def _lost(value: pl.Expr, source: ColumnType, target: ColumnType) -> pl.Expr | None:
    """Return where a value, or one inside it, has none in another type; None where that cannot be."""
    match source, target:
        case ColumnType(kind="array", element=ColumnType() as own), ColumnType(element=ColumnType() as wanted):
            inside = _lost(pl.element(), own, wanted)
            return None if inside is None else value.list.eval(inside).list.any()
        case ColumnType(kind="map", value=ColumnType() as own), ColumnType(value=ColumnType() as wanted):
            inside = _lost(pl.element().struct.field(VALUE), own, wanted)
            return None if inside is None else value.list.eval(inside).list.any()
        case ColumnType(kind="struct", fields=fields), ColumnType(fields=others):
            known = dict(others)
            found = (_lost(value.struct.field(name), kind, known[name]) for name, kind in fields if name in known)
            lost = [each for each in found if each is not None]
            return pl.any_horizontal(lost) if lost else None
        case _:
            return (
                None
                if _always_fits(source, target)
                else value.is_not_null() & cast(Operand(value, source), target).expr.is_null()
            )


def _always_fits(source: ColumnType, target: ColumnType) -> bool:
    """Whether every value of one type has one of the other."""
    if source == target or (target.kind in ("string", "double") and source.kind != "string"):
        return True
    if source.kind in ("date", "timestamp", "boolean"):
        return True
    if source.kind == "int" and target.kind == "bigint":
        return True
    if target.kind == "decimal" and (source.is_integer or source.kind == "decimal"):
        return digits_of(source)[0] <= digits_of(target)[0]
    return source.kind == "decimal" and target.kind == "bigint" and digits_of(source)[0] < BIGINT_DIGITS

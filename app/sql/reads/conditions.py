"""Find the parts of a WHERE that the database can evaluate: comparisons of one column with a literal, joined by AND. Pure.

The whole WHERE is applied to the rows afterwards, so parts may be left out here. Only comparisons that both sides evaluate alike are
pushed down: texts by equality only, because the database orders them by its collation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from app.http.values import MAX_INSTANT_MS, instant, parse_value
from app.reads.row_filters import MAX_FILTERS, MAX_LISTED, Comparison, Operator
from engine.expressions.types.types import TIMESTAMP, ColumnType, Schema
from engine.sql.tree import Binary, Boolean, Call, Chain, Column, In, Negative, Node, Number, Text

_SIGNS: Final[dict[str, Operator]] = {"=": "eq", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
_MIRRORED: Final[dict[Operator, Operator]] = {"eq": "eq", "gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
_ORDERED: Final = frozenset({"int", "bigint", "decimal", "date", "time", "timestamp"})
_EXACT: Final = frozenset({*_ORDERED, "string", "boolean"})


def pushed(where: Node | None, columns: Schema) -> tuple[Comparison, ...]:
    """Return comparisons that every row of the answer fulfils, one for each column and operator.

    Args:
        where: its columns have their own names behind an alias.
        columns: of the rows.
    """
    comparisons: dict[tuple[str, Operator], Comparison] = {}
    for part in _conjuncts(where):
        comparison = _comparison(part, columns)
        if comparison is not None and len(comparisons) < MAX_FILTERS:
            comparisons.setdefault((comparison.column, comparison.operator), comparison)
    return tuple(comparisons.values())


def _conjuncts(node: Node | None) -> Iterator[Node]:
    bare = None if node is None else node.bare
    if isinstance(bare, Chain) and bare.sign == "AND":
        for part in bare.operands:
            yield from _conjuncts(part)
    elif bare is not None:
        yield bare


def _comparison(part: Node, columns: Schema) -> Comparison | None:
    match part:
        case Binary(sign=sign, left=left, right=right) if sign in _SIGNS:
            return _compared(left, _SIGNS[sign], right, columns) or _compared(right, _MIRRORED[_SIGNS[sign]], left, columns)
        case In(operand=operand, items=items) if len(items) <= MAX_LISTED:
            return _listed(operand, items, columns)
    return None


def _compared(side: Node, operator: Operator, other: Node, columns: Schema) -> Comparison | None:
    named, text = _named(side, columns), _written(other)
    if named is None or text is None:
        return None
    column, kind, is_bound = named
    if kind.kind not in (_EXACT if operator == "eq" else _ORDERED):
        return None
    value = _value(text, kind, is_bound=is_bound)
    return None if value is None else Comparison(column, operator, value)


def _listed(operand: Node, items: Iterable[Node], columns: Schema) -> Comparison | None:
    named = _named(operand, columns)
    if named is None or named[1].kind not in _EXACT:
        return None
    column, kind, is_bound = named
    values = [None if (text := _written(item)) is None else _value(text, kind, is_bound=is_bound) for item in items]
    return Comparison(column, "in", values) if values and all(value is not None for value in values) else None


def _named(node: Node, columns: Schema) -> tuple[str, ColumnType, bool] | None:
    """Return a column with its type, and whether the node is a window bound in milliseconds."""
    match node.bare:
        case Column(name=name) if name.text in columns and columns[name.text] != TIMESTAMP:
            return name.text, columns[name.text], False
        case Call(arguments=(Column(name=name),)) as call if call.name.text == "epoch_ms" and name.text in columns:
            return name.text, columns[name.text], True
    return None


def _written(node: Node) -> str | None:
    match node.bare:
        case Text(value=text) | Number(text=text):
            return text
        case Negative(operand=Number(text=text)):
            return f"-{text}"
        case Boolean(value=value):
            return "true" if value else "false"
    return None


def _value(text: str, kind: ColumnType, *, is_bound: bool) -> Any:
    try:
        if not is_bound:
            return parse_value(text, kind)
        return instant(int(text)) if 0 <= int(text) <= MAX_INSTANT_MS else None
    except ValueError:
        return None

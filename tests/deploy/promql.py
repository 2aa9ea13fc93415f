"""What an expression of PromQL asks for: parsed by the library, so a slip in the expression is an error here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser as promql


@dataclass(frozen=True)
class Selected:
    """A metric with the labels that its matchers name."""

    name: str
    labels: frozenset[str]


def selected(expression: str) -> list[Selected]:
    """Return every metric of an expression; fails where it cannot be parsed."""
    return list(_selected(promql.parse(expression)))


def grouped_by(expression: str) -> set[str]:
    """Return every label that an aggregation of the expression keeps or leaves out."""
    return set(_grouped(promql.parse(expression)))


def _selected(node: Any) -> Iterator[Selected]:
    if isinstance(node, promql.VectorSelector):
        named = {matcher.name: matcher.value for matcher in node.matchers.matchers}
        yield Selected(node.name or named["__name__"], frozenset(named) - {"__name__"})
    for child in _children(node):
        yield from _selected(child)


def _grouped(node: Any) -> Iterator[str]:
    if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
        yield from node.modifier.labels
    for child in _children(node):
        yield from _grouped(child)


def _children(node: Any) -> list[Any]:
    match node:
        case promql.AggregateExpr():
            return [node.expr, *([node.param] if node.param is not None else [])]
        case promql.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql.Call():
            return list(node.args)
        case promql.MatrixSelector():
            return [node.vector_selector]
        case promql.UnaryExpr() | promql.ParenExpr() | promql.SubqueryExpr():
            return [node.expr]
        case promql.VectorSelector() | promql.NumberLiteral() | promql.StringLiteral():
            return []
    raise TypeError(f"{type(node).__name__}: nobody has said what is below it")

"""Bind the values of a request to ``?`` and ``:name``: they become literals of the tree, never parsed text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.errors.app_errors import Fault, Unprocessable
from engine.sql.scripts import Script
from engine.sql.statement_tree import Statement
from engine.sql.tree import Boolean, Negative, Node, Null, Number, Parameter, Text


def with_parameters(script: Script, given: Sequence[Any] | Mapping[str, Any]) -> Script:
    """Return a script with a literal for each parameter.

    Args:
        script: as it was parsed.
        given: values in the order of ``?``, or by name.

    Raises:
        Unprocessable: ``parameter_missing``, ``parameter_unused``, ``parameter_type``.
    """
    known: dict[str | int, Any] = {}
    known.update(given.items() if isinstance(given, Mapping) else enumerate(given))
    used: set[str | int] = set()
    place = 0

    def bound(node: Node) -> Node | None:
        nonlocal place
        if not isinstance(node, Parameter):
            return None
        key: str | int = place if node.name is None else node.name
        place += node.name is None
        if key not in known:
            shown = f"?, the {place}. one" if node.name is None else f":{node.name}"
            raise _refusal("parameter_missing", f"there is no value for {shown}; give it in `parameters`")
        used.add(key)
        return _literal(known[key], key, node)

    statements = tuple(replace(each, tree=_bound(each.tree, bound)) for each in script.statements)
    if unused := sorted(set(known) - used, key=str):
        raise _refusal("parameter_unused", f"no statement has the parameter {unused[0]}; leave its value out")
    return replace(script, statements=statements)


def _bound(tree: Statement, change: Callable[[Node], Node | None]) -> Statement:
    mapped = tree.mapped(change)
    if not isinstance(mapped, Statement):
        raise TypeError("a statement stays one")
    return mapped


def _literal(value: Any, key: str | int, at: Node) -> Node:
    match value:
        case None:
            return Null(span=at.span)
        case bool():
            return Boolean(value, span=at.span)
        case str():
            return Text(value, span=at.span)
        case int() | float():
            text = repr(abs(value))
            number = Number(text, span=at.span)
            return Negative(number, span=at.span) if value < 0 else number
    raise _refusal("parameter_type", f"the parameter {key} is a text, a number, true, false or null, not {type(value).__name__}")


def _refusal(code: str, detail: str) -> Unprocessable:
    return Unprocessable(code, detail, [Fault("/parameters", code, detail)])

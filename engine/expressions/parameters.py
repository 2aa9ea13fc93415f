"""Which columns a tree names: those that are no parameter of a lambda around them. A parameter hides a column of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.sql.tree import Column, Field, Identifier, Lambda, Node, StructOf


def free_columns(tree: Node, hidden: frozenset[str] = frozenset()) -> Iterator[Column]:
    """Yield the columns that a tree names, in the order of the text."""
    if isinstance(tree, Column):
        if not is_parameter(tree, hidden):
            yield tree
    elif isinstance(tree, Lambda):
        yield from free_columns(tree.body, hidden | {name.text for name in tree.parameters})
    else:
        for part in tree.children:
            yield from free_columns(part, hidden)


def with_columns(tree: Node, change: Callable[[Column], Column], hidden: frozenset[str] = frozenset()) -> Node:
    """Return the tree with each column replaced; a parameter that would hide one of the new names gets another name."""

    def changed(node: Node) -> Node | None:
        if isinstance(node, Column):
            return node if is_parameter(node, hidden) else change(node)
        if isinstance(node, Lambda):
            own = _with_other_names(node, {change(each).full_name for each in free_columns(node, hidden)})
            names = hidden | {name.text for name in own.parameters}
            return replace(own, body=with_columns(own.body, change, names))
        return None

    return tree.mapped(changed)


def is_parameter(column: Column, names: frozenset[str]) -> bool:
    return column.table is None and column.name.text in names


def _with_other_names(node: Lambda, taken: set[str]) -> Lambda:
    """Return a lambda none of whose parameters has one of these names."""
    for name in node.parameters:
        if name.text not in taken:
            continue
        used = taken | {each.text for each in node.parameters} | {each.full_name for each in free_columns(node.body)}
        other = Identifier(
            next(made for n in range(2, len(used) + 3) if (made := f"{name.text}_{n}") not in used), is_quoted=True
        )
        body = with_columns(node.body, _renaming(name, other))
        node = replace(node, parameters=tuple(other if each is name else each for each in node.parameters), body=body)
    return node


def _renaming(name: Identifier, other: Identifier) -> Callable[[Column], Column]:
    return lambda column: Column(other) if is_parameter(column, frozenset((name.text,))) else column


def with_quotes(tree: Node) -> Node:
    """Return the tree with columns, fields and parameters in quotes: one text for all ways to write it."""
    return tree.mapped(_in_quotes)


def _in_quotes(node: Node) -> Node | None:
    match node:
        case Column(name=name, table=table):
            return replace(node, name=quoted_name(name), table=None if table is None else quoted_name(table))
        case Field(operand=operand, name=name):
            return replace(node, operand=with_quotes(operand), name=quoted_name(name))
        case StructOf(fields=fields):
            return replace(
                node, fields=tuple(replace(each, name=quoted_name(each.name), value=with_quotes(each.value)) for each in fields)
            )
        case Lambda(parameters=parameters, body=body):
            return replace(node, parameters=tuple(map(quoted_name, parameters)), body=with_quotes(body))
    return None


def quoted_name(name: Identifier) -> Identifier:
    """Return a name in quotes."""
    return replace(name, is_quoted=True)

"""Reads `on`: which columns of a joined relation equal what of the relation it is joined to."""

from __future__ import annotations

from dataclasses import dataclass

from engine.definition.operands import ExpressionInvalid
from engine.definition.queries import Join
from engine.definition.syntax import parse, quoted, render
from engine.definition.types import ColumnType, Schema
from engine.plan.problems import Problems
from engine.plan.scope import Checked, Scope, Side, check_expression
from engine.sql.tree import Binary, Chain, Column, Node


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One equality of `on`.

    Attributes:
        right: column of the joined relation, unqualified.
        left: what equals it, over the columns before the join.
    """

    right: str
    left: Checked


def key_parts(scope: Scope, index: int) -> tuple[KeyPart, ...] | None:
    """Check `on` of one join.

    Returns:
        For a table one part per key column, in the key's order; for a stream the parts in the order written, or None after adding
        problems.
    """
    join, side = scope.definition.joins[index], scope.joined[index]
    pointer = f"{side.pointer}/on"
    before = scope.schema(index)
    found = _by_name(scope.source, side, pointer, before, scope.problems) if join.on is None else None
    if join.on is not None:
        found = _equalities(join, side, pointer, before, scope.problems)
    if found is None:
        return None
    key = side.entry.relation.key
    if side.kind == "table":
        if set(found) != set(key):
            wanted = " AND ".join(f"{scope.source.alias}.… = {side.qualified(name)}" for name in key)
            scope.problems.add(pointer, "join_key_mismatch", f"`on` must equate exactly the key of {side.name}: {wanted}")
            return None
        found = {name: found[name] for name in key}
    parts = tuple(KeyPart(right, left) for right, left in found.items())
    fits = [_is_comparable(part, side, pointer, scope.problems) for part in parts]
    return parts if all(fits) else None


def _by_name(source: Side, side: Side, pointer: str, before: Schema, problems: Problems) -> dict[str, Checked] | None:
    """Equate the joined relation's key with the input's columns of the same names, as a join without `on` means."""
    key = side.entry.relation.key
    if not key:
        problems.add(pointer, "field_missing", f"{side.name} has no key; say which columns meet, as in {side.alias}.column = …")
        return None
    found: dict[str, Checked] = {}
    for name in key:
        if name not in source.entry.relation.columns:
            problems.add(pointer, "unknown_column", f"{source.name} has no column {name}; say with `on` what equals it")
            return None
        checked = check_expression(pointer, quoted(name, source.alias), before, problems)
        if checked is not None:
            found[name] = checked
    return found


def _equalities(join: Join, side: Side, pointer: str, before: Schema, problems: Problems) -> dict[str, Checked] | None:
    """Read `on` as a conjunction of equalities: column of the joined relation → what equals it."""
    try:
        tree = parse(join.on or "")
    except ExpressionInvalid as error:
        problems.add(pointer, error.code, error.detail)
        return None
    found: dict[str, Checked] = {}
    for part in _conjunction(tree):
        sides = _sides(part, side.alias)
        if sides is None:
            problems.add(
                pointer, "join_key_mismatch",
                f"`on` is made of equalities between an expression over what comes before and a plain column of {side.alias}: "
                f"… = {side.alias}.column, several with AND; put other conditions into `where`",
            )  # fmt: skip
            return None
        left, right = sides
        if right not in side.entry.relation.columns:
            problems.add(pointer, "unknown_column", f"{side.name} has no column {right}")
            return None
        checked = check_expression(pointer, render(left), before, problems)
        if checked is None:
            return None
        if found.setdefault(right, checked).text != checked.text:
            problems.add(
                pointer, "join_key_mismatch",
                f"{side.qualified(right)} is equated with both {found[right].text} and {checked.text}; compare the two in `where`",
            )  # fmt: skip
            return None
    return found


def _conjunction(tree: Node) -> list[Node]:
    """Return the parts of ``a AND (b AND c)``, brackets taken off."""
    bare = tree.bare
    if not isinstance(bare, Chain) or bare.sign != "AND":
        return [bare]
    return [part for operand in bare.operands for part in _conjunction(operand)]


def _sides(node: Node, alias: str) -> tuple[Node, str] | None:
    """Return (expression before the join, column of the joined relation) of one equality, None where it is something else."""
    if not isinstance(node, Binary) or node.sign != "=":
        return None
    one, other = node.left.bare, node.right.bare
    if _of(one, alias) is not None and _of(other, alias) is None:
        one, other = other, one
    name = _of(other, alias)
    return None if name is None or any(_of(part, alias) is not None for part in one.walk()) else (one, name)


def _of(node: Node, alias: str) -> str | None:
    """Return the name of a column of that relation; None for whatever else a node is."""
    if not isinstance(node, Column) or node.table is None or node.table.text != alias:
        return None
    return node.name.text


def _is_comparable(part: KeyPart, side: Side, pointer: str, problems: Problems) -> bool:
    mine, theirs = part.left.scalar.type, side.entry.relation.columns[part.right]
    if mine.is_nested or theirs.is_nested:
        problems.add(pointer, "type_mismatch", f"{side.qualified(part.right)} is {theirs}; nested values cannot be compared")
        return False
    if _family(mine) != _family(theirs):
        problems.add(
            pointer, "type_mismatch",
            f"{part.left.text} is {mine} and {side.qualified(part.right)} is {theirs}; they can never be equal",
        )  # fmt: skip
        return False
    return True


def _family(kind: ColumnType) -> str:
    return "integer" if kind.is_integer else str(kind)

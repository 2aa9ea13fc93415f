"""Reads `on`: which columns of a joined relation equal what of the relation it is joined to, and which columns are the key of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.definition.problems import Problems
from engine.definition.queries import Join
from engine.expressions.parameters import free_columns
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.syntax import parse, quoted, render
from engine.expressions.types.types import BIGINT, ColumnType, Schema
from engine.expressions.values.nested import NO_KEY
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.building.scope import Checked, Scope, Side, check_expression, unqualified
from engine.plan.operators.table_table_join import TableTableJoin
from engine.sql.tree import Binary, Chain, Column, Node


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One equality of `on`.

    Attributes:
        right: column of the joined relation, unqualified; a made-up name where it is more than a column.
        left: what equals it, over the columns before the join.
        computed: what the column is made of, over the joined relation's own names; None where the relation has it.
    """

    right: str
    left: Checked
    computed: Checked | None = None

    def type_of(self, side: Side) -> ColumnType:
        """Return the type of the joined relation's part."""
        return side.entry.relation.columns[self.right] if self.computed is None else self.computed.scalar.type

    def shown(self, side: Side) -> str:
        """Return the joined relation's part for a message."""
        return side.qualified(self.right) if self.computed is None else f"{self.computed.text} of {side.alias}"


def key_parts(scope: Scope, index: int) -> tuple[KeyPart, ...] | None:
    """Check `on` of one join.

    Returns:
        For a table one part per key column, in the key's order; for a stream the parts in the order written, or None after adding
        problems.
    """
    join, side = scope.definition.joins[index], scope.joined[index]
    pointer = f"{side.pointer}/on"
    before = scope.schema(index)
    if join.on is None:
        found = _by_name(scope.source, side, pointer, before, scope.problems)
    else:
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
    parts = tuple(found.values())
    fits = [_is_comparable(part, side, pointer, scope.problems) for part in parts]
    return parts if all(fits) else None


def _by_name(source: Side, side: Side, pointer: str, before: Schema, problems: Problems) -> dict[str, KeyPart] | None:
    """Equate the joined relation's key with the input's columns of the same names, as a join without `on` means."""
    key = side.entry.relation.key
    if not key:
        problems.add(pointer, "field_missing", f"{side.name} has no key; say which columns meet, as in {side.alias}.column = …")
        return None
    found: dict[str, KeyPart] = {}
    for name in key:
        if name not in source.entry.relation.columns:
            problems.add(pointer, "unknown_column", f"{source.name} has no column {name}; say with `on` what equals it")
            return None
        checked = check_expression(pointer, quoted(name, source.alias), before, problems)
        if checked is not None:
            found[name] = KeyPart(name, checked)
    return found


def _equalities(join: Join, side: Side, pointer: str, before: Schema, problems: Problems) -> dict[str, KeyPart] | None:
    """Read `on` as a conjunction of equalities: what of the joined relation, by name → the equality."""
    try:
        tree = parse(join.on or "")
    except ExpressionInvalid as error:
        problems.add(pointer, error.code, error.detail)
        return None
    found: dict[str, KeyPart] = {}
    for number, equality in enumerate(_conjunction(tree)):
        sides = _sides(equality, side.alias)
        if sides is None:
            problems.add(
                pointer, "join_key_mismatch",
                f"`on` is made of equalities between an expression over what comes before and one over {side.alias} alone, whose columns "
                f"are written with the prefix: … = {side.alias}.column, several with AND; put other conditions into `where`",
            )  # fmt: skip
            return None
        part = _part(sides, number, side, pointer, before, problems)
        if part is None:
            return None
        name = part.right if part.computed is None else part.computed.text
        if found.setdefault(name, part).left.text != part.left.text:
            problems.add(
                pointer, "join_key_mismatch",
                f"{part.shown(side)} is equated with both {found[name].left.text} and {part.left.text}; compare the two in `where`",
            )  # fmt: skip
            return None
    return found


def _part(sides: tuple[Node, Node], number: int, side: Side, pointer: str, before: Schema, problems: Problems) -> KeyPart | None:
    """Check one equality: what comes before, and what of the joined relation it equals."""
    left, right = sides
    name = _of(right, side.alias)
    name = None if name == EVENT_TIME else name
    if name is not None and name not in side.entry.relation.columns:
        problems.add(pointer, "unknown_column", f"{side.name} has no column {name}")
        return None
    if name is None and side.kind == "table":
        wanted = " AND ".join(f"… = {side.qualified(key)}" for key in side.entry.relation.key)
        problems.add(
            pointer, "join_key_mismatch",
            f"a table is met by its key, not by an expression of its columns: {wanted}; compute the expression before, by a query that groups "
            "by it or a stream's `select`, or write its inverse on the other side",
        )  # fmt: skip
        return None
    checked = check_expression(pointer, render(left), before, problems)
    computed = None if name is not None else check_expression(pointer, render(right), side.schema(), problems, unqualified)
    if checked is None or (name is None and computed is None):
        return None
    return KeyPart(name or f"$right{number}", checked, computed)


def _conjunction(tree: Node) -> list[Node]:
    """Return the parts of ``a AND (b AND c)``, brackets taken off."""
    bare = tree.bare
    if not isinstance(bare, Chain) or bare.sign != "AND":
        return [bare]
    return [part for operand in bare.operands for part in _conjunction(operand)]


def _sides(node: Node, alias: str) -> tuple[Node, Node] | None:
    """Return (expression before the join, expression of the joined relation) of one equality, None where it is something else."""
    if not isinstance(node, Binary) or node.sign != "=":
        return None
    one, other = node.left.bare, node.right.bare
    if not _is_of(other, alias):
        one, other = other, one
    is_apart = not any(_of(part, alias) is not None for part in one.walk())
    return (one, other) if is_apart and _is_of(other, alias) else None


def _is_of(node: Node, alias: str) -> bool:
    """Whether an expression has columns, all of that relation."""
    columns = list(free_columns(node))
    return bool(columns) and all(_of(column, alias) is not None for column in columns)


def _of(node: Node, alias: str) -> str | None:
    """Return the name of a column of that relation; None for whatever else a node is."""
    if not isinstance(node, Column) or node.table is None or node.table.text != alias:
        return None
    return node.name.text


def _is_comparable(part: KeyPart, side: Side, pointer: str, problems: Problems) -> bool:
    mine, theirs = part.left.scalar.type, part.type_of(side)
    if mine.has_map or theirs.has_map:
        problems.add(pointer, "type_mismatch", f"{part.left.text} is {mine} and {part.shown(side)} is {theirs}, {NO_KEY}")
        return False
    if _family(mine) != _family(theirs):
        problems.add(
            pointer, "type_mismatch",
            f"{part.left.text} is {mine} and {part.shown(side)} is {theirs}; they can never be equal",
        )  # fmt: skip
        return False
    return True


def _family(kind: ColumnType) -> str:
    return "integer" if kind.is_integer else str(kind)


JoinType = Literal["inner", "left", "right", "outer"]


def result_key(join: JoinType, name: str, left_key: tuple[str, ...], right_key: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that hold the key of a join's rows, in the order of both sides' keys; ``name`` is the join's.

    The columns of an absent side are null, also its key columns. So the rows of an outer join get key columns of their own, with the key of
    the side that exists.
    """
    if join == "outer":
        return tuple(f"{name}.$key{index}" for index in range(len(left_key)))
    return right_key if join == "right" else left_key


def made_columns(spec: TableTableJoin, left: Schema, right: Schema) -> Schema:
    """Return the key columns that the join makes; ``left`` and ``right`` have both sides' columns."""
    columns = zip(spec.left_key, spec.right_key, spec.key, strict=True)
    return Schema(tuple((key, wider(left[mine], right[other])) for mine, other, key in columns if key not in (mine, other)))


def joined_schema(spec: TableTableJoin, left: Schema, right: Schema) -> Schema:
    """Return the columns of the join's rows."""
    carried = (*left.select(spec.left_columns).items(), *right.select(spec.right_columns).items())
    return Schema((*carried, *made_columns(spec, left, right).items()))


def wider(one: ColumnType, other: ColumnType) -> ColumnType:
    """Return the type that holds the values of both columns, which can be equal: they differ only as int and bigint do."""
    return BIGINT if BIGINT in (one, other) else one

"""Checks and plans stream–table joins: which columns meet, whether the graces fit, where the inputs must be hashed."""

from __future__ import annotations

from sqlglot import exp

from engine.definition.durations import format_duration
from engine.definition.operands import ExpressionInvalid
from engine.definition.queries import Join
from engine.definition.syntax import flatten, parse
from engine.definition.types import ColumnType
from engine.plan.problems import Problems
from engine.plan.scope import Side


def check_grace(join: Join, table: Side, pointer: str, problems: Problems) -> None:
    """J8: 0 ≤ grace ≤ history retention; a grace needs a versioned table unless ``unversioned_ok``."""
    retention_ms = table.entry.relation.history_retention_ms
    if join.grace is None:
        if join.late != "join":
            problems.add(f"{pointer}/late", "late_without_grace", "`late` is judged only with a grace; give one (0s is enough)")
        return
    if retention_ms is not None:
        if join.grace > retention_ms:
            problems.add(
                f"{pointer}/grace",
                "grace_exceeds_history_retention",
                f"a grace of {format_duration(join.grace)} needs versions older than the {format_duration(retention_ms)} that "
                f"{table.entry.relation.name} keeps; lower the grace or register the table with a larger history_retention",
            )
    elif not join.unversioned_ok:
        problems.add(
            f"{pointer}/grace",
            "grace_needs_versioned_table",
            f"{table.entry.relation.name} is not versioned, so waiting cannot find the value of the record's own time; make the "
            "table versioned ('versioned': {'history_retention': …}), or drop the grace, or say 'unversioned_ok': true to meet "
            "the latest value by arrival",
        )
    elif join.grace == 0:
        problems.add(
            f"{pointer}/grace", "grace_needs_versioned_table", "a grace of 0s needs a versioned table; leave the grace out"
        )


def join_pairs(join: Join, stream: Side, table: Side, pointer: str, problems: Problems) -> dict[str, str] | None:
    """Find the stream's columns that equal the table's key.

    Returns:
        From each key column, in the key's order, to the stream's column (both unqualified), or None after adding problems.
    """
    key = table.entry.relation.key
    pairs = {name: name for name in key} if join.on is None else _pairs(join.on, stream, table, f"{pointer}/on", problems)
    if pairs is None:
        return None
    if set(pairs) != set(key):
        problems.add(
            f"{pointer}/on", "join_key_mismatch",
            f"`on` must equate exactly the key of {table.entry.relation.name}: "
            + " AND ".join(f"{stream.alias}.… = {table.alias}.{name}" for name in key),
        )  # fmt: skip
        return None
    fits = [_check_pair(pairs[name], name, stream, table, pointer, problems) for name in key]
    return {name: pairs[name] for name in key} if all(fits) else None


def _check_pair(left: str, right: str, stream: Side, table: Side, pointer: str, problems: Problems) -> bool:
    columns = stream.entry.relation.columns
    if left not in columns:
        problems.add(f"{pointer}/on", "unknown_column", f"{stream.entry.relation.name} has no column {left}")
        return False
    mine, theirs = columns[left], table.entry.relation.columns[right]
    if _family(mine) != _family(theirs):
        problems.add(
            f"{pointer}/on", "type_mismatch",
            f"{stream.alias}.{left} is {mine} and {table.alias}.{right} is {theirs}; they can never be equal",
        )  # fmt: skip
        return False
    return True


def _family(kind: ColumnType) -> str:
    return "integer" if kind.is_integer else str(kind)


def _pairs(text: str, stream: Side, table: Side, pointer: str, problems: Problems) -> dict[str, str] | None:
    """Read ``on`` as a conjunction of equalities: table column → stream column."""
    try:
        tree = parse(text)
    except ExpressionInvalid as error:
        problems.add(pointer, error.code, error.detail)
        return None
    pairs: dict[str, str] = {}
    for part in _conjunction(tree):
        sides = _sides(part, stream, table)
        if sides is None:
            problems.add(
                pointer, "not_supported_yet",
                f"`on` joins plain columns by equality: {stream.alias}.column = {table.alias}.column, several with AND",
            )  # fmt: skip
            return None
        left, right = sides
        if right not in table.entry.relation.columns:
            problems.add(pointer, "unknown_column", f"{table.entry.relation.name} has no column {right}")
            return None
        if pairs.setdefault(right, left) != left:
            problems.add(
                pointer, "join_key_mismatch",
                f"{table.alias}.{right} is equated with both {pairs[right]} and {left}; compare the two in `where`",
            )  # fmt: skip
            return None
    return pairs


def _conjunction(tree: exp.Expr) -> list[exp.Expr]:
    """Return the parts of ``a AND (b AND c)``, brackets taken off."""
    bare = tree.unnest()
    if not isinstance(bare, exp.And):
        return [bare]
    return [part for operand in flatten(bare) for part in _conjunction(operand)]


def _sides(node: exp.Expr, stream: Side, table: Side) -> tuple[str, str] | None:
    """Return (stream column, table column) of one equality, None where it is something else."""
    if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column) or not isinstance(node.expression, exp.Column):
        return None
    one, other = node.this, node.expression
    if one.table == table.alias and other.table != table.alias:
        one, other = other, one
    if other.table != table.alias or one.table not in ("", stream.alias):
        return None
    return one.name, other.name

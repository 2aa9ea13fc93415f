"""Whether a pull query finds its rows by their key, or has to look at all of them: a request may forbid that, as in ksqlDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.sql.statement_tree import Select
from engine.sql.tree import Between, Binary, Chain, Column, In, Node
from engine.statements.faults import StatementRefused
from engine.statements.reading import OwnedRead, read_of
from engine.statements.session import Session

TABLE_SCANS: Final = "ksql.query.pull.table.scan.enabled"
RANGE_SCANS: Final = "ksql.query.pull.range.scan.enabled"
_RANGES: Final = frozenset({"<", "<=", ">", ">="})
_MOST_ALTERNATIVES: Final = 100


def pull_of(select: Select, session: Session) -> OwnedRead:
    """Bind a pull query.

    Raises:
        StatementRefused: as ``read_of``; ``scan_forbidden`` where the settings want rows asked for by their key.
    """
    read = read_of(select, session)
    values = session.settings.values
    if read.relation.kind == "table" and not _is_set(values.get(TABLE_SCANS)):
        has_ranges = _is_set(values.get(RANGE_SCANS)) and len(read.relation.key) == 1
        if not is_by_key(read, has_ranges=has_ranges):
            how = f"give the key ({', '.join(read.relation.key)}) in WHERE, in every alternative of an OR"
            detail = (
                f"this SELECT looks at all rows of {read.relation.name}, and {TABLE_SCANS} is false; {how}, or set it to true"
            )
            raise StatementRefused("scan_forbidden", detail, select.where or select)
    return read


def is_by_key(read: OwnedRead, *, has_ranges: bool) -> bool:
    """Whether each alternative of WHERE says the whole key; with ``has_ranges`` bounds of its one column will do where there is no OR."""
    if read.where is None:
        return False
    key = frozenset(read.relation.key)
    alternatives = _alternatives(read.where)
    if has_ranges and len(alternatives) == 1 and any(_is_bound(part, key) for part in alternatives[0]):
        return True
    return len(alternatives) <= _MOST_ALTERNATIVES and all(key <= set(_fixed(parts)) for parts in alternatives)


def _is_set(value: str | None) -> bool:
    return value is None or value.strip().lower() == "true"


def _alternatives(node: Node) -> list[list[Node]]:
    """Return a condition as an OR of ANDs; no more of them than are looked at."""
    bare = node.bare
    if isinstance(bare, Chain) and bare.sign == "OR":
        return [parts for each in bare.operands for parts in _alternatives(each)][: _MOST_ALTERNATIVES + 1]
    if isinstance(bare, Chain) and bare.sign == "AND":
        found: list[list[Node]] = [[]]
        for each in bare.operands:
            found = [[*left, *right] for left in found for right in _alternatives(each)][: _MOST_ALTERNATIVES + 1]
        return found
    return [[bare]]


def _fixed(parts: list[Node]) -> Iterator[str]:
    for part in parts:
        match part:
            case Binary(sign="=", left=left, right=right):
                yield from (side.bare.name.text for side in (left, right) if isinstance(side.bare, Column))
            case In(operand=operand) if isinstance(operand.bare, Column):
                yield operand.bare.name.text


def _is_bound(part: Node, key: frozenset[str]) -> bool:
    match part:
        case Binary(sign=sign, left=left, right=right) if sign in _RANGES:
            sides: tuple[Node, ...] = (left.bare, right.bare)
        case Between(operand=operand):
            sides = (operand.bare,)
        case _:
            return False
    return any(isinstance(side, Column) and side.name.text in key for side in sides)

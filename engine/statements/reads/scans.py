"""Whether a pull query finds its rows by their key, or has to look at all of them: a request may forbid that, as in ksqlDB."""

from __future__ import annotations

from typing import Final

from engine.sql.statement_tree import Select
from engine.sql.tree import Binary, Chain, Column, In, Node, Null, Text
from engine.statements.context.faults import StatementFault, StatementRefused, raise_all
from engine.statements.context.session import Session
from engine.statements.context.type_names import shown
from engine.statements.reads.reading import OwnedRead, read_of

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
    if read.relation.kind == "stream":
        return read
    _check_keys(read)
    values = session.settings.values
    if not _is_set(values.get(TABLE_SCANS)):
        has_ranges = _is_set(values.get(RANGE_SCANS)) and len(read.relation.key) == 1
        if not is_by_key(read, has_ranges=has_ranges):
            how = f"give the key ({', '.join(read.relation.key)}) in WHERE, in every alternative of an OR"
            detail = (
                f"this SELECT looks at all rows of {read.relation.name}, and {TABLE_SCANS} is false; {how}, or set it to true"
            )
            raise StatementRefused("scan_forbidden", detail, select.where or select)
    return read


def is_by_key(read: OwnedRead, *, has_ranges: bool) -> bool:
    """Whether each alternative of WHERE says the whole key; with ``has_ranges`` one bound of its one column will do where there is no OR."""
    if read.where is None:
        return False
    key = frozenset(read.relation.key)
    alternatives = _alternatives(read.where)
    if has_ranges and len(alternatives) == 1:
        of_key = [part for part in alternatives[0] if key & _columns(part)]
        if len(of_key) == 1 and isinstance(of_key[0], Binary) and of_key[0].sign in _RANGES and _fixed(of_key[0]):
            return True
    return len(alternatives) <= _MOST_ALTERNATIVES and all(
        key <= {name for part in parts if _is_equality(part) and (name := _fixed(part)) is not None} for parts in alternatives
    )


def _check_keys(read: OwnedRead) -> None:
    """Refuse what no key can be, in a list of keys."""
    if read.where is None:
        return
    faults: list[StatementFault] = []
    for part in read.where.walk():
        if not isinstance(part, In) or (name := _fixed(part)) not in read.relation.key:
            continue
        kind = read.relation.columns[name]
        for item in part.items:
            if isinstance(item.bare, Null):
                detail = f"{name} is a part of the key and never NULL: take NULL out of the list"
                faults.append(StatementRefused("type_mismatch", detail, item))
            if isinstance(item.bare, Text) and kind.is_numeric:
                detail = f"{name} is {shown(kind)}, and {item.bare.value!r} is a text: write a number"
                faults.append(StatementRefused("type_mismatch", detail, item))
    raise_all(faults)


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


def _is_equality(part: Node) -> bool:
    return isinstance(part, In) or (isinstance(part, Binary) and part.sign == "=")


def _fixed(part: Node) -> str | None:
    """Return the column that a condition compares with what has no columns."""
    match part:
        case Binary(left=left, right=right):
            sides: tuple[tuple[Node, tuple[Node, ...]], ...] = ((left.bare, (right,)), (right.bare, (left,)))
        case In(operand=operand, items=items):
            sides = ((operand.bare, items),)
        case _:
            return None
    for own, others in sides:
        if isinstance(own, Column) and not any(map(_columns, others)):
            return own.name.text
    return None


def _columns(node: Node) -> set[str]:
    return {part.name.text for part in node.walk() if isinstance(part, Column)}

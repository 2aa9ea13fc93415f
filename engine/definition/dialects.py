"""Elaboration: expressions of a dialect written out in the standard language, which is all that plans, workers and kept state know.

It rewrites trees and looks at no types: ``a = b`` of ksqlDB, which is false where one side is NULL, becomes ``coalesce(a = b, FALSE)``, its
``a + b``, which also joins texts, ``plus(a, b)``, and its functions become the entries of our lists that do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from engine.definition.queries import QueryDefinition
from engine.expressions.aggregates.aggregates import KSQLDB_AGGREGATES
from engine.expressions.library.function_list import KSQLDB
from engine.expressions.python_functions import with_digests
from engine.expressions.syntax import parse, render, type_of
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.tree import (
    ArrayOf,
    Between,
    Binary,
    Boolean,
    Call,
    Case,
    Cast,
    Chain,
    Column,
    Entry,
    Identifier,
    In,
    Like,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Paren,
    Star,
    StructOf,
    Text,
    When,
)

_NAMES: Final = {name.lower(): entry for name, entry in {**KSQLDB, **KSQLDB_AGGREGATES}.items()}
_EVENT_TIME: Final = "$event_time_ms"
_ARITHMETIC: Final = {"-": "minus", "*": "times", "/": "divide", "%": "remainder"}
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


def elaborated(definition: QueryDefinition) -> QueryDefinition:
    """Return a definition that says the same in the standard dialect. A text that cannot be parsed stays unchanged: the later check says why."""
    if definition.functions:
        functions = definition.functions

        def named(text: str) -> str:
            return _rewritten(text, lambda tree: with_digests(tree, functions))

        definition = _with_texts(definition, named, named, named)
    if definition.dialect == "standard":
        return definition
    return _with_texts(definition, elaborated_text, _condition, lambda text: _rewritten(text, _equalities)).model_copy(
        update={"dialect": "standard"}
    )


def _with_texts(
    definition: QueryDefinition, value: Callable[[str], str], condition: Callable[[str], str], equality: Callable[[str], str]
) -> QueryDefinition:
    """Return a definition with every expression changed."""
    source = definition.source.model_copy(update={"where": _of(definition.source.where, condition)})
    select = None if definition.select is None else {name: value(text) for name, text in definition.select.items()}
    return definition.model_copy(
        update={
            "source": source,
            "joins": tuple(each.model_copy(update={"on": _of(each.on, equality)}) for each in definition.joins),
            "where": _of(definition.where, condition),
            "group_by": tuple(map(value, definition.group_by)),
            "aggregate": {name: value(text) for name, text in definition.aggregate.items()},
            "having": _of(definition.having, condition),
            "select": select,
        }
    )


def _of(text: str | None, change: Callable[[str], str]) -> str | None:
    return None if text is None else change(text)


def elaborated_text(text: str) -> str:
    """Return an expression of the dialect ksqldb as one of the standard language."""
    return _rewritten(text, lambda tree: standard(tree, is_condition=False))


def _condition(text: str) -> str:
    return _rewritten(text, lambda tree: standard(tree, is_condition=True))


def _rewritten(text: str, change: Callable[[Node], Node]) -> str:
    try:
        tree = parse(text)
    except ExpressionInvalid:
        return text
    changed = change(tree)
    return text if changed == tree else render(changed)


def _equalities(tree: Node) -> Node:
    """Elaborate both sides of each equality of `on`; what is none stays, to be refused."""
    match tree:
        case Paren(inner=inner):
            return replace(tree, inner=_equalities(inner))
        case Chain(sign="AND", operands=operands):
            return replace(tree, operands=tuple(map(_equalities, operands)))
        case Binary(sign="=", left=left, right=right):
            return replace(tree, left=standard(left, is_condition=False), right=standard(right, is_condition=False))
    return tree


def standard(node: Node, *, is_condition: bool) -> Node:
    """Return an expression as a tree of the standard language.

    Args:
        node: of the dialect ``ksqldb``.
        is_condition: NULL counts as FALSE where it stands, so that a comparison may stay as it is.
    """
    match node:
        case Paren(inner=inner):
            return replace(node, inner=standard(inner, is_condition=is_condition))
        case Chain(sign="AND" | "OR", operands=operands):
            return replace(node, operands=tuple(standard(part, is_condition=is_condition) for part in operands))
        case Case(subject=None, branches=branches, default=default):
            cases = tuple(_branch(branch) for branch in branches)
            return replace(node, branches=cases, default=None if default is None else standard(default, is_condition=False))
        case Like(is_negated=True):
            return Not(standard(replace(node, is_negated=False), is_condition=False))
        case Like(escape=None, pattern=pattern) if not isinstance(pattern, Text) or "\\" in pattern.value:
            node = replace(node, escape=Text(""))
        case In(operand=operand, items=items) if any(map(_is_literal, items)):
            found = _elaborated_in(operand, items)
            return found if is_condition else Call(Identifier("coalesce"), (found, Boolean(False)))
        case Binary(sign=sign, left=left, right=right) if sign in _COMPARISONS:
            left, right = _moments(left, right)
            node = replace(node, left=left, right=right)
        case Between(operand=operand, low=low, high=high):
            node = replace(node, low=_moments(operand, low)[1], high=_moments(operand, high)[1])
    changed = _renamed(_with_parts(node))
    is_validated = isinstance(changed, Between | In | Like) or (isinstance(changed, Binary) and changed.sign in _COMPARISONS)
    return changed if is_condition or not is_validated else Call(Identifier("coalesce"), (changed, Boolean(False)))


def _elaborated_in(operand: Node, items: Sequence[Node]) -> Node:
    """Let literals be read as values of what they are compared with, whatever they are; NULL is never found."""
    sought = standard(operand, is_condition=False)
    texts = tuple(text for item in items if (text := _text_of(item)) is not None)
    found: list[Node] = [Call(Identifier("one_of"), (sought, *texts))] if texts else []
    others = tuple(standard(item, is_condition=False) for item in items if not _is_literal(item))
    if others:
        found.append(In(sought, others))
    if not found:
        return Boolean(False)
    return found[0] if len(found) == 1 else Paren(Chain("OR", tuple(found)))


def _elaborated_cast(node: Cast) -> Node:
    """Return a cast that differs from ours as a call; one of literals to a time stays, since they are read with the definition."""
    try:
        kind = type_of(node.type)
    except ExpressionInvalid:
        return node
    is_own = kind.is_nested or kind.is_integer or kind.kind in ("string", "bytes")
    is_own |= kind.kind in ("boolean", "date", "time", "timestamp") and not isinstance(node.operand.bare, Text)
    return Call(Identifier("ksql_cast"), (node.operand, Text(str(kind)))) if is_own else node


def _is_literal(node: Node) -> bool:
    return isinstance(node, Null) or _text_of(node) is not None


def _text_of(node: Node) -> Text | None:
    """Return what a literal writes, None where a node is no literal."""
    match node:
        case Text():
            return node
        case Number(text=text):
            return Text(text)
        case Negative(operand=Number(text=text)):
            return Text(f"-{text}")
        case Boolean(value=value):
            return Text("true" if value else "false")
    return None


def _branch(branch: When) -> When:
    return When(standard(branch.condition, is_condition=True), standard(branch.result, is_condition=False))


def _with_parts(node: Node) -> Node:
    """Return the node with what is right below it elaborated."""
    return node.mapped(lambda part: None if part is node else standard(part, is_condition=False))


def _renamed(node: Node) -> Node:
    """Return what a call or a sign of the dialect is in the standard language."""
    if isinstance(node, Binary) and node.sign in _ARITHMETIC:
        return Call(Identifier(_ARITHMETIC[node.sign]), (node.left, node.right))
    if isinstance(node, Binary) and node.sign == "+":
        before = node.left.arguments if isinstance(node.left, Call) and node.left.name.text == "plus" else (node.left,)
        return Call(Identifier("plus"), (*before, node.right))
    if isinstance(node, Negative) and not isinstance(node.operand.bare, Number):
        return Call(Identifier("negated"), (node.operand,))
    if isinstance(node, Cast):
        return _elaborated_cast(node)
    if isinstance(node, ArrayOf) and any(isinstance(item.bare, Text | StructOf) for item in node.items):
        return Call(Identifier("ksql_array"), node.items)
    if isinstance(node, Entry) and isinstance(node.key.bare, Null):
        return replace(node, key=Text("null"))
    if not isinstance(node, Call):
        return node
    if node.name.text == "as_value" and len(node.arguments) == 1:
        return Paren(node.arguments[0])
    if node.name.text == "count" and not node.arguments:
        return replace(node, arguments=(Star(),))
    if node.name.text == "cube_explode":
        return Call(Identifier("explode"), (replace(node, name=Identifier("cube")),))
    if node.name.text == "count_distinct":
        return replace(node, name=Identifier("count"), is_distinct=True)
    name = _NAMES.get(node.name.text)
    return node if name is None else replace(node, name=Identifier(name))


def _moments(one: Node, other: Node) -> tuple[Node, Node]:
    """Write texts that are compared with the event time, or with a window's bounds, as milliseconds."""
    if _is_moment(one) and isinstance(other, Text):
        return one, _milliseconds(other)
    if _is_moment(other) and isinstance(one, Text):
        return _milliseconds(one), other
    return one, other


def _is_moment(node: Node) -> bool:
    bare = node.bare
    if isinstance(bare, Column):
        return bare.name.text == _EVENT_TIME
    if not isinstance(bare, Call) or bare.name.text != "epoch_ms" or len(bare.arguments) != 1:
        return False
    argument = bare.arguments[0]
    return isinstance(argument, Column) and argument.name.text in ("window_start", "window_end")


def _milliseconds(text: Text) -> Node:
    """Read a time, of which the end may be missing: ``2013``, ``2013-01``, ``2013-01-01T12``. What is none stays a text."""
    moment = moment_of(text.value)
    return text if moment is None else Number(str(moment))


def moment_of(text: str) -> int | None:
    """Return the milliseconds since 1970 of a time as ksqlDB lets people write it, None where it is none."""
    date, _, time = text.strip().partition("T")
    if not date or not date[0].isdigit():
        return None
    parts = date.split("-")
    whole = "-".join((*(part.zfill(2) for part in parts), *("01",) * (3 - len(parts))))
    clock, sign, offset = _clock(time)
    hours = clock.split(":") if clock else ["00"]
    is_end = hours[0] == "24" and not any(part.strip("0.") for part in hours[1:])
    hours = ["00"] if is_end else hours
    shown = ":".join((*(part.zfill(2) for part in hours), *("00",) * (2 - len(hours))))
    try:
        moment = datetime.fromisoformat(f"{whole}T{shown}{sign}{offset}")
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=is_end)) // timedelta(milliseconds=1)


def _clock(time: str) -> tuple[str, str, str]:
    """Take the offset off a time of the day."""
    for sign in ("Z", "z"):
        if time.endswith(sign):
            return time[:-1], "+", "00:00"
    for sign in ("+", "-"):
        clock, found, offset = time.partition(sign)
        if found:
            digits = offset.replace(":", "").ljust(4, "0")
            return clock, sign, f"{digits[:2]}:{digits[2:4]}"
    return time, "", ""
